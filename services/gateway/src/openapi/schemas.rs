//! The schemas of messages and enums, as protobuf's JSON writes them.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use tinwright::options::is_set;

use super::comments::Comments;
use super::describe;
use crate::routes::Routes;

/// A duration in JSON: seconds with at most nine decimal places.
const DURATION: &str = r"^-?[0-9]{1,12}(\.[0-9]{1,9})?s$";
/// Names of fields, separated by commas.
const MASK: &str = r"^([a-z][A-Za-z0-9_.]*(,[a-z][A-Za-z0-9_.]*)*)?$";

/// The schemas of everything that the routes use.
#[derive(Clone, Debug)]
pub(super) struct Schemas<'a> {
    pub(super) comments: &'a Comments,
    messages: BTreeMap<String, MessageDescriptor>,
    enums: BTreeMap<String, EnumDescriptor>,
    /// The messages that requests have.
    in_requests: BTreeSet<String>,
    /// The messages in responses to calls that can show secrets.
    in_full_views: BTreeSet<String>,
}

impl<'a> Schemas<'a> {
    /// Collects what `routes` use.
    pub(super) fn new(comments: &'a Comments, routes: &Routes) -> Self {
        let (in_requests, in_full_views) = (BTreeSet::new(), BTreeSet::new());
        let (messages, enums) = (BTreeMap::new(), BTreeMap::new());
        let mut schemas = Self { comments, messages, enums, in_requests, in_full_views };
        for route in routes.iter() {
            let (input, output) = (route.call.input(), route.call.output());
            let from_body = route.inputs.iter().filter(|input| input.source.is_body());
            from_body.for_each(|input| schemas.add_field(&input.field));
            let parameters = route.parameters();
            parameters.iter().filter_map(|it| it.path.last()).for_each(|it| schemas.add_field(it));
            schemas.add_message(&output);
            reach(&input, &mut schemas.in_requests);
            if input.fields().any(|field| is_view(&field)) {
                reach(&output, &mut schemas.in_full_views);
            }
        }
        schemas
    }

    fn add_message(&mut self, message: &MessageDescriptor) {
        if message.is_map_entry() {
            message.fields().for_each(|field| self.add_field(&field));
        } else if well_known(message).is_none()
            && self.messages.insert(component(message.full_name()), message.clone()).is_none()
        {
            message.fields().for_each(|field| self.add_field(&field));
        }
    }

    fn add_field(&mut self, field: &FieldDescriptor) {
        if let Some(message) = field.kind().as_message() {
            self.add_message(message);
        }
        if let Some(kind) = field.kind().as_enum() {
            self.enums.insert(component(kind.full_name()), kind.clone());
        }
    }

    /// Returns all schemas by the names of their components.
    pub(super) fn components(&self) -> Map<String, Value> {
        let messages = self.messages.iter().map(|(name, it)| (name.clone(), self.message(it)));
        let enums = self.enums.iter().map(|(name, it)| (name.clone(), self.enumeration(it)));
        messages.chain(enums).collect()
    }

