//! What is known of messages before any is written.

use std::collections::HashMap;

use prost::encoding::WireType;
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use tinwright::options::is_set;

/// A message.
#[derive(Debug)]
pub(super) enum MessagePlan {
    /// An object with these fields, by their numbers.
    Object(Vec<FieldPlan>),
    Timestamp,
    Duration,
    /// Another well-known type, whose JSON is no object of its fields, or a message with fields of types
    /// that the contract does not use. Dynamic messages write its JSON.
    Reflected(MessageDescriptor),
}

/// A field.
#[derive(Debug)]
pub(super) struct FieldPlan {
    pub(super) number: u32,
    /// The name in JSON, with quotation marks and the colon after it.
    pub(super) key: String,
    pub(super) shape: Shape,
    pub(super) value: ValuePlan,
    /// True if it is in the message's first oneof.
    pub(super) is_case: bool,
}

/// The number of values that a field has.
#[derive(Debug)]
pub(super) enum Shape {
    /// One. The default is the same as none.
    Plain,
    /// None or one.
    Optional,
    List,
    /// Entries with texts as keys.
    Map,
}

/// The type of a value.
#[derive(Debug)]
pub(super) enum ValuePlan {
    Bool,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Double,
    Text,
    Bytes,
    /// The bytes of an object.
    JsonObject,
    /// The names by their numbers, in quotation marks.
    Enum(Vec<(i32, String)>),
    /// The number of the message's plan.
    Message(usize),
}

impl MessagePlan {
    /// Plans `message`; `numbers` has the numbers of other messages' plans.
    pub(super) fn new(message: &MessageDescriptor, numbers: &HashMap<String, usize>) -> Self {
        match message.full_name() {
            "google.protobuf.Timestamp" => Self::Timestamp,
            "google.protobuf.Duration" => Self::Duration,
            _ if message.package_name() == "google.protobuf" => Self::Reflected(message.clone()),
            _ => {
                let fields = message.fields().map(|field| FieldPlan::new(&field, numbers));
                let Some(mut fields) = fields.collect::<Option<Vec<_>>>() else {
                    return Self::Reflected(message.clone());
                };
                fields.sort_by_key(|field| field.number);
                Self::Object(fields)
            }
        }
    }

    pub(super) fn fields(&self) -> &[FieldPlan] {
        match self {
            Self::Object(fields) => fields,
            Self::Timestamp | Self::Duration | Self::Reflected(_) => &[],
        }
    }

    pub(super) fn field(&self, number: u32) -> Option<&FieldPlan> {
        let fields = self.fields();
        fields.binary_search_by_key(&number, |field| field.number).ok().map(|at| &fields[at])
    }

    pub(super) fn field_named(&self, name: &str) -> Option<&FieldPlan> {
        self.fields().iter().find(|field| field.name() == name)
    }
}

impl FieldPlan {
    fn new(field: &FieldDescriptor, numbers: &HashMap<String, usize>) -> Option<Self> {
        let entry = field.kind().as_message().filter(|_| field.is_map()).cloned();
        let (shape, of_value) = match &entry {
            Some(entry) if entry.map_entry_key_field().kind() != Kind::String => return None,
            Some(entry) => (Shape::Map, entry.map_entry_value_field()),
            None if field.is_list() => (Shape::List, field.clone()),
            None if field.supports_presence() => (Shape::Optional, field.clone()),
            None => (Shape::Plain, field.clone()),
        };
        let parent = field.parent_message();
        let first_oneof = parent.oneofs().find(|oneof| !oneof.is_synthetic());
        Some(Self {
            number: field.number(),
            key: format!("\"{}\":", field.name()),
            shape,
            value: ValuePlan::new(&of_value, numbers)?,
            is_case: first_oneof.is_some() && field.containing_oneof() == first_oneof,
        })
    }

    /// Returns its name in JSON.
    pub(super) fn name(&self) -> &str {
        self.key.trim_end_matches(':').trim_matches('"')
    }
}

impl ValuePlan {
    fn new(field: &FieldDescriptor, numbers: &HashMap<String, usize>) -> Option<Self> {
        Some(match field.kind() {
            Kind::Bool => Self::Bool,
            Kind::Int32 => Self::Int32,
            Kind::Uint32 => Self::Uint32,
            Kind::Int64 => Self::Int64,
            Kind::Uint64 => Self::Uint64,
            Kind::Double => Self::Double,
            Kind::String => Self::Text,
            Kind::Bytes if is_set(field, "json_object") => Self::JsonObject,
            Kind::Bytes => Self::Bytes,
            Kind::Enum(names) => Self::Enum(enum_names(&names)),
            Kind::Message(message) => Self::Message(numbers[message.full_name()]),
            Kind::Sint32 | Kind::Sint64 | Kind::Float => return None,
            Kind::Fixed32 | Kind::Fixed64 | Kind::Sfixed32 | Kind::Sfixed64 => return None,
        })
    }

    /// True if it is a number of 32 bits that is sent as one of 64.
    pub(super) fn is_narrow(&self) -> bool {
        matches!(self, Self::Int32 | Self::Uint32 | Self::Enum(_))
    }

    /// Returns the encoding of one value.
    pub(super) fn wire_type(&self) -> WireType {
        match self {
            Self::Bool | Self::Int32 | Self::Uint32 | Self::Enum(_) => WireType::Varint,
            Self::Int64 | Self::Uint64 => WireType::Varint,
            Self::Double => WireType::SixtyFourBit,
            Self::Text | Self::Bytes | Self::JsonObject | Self::Message(_) => {
                WireType::LengthDelimited
            }
        }
    }
}

/// Returns the names of an enum by their numbers: the first of each number.
fn enum_names(descriptor: &EnumDescriptor) -> Vec<(i32, String)> {
    let names = descriptor.values().map(|value| (value.number(), format!("\"{}\"", value.name())));
    let mut names: Vec<_> = names.collect();
    names.sort_by_key(|(number, _)| *number);
    names.dedup_by_key(|(number, _)| *number);
    names
}
