//! The parts of a machine, as its Redfish service lists them (DSP2046, ComputerSystem and EthernetInterface). No property has to be
//! present. What is too long or no valid value is cut or left out: a BMC's mistake must not hide the rest.

use reqwest::Url;
use serde_json::Value;
use tinwright::Mac;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::Health;

use super::response::{Response, id, link};
use super::{Error, Redfish};
use crate::bmc_text::{identity, one_line, uuid};

/// Maximum number of interfaces that are read: one request for each.
const MAX_INTERFACES: usize = 64;
/// Maximum number of pages of a collection that are read.
const MAX_PAGES: usize = 8;

impl Redfish {
    /// Reads the inventory of the system.
    pub async fn inventory(&mut self) -> Result<hw::BmcInventory, Error> {
        let url = self.system_url().await?;
        let system = self.get(&url).await?.body;
        let mut inventory = of_system(&system);
        if let Some(interfaces) = link(&system, "EthernetInterfaces") {
            inventory.interfaces = self.interfaces(&url, interfaces).await?;
        }
        Ok(inventory)
    }

    /// Reads the interfaces in the collection at `page`, a link of `base`. Those that are gone meanwhile are left out.
    async fn interfaces(
        &mut self,
        base: &Url,
        page: String,
    ) -> Result<Vec<hw::BmcInterface>, Error> {
        let mut interfaces = Vec::new();
        for link in self.members(base, page).await? {
            let Some(resource) = self.get_if_present(base, &link).await? else { continue };
            interfaces.extend(of_interface(&resource.body));
        }
        // One port may be listed as several functions.
        interfaces.sort_by(|a: &hw::BmcInterface, b| a.mac.cmp(&b.mac));
        interfaces.dedup_by(|a, b| a.mac == b.mac);
        Ok(interfaces)
    }

    /// Returns the links of the members of the collection whose first page is at `page`, a link of `base`. A collection that is missing
    /// has none.
    pub(super) async fn members(&mut self, base: &Url, page: String) -> Result<Vec<String>, Error> {
        let (mut links, mut next) = (Vec::new(), Some(page));
        for _ in 0..MAX_PAGES {
            let Some(page) = next.take() else { break };
            let Some(Response { body, .. }) = self.get_if_present(base, &page).await? else {
                break;
            };
            let members = body.get("Members").and_then(Value::as_array);
            links.extend(members.into_iter().flatten().filter_map(id));
            next = body.get("Members@odata.nextLink").and_then(Value::as_str).map(str::to_owned);
            if links.len() >= MAX_INTERFACES {
                links.truncate(MAX_INTERFACES);
                break;
            }
        }
        Ok(links)
    }
}

/// Reads the inventory in the system resource `body`.
fn of_system(body: &Value) -> hw::BmcInventory {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut inventory = hw::BmcInventory {
        report_time: None,
        uuid: uuid(text("UUID")),
        serial: identity(text("SerialNumber")),
        vendor: identity(text("Manufacturer")),
        product: identity(text("Model")),
        sku: identity(text("SKU")),
        bios_version: one_line(text("BiosVersion")),
        processors: processors(body.get("ProcessorSummary").unwrap_or(&Value::Null)),
        memory_bytes: memory_bytes(body),
        ..hw::BmcInventory::default()
    };
    inventory.set_health(health(body.get("Status").unwrap_or(&Value::Null)));
    inventory
}

fn processors(summary: &Value) -> Option<hw::Processors> {
    let number = |name: &str| {
        let number = summary.get(name).and_then(Value::as_u64).unwrap_or_default();
        u32::try_from(number).unwrap_or_default()
    };
    let processors = hw::Processors {
        model: one_line(summary.get("Model").and_then(Value::as_str).unwrap_or_default()),
        sockets: number("Count"),
        cores: number("CoreCount"),
        threads: number("LogicalProcessorCount"),
    };
    (processors != hw::Processors::default()).then_some(processors)
}

