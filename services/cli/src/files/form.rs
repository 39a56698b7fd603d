//! Converts objects as people write them to the JSON of protobuf.
//!
//! | people write | protobuf has |
//! |---|---|
//! | a word in any case (`provisionable`) | the name of an enum's value (`STATE_PROVISIONABLE`) |
//! | a duration such as `1d` | seconds (`86400s`) |
//! | `198.51.100.11/24` | an address and a prefix length |
//! | `location` | `location_id`; names in it are looked up later |
//! | an Ethernet address in any notation | with colons |
//!
//! The JSON of protobuf is read, too. All fields are checked here, since the decoder names neither the path nor a value that would fit.

mod scalar;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};
use tinwright::options::is_set;

use super::human;
use crate::input;

/// A number where a secret has to be a text: it is not shown.
const NUMBER_FOR_SECRET: &str = "is a number, not a text: put it in quotes";

/// A step from an object to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The value of a key.
    Key(String),
    /// An element of a list.
    Index(usize),
}

/// A field that does not fit the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The steps to it from the object.
    pub path: Vec<Step>,
    /// The reason why it does not fit.
    pub text: String,
}

/// Renders `path` as `interfaces[0].dhcp`.
pub(crate) fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(&input::short(key)),
            Step::Key(key) => text.push_str(&format!(".{}", input::short(key))),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Returns `value` as the JSON of `message`, or all that is wrong with it.
pub(crate) fn canonical(message: &MessageDescriptor, value: Value) -> Result<Value, Vec<Problem>> {
    let mut form = Form::default();
    let value = form.message(message, value);
    if form.problems.is_empty() { Ok(value) } else { Err(form.problems) }
}

/// Returns the name among `names` that `name` is probably meant to be, as a question; empty if there is none.
pub(crate) fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let meant = actions::suggest(name, names);
    meant.map_or_else(String::new, |meant| format!(": did you mean {meant}?"))
}

/// Returns the hint for `kind`, as the ImageAPI has it, in a `message` that has the field of that name with the definition in its place.
fn in_place_of_kind(message: &MessageDescriptor, key: &str, kind: &Value) -> Option<String> {
    let definition = message.oneofs().find(|it| it.name() == "definition" && key == "kind")?;
    let names: Vec<_> = definition.fields().map(|field| field.name().to_owned()).collect();
    let named = kind.as_str().filter(|kind| names.iter().any(|name| name == kind));
    Some(match named {
        Some(kind) => format!(": leave it out, the field {kind} with the definition says it"),
        None => format!(": leave it out, one of the fields {} says it", names.join(", ")),
    })
}

/// A conversion, and where it is.
#[derive(Default)]
struct Form {
    path: Vec<Step>,
    problems: Vec<Problem>,
}