    /// Returns the schema of a message.
    fn message(&self, message: &MessageDescriptor) -> Value {
        let mut schema = self.object(message.fields());
        let mut text = self.comments.of_message(message).to_owned();
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            let names: Vec<_> = oneof.fields().map(|field| format!("`{}`", field.name())).collect();
            let comment = self.comments.of_oneof(&oneof);
            text = format!("{text} At most one of {}. {comment}", names.join(", "));
        }
        describe(&mut schema, text.trim());
        schema.into()
    }

    /// Returns the schema of an object with these fields.
    pub(super) fn object(
        &self,
        fields: impl Iterator<Item = FieldDescriptor>,
    ) -> Map<String, Value> {
        let properties = fields.map(|field| (field.name().to_owned(), self.field(&field)));
        let properties: Map<_, _> = properties.collect();
        // Unknown fields are refused.
        let closed =
            json!({"type": "object", "properties": properties, "additionalProperties": false});
        object_of(&closed)
    }

    /// Returns the schema of a field, with its comment and what its options say.
    fn field(&self, field: &FieldDescriptor) -> Value {
        let mut schema = self.value(field);
        describe(&mut schema, self.comments.of_field(field));
        let parent = field.parent_message().full_name().to_owned();
        if is_set(field, "output_only") {
            schema.insert("readOnly".to_owned(), json!(true));
        } else if is_set(field, "secret")
            && self.in_requests.contains(&parent)
            && !self.in_full_views.contains(&parent)
        {
            // Other secrets are in full views, or in one response only.
            schema.insert("writeOnly".to_owned(), json!(true));
        }
        if is_set(field, "immutable") {
            describe(&mut schema, "Set at creation only.");
        }
        schema.into()
    }

    /// Returns the schema of a field's value.
    pub(super) fn value(&self, field: &FieldDescriptor) -> Map<String, Value> {
        let kind = field.kind();
        if field.is_map()
            && let Some(entry) = kind.as_message()
        {
            let values = self.single(&entry.map_entry_value_field());
            return object_of(&json!({"type": "object", "additionalProperties": values}));
        }
        let single = self.single(field);
        if field.is_list() {
            object_of(&json!({"type": "array", "items": single}))
        } else {
            object_of(&single)
        }
    }

    /// Returns the schema of one value of a field that may be a list.
    fn single(&self, field: &FieldDescriptor) -> Value {
        match field.kind() {
            Kind::Message(message) => {
                well_known(&message).unwrap_or_else(|| reference(message.full_name()))
            }
            Kind::Enum(kind) => reference(kind.full_name()),
            Kind::Bytes if is_set(field, "json_object") => json!({"type": "object"}),
            Kind::Bytes => {
                json!({"type": "string", "contentEncoding": "base64", "format": "byte"})
            }
            Kind::String => json!({"type": "string"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Double | Kind::Float => json!({"type": "number"}),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                json!({"type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX})
            }
            Kind::Uint32 | Kind::Fixed32 => {
                json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!({"type": ["string", "integer"], "format": "int64", "pattern": "^-?[0-9]{1,19}$",
                    "minimum": i64::MIN, "maximum": i64::MAX})
            }
            Kind::Uint64 | Kind::Fixed64 => {
                json!({"type": ["string", "integer"], "format": "uint64", "pattern": "^[0-9]{1,20}$",
                    "minimum": 0, "maximum": u64::MAX})
            }
        }
    }

    /// Returns the schema of an enum.
    fn enumeration(&self, kind: &EnumDescriptor) -> Value {
        let names: Vec<_> = kind.values().map(|value| value.name().to_owned()).collect();
        let mut text = self.comments.of_enum(kind).to_owned();
        for value in kind.values() {
            let comment = self.comments.of_value(&value);
            if !comment.is_empty() {
                text = format!("{text}\n- `{}`: {comment}", value.name());
            }
        }
        json!({"type": "string", "enum": names, "description": text.trim()})
    }
}

/// Returns the name of the component for a message or an enum of the contract.
fn component(full_name: &str) -> String {
    full_name.trim_start_matches("tinwright.").to_owned()
}

/// Returns the reference to a message or an enum.
pub(super) fn reference(full_name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", component(full_name))})
}

/// Returns the schema of a message that JSON does not write as an object.
fn well_known(message: &MessageDescriptor) -> Option<Value> {
    match message.full_name() {
        "google.protobuf.Timestamp" => Some(json!({"type": "string", "format": "date-time"})),
        "google.protobuf.Duration" => Some(json!({"type": "string", "pattern": DURATION})),
        "google.protobuf.FieldMask" => Some(json!({"type": "string", "pattern": MASK})),
        _ => None,
    }
}

fn is_view(field: &FieldDescriptor) -> bool {
    field.kind().as_enum().is_some_and(|kind| kind.full_name() == "tinwright.common.v1.View")
}

/// Adds `message`, and all that it contains, to `names`.
fn reach(message: &MessageDescriptor, names: &mut BTreeSet<String>) {
    if names.insert(message.full_name().to_owned()) {
        for field in message.fields() {
            if let Some(inner) = field.kind().as_message() {
                reach(inner, names);
            }
        }
    }
}

fn object_of(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
