//! Hardware in the JSON of the years before Kubernetes, as `tink hardware push` took it.
//!
//! Keys are matched without regard to case, as Go's decoder does, and those without a place here are named.
//! `metadata` may be an object or the text of one. Its facility, plan and manufacturer become fields, and the rest but an instance
//! becomes `extra`. A bonding mode in it joins all interfaces to one bond, if there are several.

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tinwright::check;
use tinwright::hardware::v1 as pb;

use super::fields::is_empty;

type Object = Map<String, Value>;

/// True if `object` is in this form: it has a network instead of interfaces, and no kind.
pub(super) fn is_hardware(object: &Value) -> bool {
    let has = |object: &Object, key| find(object, key).is_some();
    object.as_object().is_some_and(|object| has(object, "network") && !has(object, "kind"))
}

/// Returns the paths of what has no place here: unknown keys, and the instance in the metadata.
pub(super) fn leftovers(object: &Value) -> Vec<String> {
    /// Known keys, by the path of the object that they are in.
    const KNOWN: [(&str, &str); 6] = [
        ("", "id version metadata network"),
        ("network", "interfaces"),
        ("network.interfaces", "dhcp netboot"),
        (
            "network.interfaces.dhcp",
            "mac hostname lease_time name_servers time_servers arch iface_name ip",
        ),
        ("network.interfaces.dhcp.ip", "address netmask gateway family address_family"),
        ("network.interfaces.netboot", "allow_pxe allow_workflow ipxe osie"),
    ];
    fn collect(value: &Value, place: &str, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    collect(element, place, &format!("{path}[{index}]"), found);
                }
            }
            Value::Object(object) => {
                let Some((_, known)) = KNOWN.iter().find(|(it, _)| *it == place) else { return };
                for (key, value) in object.iter().filter(|(_, value)| !is_empty(value)) {
                    let join =
                        |to: &str| if to.is_empty() { key.clone() } else { format!("{to}.{key}") };
                    if known.split(' ').any(|it| key.eq_ignore_ascii_case(it)) {
                        collect(value, &join(place).to_lowercase(), &join(path), found);
                    } else {
                        found.push(join(path));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    collect(object, "", "", &mut found);
    let metadata = object.as_object().and_then(|object| metadata(object).ok()).unwrap_or_default();
    if find(&metadata, "instance").is_some_and(|instance| !is_empty(instance)) {
        found.push("metadata.instance".into());
    }
    found
}

/// Converts `object` to our record.
pub(super) fn hardware(object: &Value) -> anyhow::Result<pb::Hardware> {
    let interfaces = at(object, &["network", "interfaces"]).and_then(Value::as_array);
    let interfaces = interfaces.map_or(&[][..], Vec::as_slice);
    let name = name(object).map(|(name, _)| name).unwrap_or_default();
    let object = object.as_object().context("hardware is not an object")?;
    let metadata = metadata(object)?;
    let convert = |(n, value)| interface(value).with_context(|| format!("network.interfaces[{n}]"));
    let converted = interfaces.iter().enumerate().map(convert);
    let mut converted = converted.collect::<anyhow::Result<Vec<_>>>()?;
    let mode = field(&metadata, "bonding_mode", "a number from 0 to 6")?;
    let bond = bond(mode, converted.len())?;
    for (bond, interface) in bond.iter().cycle().zip(&mut converted) {
        interface.bond.clone_from(&bond.name);
    }
    let architecture = interfaces.iter().find_map(|it| at(it, &["dhcp", "arch"])?.as_str());
    Ok(pb::Hardware {
        id: text(object, "id")?,
        name,
        architecture: architecture.unwrap_or_default().to_owned(),
        facility: text_at(&metadata, "facility", "facility_code")?,
        plan: text_at(&metadata, "facility", "plan_slug")?,
        manufacturer: text_at(&metadata, "manufacturer", "slug")?,
        bonds: bond.into_iter().collect(),
        interfaces: converted,
        extra: extra(metadata)?,
        ..pb::Hardware::default()
    })
}

/// Returns the host name of the first interface that has one, without its domain and with it. The format has no name of a machine.
pub(super) fn name(object: &Value) -> Option<(String, &str)> {
    let name = |value| {
        let hostname: &str = at(value, &["dhcp", "hostname"])?.as_str()?;
        Some((check::label(hostname.split('.').next()?).ok()?, hostname))
    };
    at(object, &["network", "interfaces"])?.as_array()?.iter().find_map(name)
}

fn metadata(object: &Object) -> anyhow::Result<Object> {
    let parsed = match find(object, "metadata") {
        None | Some(Value::Null) => return Ok(Object::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Object::new()),
        Some(Value::String(text)) => serde_json::from_str(text).context("metadata is not JSON")?,
        Some(value) => value.clone(),
    };
    let Value::Object(metadata) = parsed else { anyhow::bail!("metadata is not an object") };
    Ok(metadata)
}

/// Returns the bond of `count` interfaces with the bonding mode `number`; none of fewer than two. Modes are numbers there; 0 means
/// none, since Go writes it for an absent mode.
pub(super) fn bond(number: u64, count: usize) -> anyhow::Result<Option<pb::Bond>> {
    // Numbered like the modes of Linux's bonding driver.
    const MODES: [&str; 7] =
        ["", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
    let mode = usize::try_from(number).ok().and_then(|number| MODES.get(number));
    let mode =
        mode.with_context(|| format!("bonding_mode is {number}, not a number from 0 to 6"))?;
    let is_bonded = !mode.is_empty() && count > 1;
    Ok(is_bonded.then(|| pb::Bond { name: "bond0".into(), mode: (*mode).into() }))
}

/// Returns the metadata that has no field, as the bytes of one JSON object.
fn extra(mut metadata: Object) -> anyhow::Result<Vec<u8>> {
    metadata.retain(|key, _| !key.eq_ignore_ascii_case("instance"));
    Ok(if metadata.is_empty() { Vec::new() } else { serde_json::to_vec(&metadata)? })
}

fn interface(value: &Value) -> anyhow::Result<pb::Interface> {
    let empty = Object::new();
    let interface = value.as_object().context("is not an object")?;
    let part = |key| find(interface, key).and_then(Value::as_object).unwrap_or(&empty);
    let (dhcp, netboot) = (part("dhcp"), part("netboot"));
    let seconds: i64 = field(dhcp, "lease_time", "seconds")?;
    Ok(pb::Interface {
        mac: text(dhcp, "mac")?,
        name: text(dhcp, "iface_name")?,
        dhcp: Some(pb::Dhcp {
            address: address(dhcp)?,
            hostname: text(dhcp, "hostname")?,
            lease_time: (seconds != 0).then_some(prost_types::Duration { seconds, nanos: 0 }),
            name_servers: field(dhcp, "name_servers", "a list of texts")?,
            time_servers: field(dhcp, "time_servers", "a list of texts")?,
            ..pb::Dhcp::default()
        }),
        netboot: Some(pb::Netboot {
            allow_pxe: field(netboot, "allow_pxe", "true or false")?,
            allow_workflow: field(netboot, "allow_workflow", "true or false")?,
            ipxe: ipxe(netboot)?,
            osie: osie(netboot)?,
            ..pb::Netboot::default()
        }),
        ..pb::Interface::default()
    })
}

fn address(dhcp: &Object) -> anyhow::Result<Option<pb::Address>> {
    let Some(ip) = find(dhcp, "ip").and_then(Value::as_object) else { return Ok(None) };
    let (address, mask) = (text(ip, "address")?, text(ip, "netmask")?);
    if address.is_empty() {
        return Ok(None);
    }
    let prefix_length =
        prefix_length(&mask).with_context(|| format!("dhcp.ip.netmask {mask:?}"))?;
    Ok(Some(pb::Address { address, prefix_length, gateway: text(ip, "gateway")? }))
}

/// Returns the prefix length of a netmask such as 255.255.255.0.
pub(super) fn prefix_length(mask: &str) -> anyhow::Result<u32> {
    let length = ipnet::ipv4_mask_to_prefix(mask.parse()?);
    Ok(length.map_err(|_| anyhow::anyhow!("not contiguous"))?.into())
}

fn ipxe(netboot: &Object) -> anyhow::Result<Option<pb::Ipxe>> {
    let Some(ipxe) = find(netboot, "ipxe").and_then(Value::as_object) else { return Ok(None) };
    let (url, contents) = (text(ipxe, "url")?, text(ipxe, "contents")?);
    let present = !url.is_empty() || !contents.is_empty();
    Ok(present.then(|| pb::Ipxe { url, contents, binary: String::new() }))
}

fn osie(netboot: &Object) -> anyhow::Result<Option<pb::Osie>> {
    let Some(osie) = find(netboot, "osie").and_then(Value::as_object) else { return Ok(None) };
    let base_url = text(osie, "base_url")?;
    let (kernel, initrd) = (text(osie, "kernel")?, text(osie, "initrd")?);
    let present = [&base_url, &kernel, &initrd].iter().any(|text| !text.is_empty());
    Ok(present.then(|| pb::Osie { base_url, kernel, initrd, kernel_params: Vec::new() }))
}

/// Returns what is at `path` of `value`, whose keys are in any case.
fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| find(value.as_object()?, key))
}

/// Returns the value of `key` in any case; an exact match is preferred.
fn find<'a>(object: &'a Object, key: &str) -> Option<&'a Value> {
    let folded =
        || object.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    object.get(key).or_else(folded)
}

