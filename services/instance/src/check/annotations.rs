//! Annotations: texts that are kept with an instance, and that no service uses.

use std::collections::BTreeMap;

use tinwright::check::{self, InvalidValue};
use tinwright::status::Violations;

/// The longest sum of keys and values.
const MAX_BYTES: usize = 16 * 1024;
/// The longest key.
const MAX_KEY_BYTES: usize = 255;

/// Adds the violations of `annotations`. Messages hold no values.
pub(super) fn check(annotations: &BTreeMap<String, String>, wrong: &mut Violations) {
    let length = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > MAX_BYTES {
        wrong.add("annotations", InvalidValue::TooLong { length, max: MAX_BYTES });
    }
    for key in annotations.keys() {
        wrong.take("annotations", check::length(key, MAX_KEY_BYTES));
    }
    if annotations.keys().any(|key| key.is_empty() || key.chars().any(char::is_control)) {
        wrong.add("annotations", "has a key that is empty or has a control character");
    }
    if annotations.values().any(|value| value.contains('\0')) {
        wrong.add("annotations", "has a value with a zero byte");
    }
}
