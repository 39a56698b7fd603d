//! Messages as JSON, with fields that are JSON objects of their own.
//!
//! A field that is marked `json_object` has the bytes of an object. In the JSON of a message it is that object, wherever it is; in
//! protobuf's own JSON it would be base64.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage as _,
    SerializeOptions, Value as Field,
};
use serde_json::Value;
use tinwright::options::is_set;

/// The messages with such fields, in themselves or in others that they contain, by their full names.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonObjects(Arc<BTreeMap<String, Vec<ObjectField>>>);

/// A field that is such an object, or contains messages with some.
#[derive(Debug)]
struct ObjectField {
    field: FieldDescriptor,
    /// None for the object itself.
    inner: Option<MessageDescriptor>,
}

impl JsonObjects {
    /// Finds them in `pool`.
    pub(super) fn new(pool: &DescriptorPool) -> Self {
        let mut found = BTreeMap::<String, Vec<ObjectField>>::new();
        loop {
            let leads = |field: FieldDescriptor| {
                let inner = field.kind().as_message().cloned().filter(|_| !field.is_map());
                let leads = is_set(&field, "json_object")
                    || inner.as_ref().is_some_and(|it| found.contains_key(it.full_name()));
                leads.then_some(ObjectField { field, inner })
            };
            let messages = pool.all_messages().map(|message| {
                let fields: Vec<_> = message.fields().filter_map(leads).collect();
                (message.full_name().to_owned(), fields)
            });
            let next: BTreeMap<_, _> = messages.filter(|(_, fields)| !fields.is_empty()).collect();
            let is_complete = next.len() == found.len();
            found = next;
            if is_complete {
                return Self(Arc::new(found));
            }
        }
    }

    fn fields(&self, message: &MessageDescriptor) -> &[ObjectField] {
        self.0.get(message.full_name()).map_or(&[], Vec::as_slice)
    }

    /// True if one of these fields is set in `message`.
    fn are_in(&self, message: &DynamicMessage) -> bool {
        let are_in = |field: &Field| field.as_message().is_some_and(|inner| self.are_in(inner));
        self.fields(&message.descriptor()).iter().any(|ObjectField { field, inner }| {
            let value = message.get_field(field);
            message.has_field(field)
                && (inner.is_none()
                    || match value.as_list() {
                        Some(items) => items.iter().any(are_in),
                        None => are_in(&value),
                    })
        })
    }

    /// Returns `message` as JSON. Fields at their default are left out.
    pub(super) fn write(&self, message: &DynamicMessage) -> Result<Vec<u8>, serde_json::Error> {
        let options = SerializeOptions::new().use_proto_field_name(true);
        if !self.are_in(message) {
            let mut serializer = serde_json::Serializer::new(Vec::with_capacity(512));
            message.serialize_with_options(&mut serializer, &options)?;
            return Ok(serializer.into_inner());
        }
        let mut json = message.serialize_with_options(serde_json::value::Serializer, &options)?;
        self.each(&message.descriptor(), &mut json, &|field| {
            let object = field.as_str().and_then(|text| STANDARD.decode(text).ok());
            let object = object.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            if let Some(object) = object.filter(Value::is_object) {
                *field = object;
            }
        });
        serde_json::to_vec(&json)
    }

    /// Replaces objects in the JSON of a `message` by what protobuf's JSON has for them.
    pub(super) fn encode(&self, message: &MessageDescriptor, json: &mut Value) {
        self.each(message, json, &|field| {
            if field.is_object() {
                *field = STANDARD.encode(field.to_string()).into();
            }
        });
    }

    /// Changes each such field in the JSON of a `message`.
    fn each(&self, message: &MessageDescriptor, json: &mut Value, change: &impl Fn(&mut Value)) {
        for ObjectField { field, inner } in self.fields(message) {
            let name =
                if json.get(field.name()).is_some() { field.name() } else { field.json_name() };
            let Some(value) = json.get_mut(name) else { continue };
            match (inner, value) {
                (None, value) => change(value),
                (Some(inner), Value::Array(items)) => {
                    items.iter_mut().for_each(|item| self.each(inner, item, change));
                }
                (Some(inner), value) => self.each(inner, value, change),
            }
        }
    }
}