/// Returns the installed memory. Redfish counts it in GiB, also in fractions of one.
fn memory_bytes(body: &Value) -> u64 {
    let gib = body.pointer("/MemorySummary/TotalSystemMemoryGiB").and_then(Value::as_f64);
    // More than 2^20 GiB is no machine's.
    let gib = gib.filter(|gib| (0.0..1_048_576.0).contains(gib)).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^50")]
    let bytes = (gib * f64::from(1 << 30)).round() as u64;
    bytes
}

/// Returns the health of the machine with its parts, or of the system alone.
fn health(status: &Value) -> Health {
    // One emulator spells the name otherwise than DSP0268.
    let names = ["HealthRollup", "HealthRollUp", "Health"];
    let health = names.iter().find_map(|name| status.get(name).and_then(Value::as_str));
    match health {
        Some("OK") => Health::Ok,
        Some("Warning") => Health::Warning,
        Some("Critical") => Health::Critical,
        Some(_) | None => Health::Unspecified,
    }
}

/// Reads an interface. One without an Ethernet address is none that a machine boots from.
fn of_interface(body: &Value) -> Option<hw::BmcInterface> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let macs = [text("PermanentMACAddress"), text("MACAddress")];
    let mac: Mac = macs.iter().find_map(|mac| mac.parse().ok())?;
    let speed = body.get("SpeedMbps").and_then(Value::as_u64).unwrap_or_default();
    Some(hw::BmcInterface {
        name: one_line(text("Id")),
        mac: mac.to_string(),
        speed_mbps: u32::try_from(speed).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_system_is_read_with_all_that_it_lists() {
        let read = of_system(&json!({
            "UUID": "4C4C4544-0042-3010-8052-B4C04F4D3232", "SerialNumber": " B0BBR22 ", "Manufacturer": "Dell Inc.",
            "Model": "PowerEdge R650", "SKU": "B0BBR22", "BiosVersion": "1.6.5",
            "Status": {"Health": "OK", "HealthRollup": "Warning"},
            "ProcessorSummary": {"Count": 2, "CoreCount": 56, "LogicalProcessorCount": 112, "Model": "Xeon"},
            "MemorySummary": {"TotalSystemMemoryGiB": 0.5}
        }));
        let processors =
            hw::Processors { model: "Xeon".into(), sockets: 2, cores: 56, threads: 112 };
        let expected = hw::BmcInventory {
            uuid: "4c4c4544-0042-3010-8052-b4c04f4d3232".into(),
            serial: "B0BBR22".into(),
            vendor: "Dell Inc.".into(),
            product: "PowerEdge R650".into(),
            sku: "B0BBR22".into(),
            bios_version: "1.6.5".into(),
            health: Health::Warning.into(),
            processors: Some(processors),
            memory_bytes: 1 << 29,
            ..Default::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn placeholders_and_wrong_values_are_left_out() {
        let read = of_system(&json!({
            "UUID": "00000000-0000-0000-0000-000000000000", "SerialNumber": "To be filled by O.E.M.",
            "Manufacturer": 7, "Model": null, "MemorySummary": {"TotalSystemMemoryGiB": -1}
        }));
        assert_eq!(read, hw::BmcInventory::default());
        assert_eq!(of_interface(&json!({"Id": "ib0", "MACAddress": "00:00:00:00:00:00"})), None);
        let both = json!({"PermanentMACAddress": null, "MACAddress": "02-00-00-00-00-0A", "SpeedMbps": 10000});
        let read = of_interface(&both).unwrap();
        assert_eq!((read.mac.as_str(), read.speed_mbps), ("02:00:00:00:00:0a", 10_000));
    }

    proptest! {
        #[test]
        fn any_json_can_be_read(text in "[\\[\\]{}:,\"@a-zA-Z0-9. ]{0,80}") {
            let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            of_system(&body);
            of_system(&json!({"Status": body, "ProcessorSummary": body, "MemorySummary": body}));
            of_interface(&body);
        }
    }
}
