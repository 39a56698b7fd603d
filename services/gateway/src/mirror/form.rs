//! The forms of values: errors name the required one, which the decoder does not, and short words stand for the names of enums.

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use tinwright::options::is_set;

/// Returns the problem of the value at `path` in a `message`, after the decoder refused it with
/// `error`. It never quotes the value.
pub(super) fn reason(message: &MessageDescriptor, path: &Path, error: &str) -> String {
    let is_type = error.starts_with("invalid type");
    let wanted = match field_at(message, path) {
        Some((field, false)) if field.is_map() => is_type.then(|| "is not an object".to_owned()),
        Some((field, false)) if field.is_list() => is_type.then(|| "is not a list".to_owned()),
        Some((field, _)) => single(&field, is_type),
        None => None,
    };
    wanted.unwrap_or_else(|| error.to_owned())
}

/// Returns the field at `path`, and true if `path` leads to an element of it.
fn field_at(message: &MessageDescriptor, path: &Path) -> Option<(FieldDescriptor, bool)> {
    let mut found = None::<(FieldDescriptor, bool)>;
    for segment in path.iter() {
        found = Some(match (segment, found) {
            (Segment::Map { key }, None) => (named(message, key)?, false),
            (Segment::Map { key }, Some((field, _))) => {
                let Kind::Message(inner) = field.kind() else { return None };
                match field.is_map() {
                    true => (inner.map_entry_value_field(), true),
                    false => (named(&inner, key)?, false),
                }
            }
            (Segment::Seq { .. }, Some((field, _))) => (field, true),
            (Segment::Seq { .. }, None) | (Segment::Enum { .. } | Segment::Unknown, _) => {
                return None;
            }
        });
    }
    found
}

/// Returns the field of `message` with this name, or with this name in JSON.
pub(super) fn named(message: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    message.get_field_by_name(key).or_else(|| message.get_field_by_json_name(key))
}

/// Returns the reason for a single value; none if the error of the decoder says more. `is_type` if the value is of another type of JSON.
fn single(field: &FieldDescriptor, is_type: bool) -> Option<String> {
    Some(match field.kind() {
        Kind::Enum(words) => format!("is not one of {}", names(&words)),
        Kind::Bool => "is neither true nor false".to_owned(),
        Kind::String => "is not a text".to_owned(),
        Kind::Bytes if is_set(field, "json_object") => "is not an object".to_owned(),
        Kind::Bytes => "is not a text in base64".to_owned(),
        Kind::Double | Kind::Float => "is not a number".to_owned(),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => whole(i32::MIN, i32::MAX),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => whole(i64::MIN, i64::MAX),
        Kind::Uint32 | Kind::Fixed32 => whole(0, u32::MAX),
        Kind::Uint64 | Kind::Fixed64 => whole(0, u64::MAX),
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => {
                "is not a time (RFC 3339), such as 2026-01-02T03:04:05Z".to_owned()
            }
            "google.protobuf.Duration" => {
                "is not a duration in seconds, such as 600s or 1.5s".to_owned()
            }
            "google.protobuf.FieldMask" => {
                "is not a text with names of fields, such as name,labels".to_owned()
            }
            _ => return is_type.then(|| "is not an object".to_owned()),
        },
    })
}

fn whole<T: std::fmt::Display>(min: T, max: T) -> String {
    format!("is not a whole number from {min} to {max}")
}

/// Returns the names of an enum's values, without the one for a field that is not set.
fn names(words: &EnumDescriptor) -> String {
    let names = words.values().filter(|word| word.number() != 0);
    names.map(|word| word.name().to_owned()).collect::<Vec<_>>().join(", ")
}

/// Replaces a short word, as files have it, by the name of the enum's value: `provisionable` by `STATE_PROVISIONABLE`.
pub(super) fn expand(words: &EnumDescriptor, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| expand(words, item)),
        Value::String(text) if words.get_value_by_name(text).is_none() => {
            let word = text.to_lowercase().replace('_', "-");
            if let Some(meant) = words.values().find(|it| short(words, it.name()) == word) {
                *text = meant.name().to_owned();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

/// Returns the name of an enum's value without the part that all its values have.
fn short(words: &EnumDescriptor, name: &str) -> String {
    let zero = words.values().find(|word| word.number() == 0);
    let zero = zero.map_or_else(String::new, |word| word.name().to_owned());
    let prefix = zero.strip_suffix("UNSPECIFIED").unwrap_or_default();
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase().replace('_', "-")
}