/// Returns the value of `key`, or the default if it is absent or null. `kind` describes valid values in the error.
fn field<T: Default + DeserializeOwned>(
    object: &Object,
    key: &str,
    kind: &str,
) -> anyhow::Result<T> {
    match find(object, key) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => {
            T::deserialize(value).with_context(|| format!("{key} is {value}, not {kind}"))
        }
    }
}

fn text(object: &Object, key: &str) -> anyhow::Result<String> {
    field(object, key, "a text")
}

fn text_at(object: &Object, outer: &str, key: &str) -> anyhow::Result<String> {
    find(object, outer)
        .and_then(Value::as_object)
        .map_or(Ok(String::new()), |inner| text(inner, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pushed() -> Value {
        json!({
            "ID": "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10",
            "version": 0,
            "network": {"interfaces": [{
                "dhcp": {
                    "mac": "02:00:5e:10:00:01", "hostname": "node-a1", "lease_time": 86400,
                    "name_servers": ["192.0.2.53"], "arch": "x86_64", "uefi": false, "iface_name": "eth0",
                    "ip": {"address": "192.0.2.10", "netmask": "255.255.255.0", "gateway": "192.0.2.1", "family": 4}
                },
                "netboot": {"allow_pxe": true, "allow_workflow": true, "ipxe": {"url": "", "contents": ""}}
            }]},
            "metadata": {
                "state": "provisioning", "bonding_mode": 5, "instance": {"id": "x"},
                "manufacturer": {"slug": "acme"}, "facility": {"plan_slug": "std-1", "facility_code": "onprem"}
            }
        })
    }

    #[test]
    fn tinkerbells_json_is_converted_to_our_record() {
        assert!(is_hardware(&pushed()));
        let hardware = hardware(&pushed()).unwrap();
        assert_eq!(hardware.id, "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10");
        assert_eq!(hardware.name, "node-a1");
        assert_eq!((hardware.facility.as_str(), hardware.plan.as_str()), ("onprem", "std-1"));
        let interface = &hardware.interfaces[0];
        let dhcp = interface.dhcp.as_ref().unwrap();
        assert_eq!(
            (interface.mac.as_str(), interface.name.as_str()),
            ("02:00:5e:10:00:01", "eth0")
        );
        assert_eq!(dhcp.address.as_ref().unwrap().prefix_length, 24);
        assert_eq!(dhcp.lease_time.unwrap().seconds, 86400);
        let netboot = interface.netboot.as_ref().unwrap();
        assert!(netboot.allow_pxe && netboot.ipxe.is_none());
    }

    #[test]
    fn metadata_is_an_object_or_its_text_and_its_instance_is_ignored() {
        let mut again = pushed();
        again["metadata"] = Value::String(pushed()["metadata"].to_string());
        let (object, text) = (hardware(&pushed()).unwrap(), hardware(&again).unwrap());
        assert_eq!(object, text);
        let extra: Value = serde_json::from_slice(&object.extra).unwrap();
        assert_eq!((&extra["bonding_mode"], extra.get("instance")), (&json!(5), None));
    }

    #[test]
    fn a_bonding_mode_joins_several_interfaces() {
        assert_eq!(hardware(&pushed()).unwrap().bonds, [], "one interface");
        let mut two = pushed();
        let interfaces = two["network"]["interfaces"].as_array_mut().unwrap();
        interfaces.push(json!({"dhcp": {"mac": "02:00:5e:10:00:02"}}));
        let bonded = hardware(&two).unwrap();
        assert_eq!(bonded.bonds, [pb::Bond { name: "bond0".into(), mode: "balance-tlb".into() }]);
        assert!(bonded.interfaces.iter().all(|interface| interface.bond == "bond0"));
        two["metadata"]["bonding_mode"] = json!(0);
        assert_eq!(hardware(&two).unwrap().bonds, []);
        two["metadata"]["bonding_mode"] = json!(7);
        let error = hardware(&two).unwrap_err().to_string();
        assert_eq!(error, "bonding_mode is 7, not a number from 0 to 6");
    }

    #[test]
    fn fields_without_a_place_are_named() {
        assert_eq!(leftovers(&pushed()), ["metadata.instance"]);
        let mut more = pushed();
        more["network"]["interfaces"][0]["dhcp"]["uefi"] = json!(true);
        more["network"]["interfaces"][0]["netboot"]["allow_pex"] = json!(true);
        more["colour"] = json!("red");
        let wanted = [
            "network.interfaces[0].dhcp.uefi",
            "network.interfaces[0].netboot.allow_pex",
            "colour",
        ];
        assert_eq!(leftovers(&more)[..3], wanted);
    }

    #[test]
    fn an_invalid_field_is_named() {
        let mut wrong = pushed();
        wrong["network"]["interfaces"][0]["dhcp"]["ip"]["netmask"] = json!("255.0.255.0");
        let error = format!("{:#}", hardware(&wrong).unwrap_err());
        assert_eq!(error, "network.interfaces[0]: dhcp.ip.netmask \"255.0.255.0\": not contiguous");
    }
}
