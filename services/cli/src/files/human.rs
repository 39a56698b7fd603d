//! Converts the JSON of protobuf to objects as people read and write them: [`super::form`] has the
//! table.

use std::time::Duration;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

/// The message whose only other field is a gateway: without one, an address is written as a text.
const ADDRESS: &str = "tinwright.hardware.v1.Address";

/// The key of a range's own kind: `kind` says what an object is.
pub(crate) const RANGE_KIND: &str = "range_kind";

/// True for the message that has a field `kind` of its own, and is in files.
pub(crate) fn is_range(message: &MessageDescriptor) -> bool {
    message.full_name() == "tinwright.address.v1.Range"
}

/// True for a message that may be written as an address with a prefix length.
pub(super) fn is_address(message: &MessageDescriptor) -> bool {
    message.full_name() == ADDRESS
}

/// True for a message with an address and its prefix length.
pub(super) fn has_prefix_length(message: &MessageDescriptor) -> bool {
    message.get_field_by_name("address").is_some()
        && message.get_field_by_name("prefix_length").is_some()
}

/// Returns the word for the value `name` of an enum: `STATE_DEPROVISION_FAILED` becomes `deprovision-failed`.
pub(crate) fn word(values: &EnumDescriptor, name: &str) -> String {
    let name = name.to_uppercase().replace(['-', ' '], "_");
    let zero = values.values().find(|value| value.number() == 0);
    let zero = zero.map_or_else(String::new, |value| value.name().to_owned());
    let prefix = zero.strip_suffix("UNSPECIFIED").unwrap_or_default();
    name.strip_prefix(prefix).unwrap_or(&name).to_lowercase().replace('_', "-")
}

/// Returns the JSON `value` of `message` as people write it.
pub(crate) fn value(message: &MessageDescriptor, value: Value) -> Value {
    match (message.full_name(), value) {
        ("google.protobuf.Duration", Value::String(text)) => duration(&text).into(),
        (name, Value::Object(object)) if !name.starts_with("google.protobuf.") => {
            fields(message, object)
        }
        (_, value) => value,
    }
}

fn fields(message: &MessageDescriptor, object: Map<String, Value>) -> Value {
    let field = |(key, value): (String, Value)| match message.get_field_by_name(&key) {
        Some(field) => (key, of_field(&field, value)),
        None => (key, value),
    };
    let mut object: Map<_, _> = object.into_iter().map(field).collect();
    if has_prefix_length(message) {
        join_address(&mut object);
    }
    if is_address(message) && object.len() == 1 && has_slash(&object) {
        return object.remove("address").unwrap_or_default();
    }
    Value::Object(object)
}

fn has_slash(object: &Map<String, Value>) -> bool {
    object.get("address").and_then(Value::as_str).is_some_and(|text| text.contains('/'))
}

fn join_address(object: &mut Map<String, Value>) {
    let (address, length) = (object.get("address"), object.get("prefix_length"));
    if let (Some(Value::String(address)), Some(Value::Number(length))) = (address, length) {
        let joined = format!("{address}/{length}");
        object.insert("address".into(), joined.into());
        object.shift_remove("prefix_length");
    }
}

fn of_field(field: &FieldDescriptor, value: Value) -> Value {
    match (field.kind(), value) {
        (Kind::Message(entry), Value::Object(object)) if field.is_map() => {
            let kind = entry.map_entry_value_field().kind();
            Value::Object(object.into_iter().map(|(key, value)| (key, one(&kind, value))).collect())
        }
        (kind, Value::Array(elements)) if field.is_list() => {
            Value::Array(elements.into_iter().map(|element| one(&kind, element)).collect())
        }
        (kind, value) => one(&kind, value),
    }
}

fn one(kind: &Kind, it: Value) -> Value {
    match (kind, it) {
        (Kind::Message(message), it) => value(message, it),
        (Kind::Enum(values), Value::String(name)) => word(values, &name).into(),
        (_, other) => other,
    }
}

/// Returns seconds such as `86400s` with the largest unit of which they are a multiple: `1d`.
fn duration(seconds: &str) -> String {
    let Some(number) = seconds.strip_suffix('s').and_then(|it| it.parse::<u64>().ok()) else {
        return seconds.to_owned();
    };
    let number = Duration::from_secs(number).as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let unit = units.iter().find(|(size, _)| number > 0 && number.is_multiple_of(*size));
    unit.map_or_else(|| seconds.to_owned(), |(size, unit)| format!("{}{unit}", number / size))
}

#[cfg(test)]
mod tests {
    use super::super::{descriptor, form};
    use super::*;
    use serde_json::json;
    use tinwright::hardware::v1::Hardware;
    use tinwright::instance::v1::Instance;

    #[test]
    fn the_form_that_people_read_may_be_written() {
        let protobuf = json!({
            "state": "STATE_PROVISIONABLE",
            "policy": {"metadata_tokens": "METADATA_TOKENS_REQUIRED", "user_data_window": "5400s"},
            "interfaces": [
                {"dhcp": {"lease_time": "86400s", "address": {"address": "198.51.100.11", "prefix_length": 24}}},
                {"dhcp": {"lease_time": "1.500s", "address": {"address": "198.51.100.12", "prefix_length": 24, "gateway": "198.51.100.1"}}},
            ],
        });
        let people = json!({
            "state": "provisionable",
            "policy": {"metadata_tokens": "required", "user_data_window": "90m"},
            "interfaces": [
                {"dhcp": {"lease_time": "1d", "address": "198.51.100.11/24"}},
                {"dhcp": {"lease_time": "1.500s", "address": {"address": "198.51.100.12/24", "gateway": "198.51.100.1"}}},
            ],
        });
        let descriptor = descriptor::<Hardware>().unwrap();
        assert_eq!(value(&descriptor, protobuf.clone()), people);
        assert_eq!(form::canonical(&descriptor, people).unwrap(), protobuf);
    }

    #[test]
    fn a_word_is_the_name_without_that_of_its_enum() {
        let instance = descriptor::<Instance>().unwrap();
        let failed = value(
            &instance,
            json!({"state": "STATE_DEPROVISION_FAILED", "ips": [{"family": "FAMILY_V4"}]}),
        );
        assert_eq!(failed, json!({"state": "deprovision-failed", "ips": [{"family": "v4"}]}));
        let newer = json!({"state": 77, "labels": {"a": "STATE_ACTIVE"}});
        assert_eq!(value(&instance, newer.clone()), newer);
    }
}
