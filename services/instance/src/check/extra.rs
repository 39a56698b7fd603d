//! The `extra` field: a JSON object that the metadata service merges with the typed fields.

use serde_json::{Map, Value};
use tinwright::instance::v1::Instance;
use tinwright::status::Violations;
use tinwright::{check, json};

/// The longest `extra`.
const MAX_EXTRA_BYTES: usize = 64 * 1024;
/// The deepest nesting.
const MAX_DEPTH: usize = 32;

/// Keys that the metadata service adds to the typed fields.
const ADDED_KEYS: [&str; 2] = ["allow_pxe", "rescue"];

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

/// True if the metadata service has a value of its own for `key`, spelled like `ssh_keys` or `sshKeys`: the merged object
/// would be ambiguous.
fn is_typed(key: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let has = |typed: &str| typed == key || !key.contains('_') && plain(typed) == plain(key);
    ADDED_KEYS.into_iter().any(has) || json::fields::<Instance>().any(|field| has(&field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_fields_and_added_keys_are_found_in_either_spelling() {
        for key in [
            "ssh_keys",
            "sshKeys",
            "custom_ipxe",
            "customIpxe",
            "lookup_id",
            "allow_pxe",
            "allowPxe",
        ] {
            assert!(is_typed(key), "{key}");
        }
        assert!(!is_typed("ssh_key") && !is_typed("facility"));
    }
}
