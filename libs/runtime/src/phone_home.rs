//! The call home of an installed system, which two edges take: what it says, and storing it.

use std::collections::BTreeMap;

use serde_json::Value;
use tinwright::instance::v1::{
    ReportPhoneHomeRequest, instance_service_client::InstanceServiceClient,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Stores that a machine called home. A machine without an instance has nobody who waits for its call: nothing is stored, and
/// nothing that repeating would change.
pub async fn report(instance: Channel, call: ReportPhoneHomeRequest) -> Result<(), Status> {
    match InstanceServiceClient::new(instance).report_phone_home(call).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::NotFound => Ok(()),
        Err(status) => Err(status),
    }
}

/// What a call says: a JSON object, a form, or nothing. The body tells which, since its declared type often does not.
pub fn parse_fields(body: &[u8]) -> Option<BTreeMap<String, String>> {
    match body.trim_ascii_start() {
        object @ [b'{', ..] => {
            let object: BTreeMap<String, Value> = serde_json::from_slice(object).ok()?;
            let text = |value| match value {
                Value::String(text) => text,
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => value.to_string(),
            };
            Some(object.into_iter().map(|(name, value)| (name, text(value))).collect())
        }
        form => Some(form_urlencoded::parse(form).into_owned().collect()),
    }
}

/// What a call says (its `type`), at most 64 characters of it. Empty: the installed system is up.
pub fn event_type(said: &BTreeMap<String, String>) -> String {
    let kind = said.get("type").map_or("", String::as_str);
    let own = !kind.is_empty() && kind != "phone-home";
    if own { kind.chars().take(64).collect() } else { String::new() }
}

/// The public keys of its SSH server among what a system says (cloud-init's `pub_key_rsa` and the like).
pub fn host_keys(said: &BTreeMap<String, String>) -> Vec<String> {
    let keys = said.iter().filter(|(name, _)| name.starts_with("pub_key_"));
    keys.map(|(_, key)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(body: &str) -> Option<Vec<(String, String)>> {
        Some(parse_fields(body.as_bytes())?.into_iter().collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn a_form_is_read() {
        let form = "hostname=node1&pub_key_rsa=ssh-rsa+AAAA%2B%3D";
        let pairs = [pair("hostname", "node1"), pair("pub_key_rsa", "ssh-rsa AAAA+=")];
        assert_eq!(said(form).unwrap(), pairs);
    }

    #[test]
    fn the_keys_are_those_that_are_called_so() {
        let said =
            parse_fields(b"hostname=node1&pub_key_rsa=ssh-rsa+A&pub_key_ed25519=ssh-ed25519+B");
        assert_eq!(host_keys(&said.unwrap()), ["ssh-ed25519 B", "ssh-rsa A"]);
    }

    #[test]
    fn json_is_read() {
        let json = r#" {"type": "provisioning.104.01", "tries": 3}"#;
        assert_eq!(said(json).unwrap(), [pair("tries", "3"), pair("type", "provisioning.104.01")]);
        assert_eq!(said("{oops"), None);
    }

    #[test]
    fn the_kind_of_a_systems_call_is_empty() {
        let kind = |body: &str| event_type(&parse_fields(body.as_bytes()).unwrap());
        for body in ["", "{}", "type=phone-home", r#"{"type": ""}"#, "hostname=node1"] {
            assert_eq!(kind(body), "", "{body}");
        }
        assert_eq!(kind("type=provisioning.104.01"), "provisioning.104.01");
        assert_eq!(kind(&format!("type={}", "x".repeat(65))), "x".repeat(64));
    }

    #[test]
    fn nothing_is_a_call_too() {
        assert_eq!(said("").unwrap(), []);
        assert_eq!(said("{}").unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_body_is_too_odd(body: Vec<u8>) {
            let _either = parse_fields(&body);
        }
    }
}