impl Form {
    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(Problem { path: self.path.clone(), text: text.into() });
    }

    /// Converts `value` one step further inside.
    fn inside(&mut self, step: Step, convert: impl FnOnce(&mut Self) -> Value) -> Value {
        self.path.push(step);
        let value = convert(self);
        self.path.pop();
        value
    }

    fn message(&mut self, message: &MessageDescriptor, value: Value) -> Value {
        match (message.full_name(), value) {
            ("google.protobuf.Duration", value) => self.duration(value),
            (name, value) if name.starts_with("google.protobuf.") => value,
            (_, Value::Object(object)) => self.object(message, object),
            (_, Value::String(text)) if human::is_address(message) => self.address(&text),
            (_, other) => {
                let names: Vec<_> = message.fields().map(|it| it.name().to_owned()).collect();
                let fields = input::short(&names.join(", "));
                self.problem(format!("is {}, not fields: {fields}", scalar::describe(&other)));
                other
            }
        }
    }

    fn object(&mut self, message: &MessageDescriptor, mut object: Map<String, Value>) -> Value {
        if human::has_prefix_length(message) {
            self.split_address(&mut object);
        }
        let mut converted = Map::new();
        for (key, value) in object {
            let Some(field) = find(message, &key) else {
                let names: Vec<_> = message.fields().map(|it| it.name().to_owned()).collect();
                let names = names.iter().flat_map(|name| [name.trim_end_matches("_id"), name]);
                let hint = in_place_of_kind(message, &key, &value);
                let hint = hint.unwrap_or_else(|| did_you_mean(&key, names));
                self.path.push(Step::Key(key));
                self.problem(format!("unknown field{hint}"));
                self.path.pop();
                continue;
            };
            let step = Step::Key(key);
            let value = self.inside(step.clone(), |form| form.field(&field, value));
            if converted.insert(field.name().to_owned(), value).is_some() {
                self.path.push(step);
                self.problem("is given twice");
                self.path.pop();
            }
        }
        Value::Object(converted)
    }

    fn field(&mut self, field: &FieldDescriptor, value: Value) -> Value {
        if value.is_null() {
            return value;
        } else if field.is_map() {
            return self.map(field, value);
        } else if !field.is_list() {
            return self.one(field, &field.kind(), value);
        }
        let Value::Array(elements) = value else {
            self.problem(format!("is {}, not a list", scalar::describe(&value)));
            return value;
        };
        let convert = |(index, element)| {
            self.inside(Step::Index(index), |form| form.one(field, &field.kind(), element))
        };
        Value::Array(elements.into_iter().enumerate().map(convert).collect())
    }

    fn map(&mut self, field: &FieldDescriptor, value: Value) -> Value {
        let Kind::Message(entry) = field.kind() else { return value };
        let (Value::Object(object), kind) = (&value, entry.map_entry_value_field().kind()) else {
            self.problem(format!("is {}, not keys with values", scalar::describe(&value)));
            return value;
        };
        let convert = |(key, value): (&String, &Value)| {
            let step = Step::Key(key.clone());
            (key.clone(), self.inside(step, |form| form.one(field, &kind, value.clone())))
        };
        Value::Object(object.iter().map(convert).collect())
    }

    fn one(&mut self, field: &FieldDescriptor, kind: &Kind, value: Value) -> Value {
        if let Kind::Message(message) = kind {
            return self.message(message, value);
        } else if let Kind::Enum(values) = kind {
            return self.word(values, value);
        } else if *kind == Kind::Bytes && value.is_object() && is_set(field, "json_object") {
            return value;
        }
        scalar::check(field.name(), kind, value).unwrap_or_else(|(value, text)| {
            let is_hidden = value.is_number() && is_set(field, "secret");
            self.problem(if is_hidden { NUMBER_FOR_SECRET.into() } else { text });
            value
        })
    }

    fn word(&mut self, values: &EnumDescriptor, value: Value) -> Value {
        let Value::String(word) = &value else {
            if !value.is_i64() {
                self.problem(format!("is {}, not a word", scalar::describe(&value)));
            }
            return value;
        };
        let wanted = human::word(values, word);
        let names: Vec<_> = values.values().map(|it| it.name().to_owned()).collect();
        if let Some(name) = names.iter().find(|name| human::word(values, name) == wanted) {
            return Value::String(name.clone());
        }
        let words: Vec<_> = names.iter().map(|name| human::word(values, name)).collect();
        let words: Vec<_> =
            words.iter().map(String::as_str).filter(|it| *it != "unspecified").collect();
        let (word, hint) = (input::short(word), did_you_mean(word, words.iter().copied()));
        self.problem(format!("is {word:?}, not one of {}{hint}", words.join(", ")));
        value
    }

    fn duration(&mut self, value: Value) -> Value {
        let wrong = "not a duration such as 1d, 12h, 45m or 90s";
        if let Some(text) = value.as_str() {
            match input::duration(text) {
                Ok(duration) => return format!("{}s", duration.as_secs()).into(),
                Err(_) if scalar::is_seconds(text) => {}
                Err(_) => self.problem(format!("is {:?}, {wrong}", input::short(text))),
            }
        } else if let Some(number) = value.as_u64() {
            self.problem(format!("is {number} without a unit, {wrong}: did you mean {number}s?"));
        } else {
            self.problem(format!("is {}, {wrong}", scalar::describe(&value)));
        }
        value
    }

    fn address(&mut self, text: &str) -> Value {
        let mut object = Map::from_iter([("address".to_owned(), Value::String(text.to_owned()))]);
        self.split_address(&mut object);
        Value::Object(object)
    }

    /// Takes the prefix length out of an address such as `198.51.100.11/24`.
    fn split_address(&mut self, object: &mut Map<String, Value>) {
        let Some(Value::String(text)) = object.get("address") else { return };
        let Some((address, length)) = text.split_once('/') else { return };
        let (address, length) = (address.to_owned(), length.parse::<u32>().ok());
        let separate = object.get("prefix_length").and_then(Value::as_u64);
        self.path.push(Step::Key("address".into()));
        match length {
            Some(length) if separate.is_none_or(|it| it == u64::from(length)) => {
                object.insert("address".into(), address.into());
                object.insert("prefix_length".into(), length.into());
            }
            Some(_) => self.problem("differs from prefix_length"),
            None => self.problem(format!(
                "is {:?}, not an address such as 198.51.100.11/24",
                input::short(text)
            )),
        }
        self.path.pop();
    }
}

/// True if `key` names a field of `message`.
pub(crate) fn is_field(message: &MessageDescriptor, key: &str) -> bool {
    find(message, key).is_some()
}

/// Returns the field that `key` names: by its name, by its name in JSON, or without `_id`.
fn find(message: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    let by_name = |name: &str| message.get_field_by_name(name);
    if key == human::RANGE_KIND && human::is_range(message) {
        return by_name("kind");
    }
    by_name(key)
        .or_else(|| message.get_field_by_json_name(key))
        .or_else(|| by_name(&format!("{key}_id")))
        .or_else(|| by_name(&format!("{}_ids", key.strip_suffix('s')?)))
}

#[cfg(test)]
mod tests;
