//! Annotations: texts that doors and clients keep with an object, and that no service uses.

use std::collections::BTreeMap;

use super::{InvalidValue, length};

/// The longest sum of keys and values.
const MAX_BYTES: usize = 16 * 1024;
/// The longest key.
const MAX_KEY_BYTES: usize = 255;

/// The reason for refusing annotations. It holds no value of them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAnnotations {
    /// All of them together, or a key, are too long.
    #[error(transparent)]
    Length(#[from] InvalidValue),
    /// A key has the wrong form.
    #[error("has a key that is empty or has a control character")]
    Key,
    /// A value has the wrong form.
    #[error("has a value with a zero byte")]
    Value,
}

/// Keys of at most 255 bytes, and values; together at most 16 KiB.
pub fn annotations(annotations: &BTreeMap<String, String>) -> Result<(), InvalidAnnotations> {
    let sum = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if sum > MAX_BYTES {
        return Err(InvalidValue::TooLong { length: sum, max: MAX_BYTES }.into());
    }
    for key in annotations.keys() {
        length(key, MAX_KEY_BYTES)?;
        if key.is_empty() || key.chars().any(char::is_control) {
            return Err(InvalidAnnotations::Key);
        }
    }
    if annotations.values().any(|value| value.contains('\0')) {
        return Err(InvalidAnnotations::Value);
    }
    Ok(())
}
