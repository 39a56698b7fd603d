//! JSON values as YAML, every text in double quotes.
//!
//! A library quotes only the texts that its own reader would misread, and readers differ: those of YAML 1.1 take
//! `52:54:00:00:00:01` for a number in base sixty and `no` for false, others do not.

use std::fmt::Write as _;

use serde_json::Value;

/// Returns `value` in block style, with a final newline.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    // A mapping or list begins on the line after its key; at the top there is none.
    let mut text = out.trim_start().to_owned();
    text.push('\n');
    text
}

/// Appends `value` after a key that is indented by `indent`.
fn write(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let _infallible = write!(out, "\n{:indent$}{}:", "", name(key));
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

/// Returns a key: our own words without quotes, others in quotes.
fn name(key: &str) -> String {
    let ours = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_');
    // The words of letters with a meaning in YAML 1.1.
    let word = matches!(key, "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null");
    let bare = !word && key.bytes().all(ours) && key.starts_with(|c: char| c.is_ascii_lowercase());
    if bare { key.to_owned() } else { quoted(key) }
}

/// Returns JSON's notation. In addition, characters that YAML forbids or folds are escaped.
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
    fn texts_are_quoted_and_names_of_ours_are_not() {
        let value = json!({
            "version": 2,
            "ethernets": { "eth0": { "mac": "52:54:00:00:00:01", "addresses": ["192.0.2.1/24"] } },
            "routes": [{ "to": "default", "via": "192.0.2.254" }, {}],
            "no": [],
        });
        let wanted = "version: 2\nethernets:\n  \"eth0\":\n    mac: \"52:54:00:00:00:01\"\n    addresses:\n      \
                      - \"192.0.2.1/24\"\nroutes:\n  - to: \"default\"\n    via: \"192.0.2.254\"\n  - {}\n\"no\": []\n";
        assert_eq!(text(&value), wanted);
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
