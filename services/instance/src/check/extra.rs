//! The opaque part of an instance, which metadata merges with the typed one.

use serde_json::{Map, Value};
use tinwright::check;
use tinwright::status::Violations;

/// The longest, in bytes.
const LENGTH: usize = 64 * 1024;
/// How deep it may nest.
const DEPTH: usize = 32;

/// The typed fields, as the contract names them: who reads the merged object must never have to choose.
const TYPED: [&str; 36] = [
    "id",
    "state",
    "hostname",
    "custom_ipxe",
    "operating_system",
    "ips",
    "userdata",
    "crypted_root_password",
    "tags",
    "ssh_keys",
    "extra",
    "labels",
    "revision",
    "create_time",
    "update_time",
    "hardware_id",
    "template_id",
    "template_values",
    "deprovision_template_id",
    "workflow_ids",
    "state_reason",
    "generation",
    "phone_home_time",
    "workflow_id",
    "begin_time",
    "install_time",
    "forced",
    "released",
    "vendor_data",
    "network_config",
    "lookup_id",
    "boot_gate",
    "host_keys",
    "script_time",
    // Not fields, but what metadata makes of them.
    "allow_pxe",
    "rescue",
];

/// One JSON object with no key of a typed field, or nothing at all. No value is repeated in a message.
pub(super) fn check(extra: &[u8], wrong: &mut Violations) {
    if extra.is_empty() {
        return;
    }
    if let Err(reason) = check::length(extra, LENGTH) {
        return wrong.add("extra", reason);
    }
    let object: Option<Map<String, Value>> =
        check::json_object(extra, DEPTH).ok().and_then(|()| serde_json::from_slice(extra).ok());
    let Some(object) = object else {
        return wrong.add("extra", "is no JSON object, nests too deep or has a key twice");
    };
    for key in object.keys().filter(|key| is_typed(key)) {
        wrong.add("extra", format!("has the key {key:?}, which is a field of its own"));
    }
}

/// JSON spells a field `ssh_keys` or `sshKeys`.
fn is_typed(key: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    TYPED.iter().any(|typed| *typed == key || !key.contains('_') && plain(typed) == plain(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinwright::instance::v1::Instance;

    #[test]
    fn every_field_of_the_contract_is_typed() {
        let pool = prost_reflect::DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        let name = <Instance as prost::Name>::full_name();
        let message = pool.get_message_by_name(&name).unwrap();
        for field in message.fields() {
            assert!(is_typed(field.name()) && is_typed(field.json_name()), "{}", field.name());
        }
    }
}
