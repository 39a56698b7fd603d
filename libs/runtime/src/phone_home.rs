//! The phone-home call of an installed system, which netboot and metadata accept: parsing and reporting it.

use std::collections::BTreeMap;

use crate::Channel;
use serde_json::Value;
use tinwright::instance::v1::{
    ReportPhoneHomeRequest, instance_service_client::InstanceServiceClient,
};
use tonic::{Code, Status};

/// Reports a phone-home call to the instance service. For a machine without an instance nothing is stored, which is no error:
/// repeating the call would not change it.
pub async fn report(instance: Channel, call: ReportPhoneHomeRequest) -> Result<(), Status> {
    match InstanceServiceClient::new(instance).report_phone_home(call).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::NotFound => Ok(()),
        Err(status) => Err(status),
    }
}

/// Parses the body of a call: a JSON object, a form, or nothing. The body decides, since its declared type is often wrong.
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

/// The `type` of a call, at most 64 characters of it. Empty: the installed system is up.
pub fn event_type(fields: &BTreeMap<String, String>) -> String {
    let kind = fields.get("type").map_or("", String::as_str);
    let own = !kind.is_empty() && kind != "phone-home";
    if own { kind.chars().take(64).collect() } else { String::new() }
}

/// The public keys of the system's SSH server (cloud-init's `pub_key_rsa` and the like).
pub fn host_keys(fields: &BTreeMap<String, String>) -> Vec<String> {
    let keys = fields.iter().filter(|(name, _)| name.starts_with("pub_key_"));
    keys.map(|(_, key)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(body: &str) -> Option<Vec<(String, String)>> {
        Some(parse_fields(body.as_bytes())?.into_iter().collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn a_form_is_read() {
        let form = "hostname=node1&pub_key_rsa=ssh-rsa+AAAA%2B%3D";
        let pairs = [pair("hostname", "node1"), pair("pub_key_rsa", "ssh-rsa AAAA+=")];
        assert_eq!(parsed(form).unwrap(), pairs);
    }

    #[test]
    fn fields_that_begin_with_pub_key_are_host_keys() {
        let fields =
            parse_fields(b"hostname=node1&pub_key_rsa=ssh-rsa+A&pub_key_ed25519=ssh-ed25519+B");
        assert_eq!(host_keys(&fields.unwrap()), ["ssh-ed25519 B", "ssh-rsa A"]);
    }

    #[test]
    fn json_is_read() {
        let json = r#" {"type": "provisioning.104.01", "tries": 3}"#;
        assert_eq!(
            parsed(json).unwrap(),
            [pair("tries", "3"), pair("type", "provisioning.104.01")]
        );
        assert_eq!(parsed("{oops"), None);
    }

    #[test]
    fn the_event_type_of_an_installed_system_is_empty() {
        let kind = |body: &str| event_type(&parse_fields(body.as_bytes()).unwrap());
        for body in ["", "{}", "type=phone-home", r#"{"type": ""}"#, "hostname=node1"] {
            assert_eq!(kind(body), "", "{body}");
        }
        assert_eq!(kind("type=provisioning.104.01"), "provisioning.104.01");
        assert_eq!(kind(&format!("type={}", "x".repeat(65))), "x".repeat(64));
    }

    #[test]
    fn an_empty_body_is_a_call() {
        assert_eq!(parsed("").unwrap(), []);
        assert_eq!(parsed("{}").unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_body_makes_the_parser_panic(body: Vec<u8>) {
            let _either = parse_fields(&body);
        }
    }
}
