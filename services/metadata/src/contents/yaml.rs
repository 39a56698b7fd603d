//! Writes JSON values as YAML, with every string value in double quotes.
//!
//! A library quotes only the strings that its own parser would misread. Parsers differ: those of YAML 1.1 read
//! `52:54:00:00:00:01` as a base-60 number and `no` as false, others read both as strings.

use std::fmt::Write as _;

use serde_json::Value;

/// Returns `value` in block style, with a final newline.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    // A mapping or list begins with a newline, since a key precedes it. At the top level there is no key.
    let mut text = out.trim_start().to_owned();
    text.push('\n');
    text
}

/// Appends `value` after its key. The lines of a mapping or list are indented by `indent`.
fn write(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let _infallible = write!(out, "\n{:indent$}{}:", "", key_text(key));
                write(out, value, indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _infallible = write!(out, "\n{:indent$}-", "");
                let mut inner = String::new();
                write(&mut inner, item, indent + 2);
                // The first line of an item follows the dash.
                let _infallible = write!(out, " {}", inner.trim_start());
            }
        }
        Value::String(text) => {
            let _infallible = write!(out, " {}", quoted(text));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let _infallible = write!(out, " {value}");
        }
    }
}

/// Returns a key, in quotes unless it is a plain lower-case word.
fn key_text(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_');
    // YAML 1.1 reads these words as booleans or null.
    let word = matches!(key, "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null");
    let bare = !word && key.bytes().all(plain) && key.starts_with(|c: char| c.is_ascii_lowercase());
    if bare { key.to_owned() } else { quoted(key) }
}

/// Returns `text` as a JSON string, in which characters that YAML forbids or folds are escaped too.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in Value::from(text).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _infallible = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            _ => quoted.push(c),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_and_plain_keys_are_not() {
        let value = json!({
            "version": 2,
            "ethernets": { "eth0": { "mac": "52:54:00:00:00:01", "addresses": ["192.0.2.1/24"] } },
            "routes": [{ "to": "default", "via": "192.0.2.254" }, {}],
            "no": [],
        });
        let expected = "version: 2\nethernets:\n  \"eth0\":\n    mac: \"52:54:00:00:00:01\"\n    addresses:\n      \
                      - \"192.0.2.1/24\"\nroutes:\n  - to: \"default\"\n    via: \"192.0.2.254\"\n  - {}\n\"no\": []\n";
        assert_eq!(text(&value), expected);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[0-9:.-]{0,9}|[a-z~\n ]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_values_read_back_unchanged(value in any_value()) {
            let read: Value = yaml_serde::from_str(&text(&value)).unwrap();
            prop_assert_eq!(read, value);
        }
    }
}
