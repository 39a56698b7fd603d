//! Machines of rufio, and the connections in Hardware of v1alpha2.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fields::{Fields, put};
use super::names::Kind;
use super::{MACHINE, SECRET, Site};

/// Returns user name and password of a Secret; empty texts if it has none.
pub(super) fn credentials(secret: &Value) -> (String, String) {
    let text = |key: &str| {
        let clear = secret.pointer(&format!("/stringData/{key}")).and_then(Value::as_str);
        let encoded = || {
            let text = secret.pointer(&format!("/data/{key}"))?.as_str()?;
            String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()
        };
        clear.map(str::to_owned).or_else(encoded).unwrap_or_default()
    };
    (text("username"), text("password"))
}

/// Converts a Machine. Its hardware names it, or has its name.
pub(super) fn machine(fields: &mut Fields, site: &Site) -> anyhow::Result<Value> {
    let name = fields.text("/metadata/name")?;
    site.check_unique(MACHINE, &name)?;
    let hardware = site.names.here(Kind::Hardware, site.machines.get(&name).unwrap_or(&name))?;
    let mut bmc = connection(fields, "/spec/connection", hardware, site)?;
    if let Some(labels) = fields.take_value("/metadata/labels") {
        bmc["labels"] = labels;
    }
    Ok(bmc)
}

/// Converts the connection at `path` to the BMC of the machine `hardware`.
pub(super) fn connection(
    fields: &mut Fields,
    path: &str,
    hardware: String,
    site: &Site,
) -> anyhow::Result<Value> {
    let at = |key: &str| format!("{path}/{key}");
    let secret = fields.first_text(&[
        &at("authSecretRef/name"),
        &at("credentialsRef/name"),
        &at("authSecret/name"),
    ])?;
    let missing =
        || format!("the Secret {secret:?} with its user name and password is not among the files");
    site.check_unique(SECRET, &secret)?;
    let (username, password) = site.secrets.get(&secret).with_context(missing)?.clone();
    let host = fields.text(&at("host"))?;
    let mut bmc = json!({
        "kind": "Bmc", "hardware_id": hardware, "username": username, "password": password,
    });
    if wants_ipmi(fields, &at("providerOptions")) {
        let port = fields.first_text(&[&at("providerOptions/ipmitool/port"), &at("port")])?;
        let suite = fields.text(&at("providerOptions/ipmitool/cipherSuite"))?;
        put(&mut bmc, "ipmi/host", host);
        for (name, text) in [("ipmi/port", port), ("ipmi/cipher_suite", suite)] {
            let number = number(&text)?;
            if number != 0 {
                put(&mut bmc, name, number);
            }
        }
    } else {
        let port: u16 = fields.take(&at("providerOptions/redfish/port"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = if port == 0 { String::new() } else { format!(":{port}") };
        put(&mut bmc, "redfish/url", format!("https://{host}{port}"));
        let options = at("providerOptions/redfish");
        fields.move_to(&mut bmc, &options, &[("systemName", "redfish/system_id")]);
    }
    Ok(bmc)
}

/// Returns true for a machine that is controlled over IPMI. Of the order of providers it takes one whose first is known here.
fn wants_ipmi(fields: &mut Fields, options: &str) -> bool {
    /// The names of rufio for IPMI and for Redfish.
    const KNOWN: [(&str, bool); 3] = [("ipmitool", true), ("gofish", false), ("redfish", false)];
    let path = format!("{options}/preferredOrder");
    let first = fields.peek(&format!("{path}/0"));
    if let Some((_, is_ipmi)) = KNOWN.iter().find(|(name, _)| first.eq_ignore_ascii_case(name)) {
        fields.take_value(&path);
        return *is_ipmi;
    }
    let has = |provider: &str| !fields.keys(&format!("{options}/{provider}")).is_empty();
    has("ipmitool") && !has("redfish")
}

/// Parses a port, or a suite of rufio, which may have the form of a text; 0 for none.
fn number(text: &str) -> anyhow::Result<u32> {
    match text {
        "" => Ok(0),
        _ => text.parse().with_context(|| format!("{text:?} is not a number")),
    }
}
