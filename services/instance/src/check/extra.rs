//! The `extra` field: a JSON object that the metadata service merges with the typed fields.

use serde_json::{Map, Value};
use tinwright::check;
use tinwright::status::Violations;

/// The longest `extra`.
const MAX_EXTRA_BYTES: usize = 64 * 1024;
/// The deepest nesting.
const MAX_DEPTH: usize = 32;

/// The typed fields by their names in the contract. `extra` must not have them, or the merged object would be ambiguous.
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
    // No fields: keys that the metadata service adds.
    "allow_pxe",
    "rescue",
];

/// Adds the violations of `extra`, which is empty or one JSON object without keys of typed fields. Messages hold no values.
pub(super) fn check(extra: &[u8], wrong: &mut Violations) {
    if extra.is_empty() {
        return;
    }
    if let Err(reason) = check::length(extra, MAX_EXTRA_BYTES) {
        return wrong.add("extra", reason);
    }
    let object: Option<Map<String, Value>> =
        check::json_object(extra, MAX_DEPTH).ok().and_then(|()| serde_json::from_slice(extra).ok());
    let Some(object) = object else {
        return wrong.add("extra", "is not a JSON object, nests too deep or has a key twice");
    };
    for key in object.keys().filter(|key| is_typed(key)) {
        wrong.add("extra", format!("has the key {key:?}, which is a typed field"));
    }
}

/// True if `key` is a typed field, spelled like `ssh_keys` or `sshKeys`.
fn is_typed(key: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    TYPED.iter().any(|typed| *typed == key || !key.contains('_') && plain(typed) == plain(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinwright::instance::v1::Instance;

    #[test]
    fn every_field_of_the_contract_is_listed() {
        let pool = prost_reflect::DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        let name = <Instance as prost::Name>::full_name();
        let message = pool.get_message_by_name(&name).unwrap();
        for field in message.fields() {
            assert!(is_typed(field.name()) && is_typed(field.json_name()), "{}", field.name());
        }
    }
}
