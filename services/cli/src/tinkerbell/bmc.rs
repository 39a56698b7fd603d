//! Machines of rufio, and the connections in Hardware of v1alpha2.

use std::collections::HashMap;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::fields::Fields;
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
    let hardware = site.machines.get(&name).unwrap_or(&name).clone();
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
    let mut bmc = Map::from_iter([
        ("kind".to_owned(), Value::from("Bmc")),
        ("hardware_id".to_owned(), hardware.into()),
        ("username".to_owned(), username.into()),
        ("password".to_owned(), password.into()),
    ]);
    if wants_ipmi(fields, &at("providerOptions")) {
        let port = fields.first_text(&[&at("providerOptions/ipmitool/port"), &at("port")])?;
        let suite = fields.text(&at("providerOptions/ipmitool/cipherSuite"))?;
        bmc.insert("ipmi".into(), ipmi(host, &port, &suite)?);
    } else {
        let port: u16 = fields.take(&at("providerOptions/redfish/port"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = if port == 0 { String::new() } else { format!(":{port}") };
        let mut redfish =
            Map::from_iter([("url".to_owned(), format!("https://{host}{port}").into())]);
        fields.copy(&at("providerOptions/redfish/systemName"), &mut redfish, "system_id");
        bmc.insert("redfish".into(), redfish.into());
    }
    Ok(Value::Object(bmc))
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

fn ipmi(host: String, port: &str, cipher_suite: &str) -> anyhow::Result<Value> {
    /// The suites of rufio have names or numbers.
    fn number(text: &str) -> anyhow::Result<u32> {
        if text.is_empty() {
            Ok(0)
        } else {
            text.parse().with_context(|| format!("{text:?} is not a number"))
        }
    }
    let names = HashMap::from([("port", number(port)?), ("cipher_suite", number(cipher_suite)?)]);
    let mut ipmi = json!({ "host": host });
    for (name, value) in names.into_iter().filter(|(_, value)| *value != 0) {
        ipmi[name] = value.into();
    }
    Ok(ipmi)
}
