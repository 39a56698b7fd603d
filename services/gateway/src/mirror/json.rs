//! Fields of requests that are JSON objects of their own.
//!
//! A field that is marked `json_object` has the bytes of an object. In the JSON of a message it is that object, wherever it is; in
//! protobuf's own JSON, which is read then, it is base64.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};
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

    /// Replaces objects in the JSON of a `message` by what protobuf's JSON has for them.
    pub(super) fn encode(&self, message: &MessageDescriptor, json: &mut Value) {
        for ObjectField { field, inner } in self.fields(message) {
            let name =
                if json.get(field.name()).is_some() { field.name() } else { field.json_name() };
            let Some(value) = json.get_mut(name) else { continue };
            match (inner, value) {
                (None, object @ Value::Object(_)) => {
                    *object = STANDARD.encode(object.to_string()).into();
                }
                (None, _) => {}
                (Some(inner), Value::Array(items)) => {
                    items.iter_mut().for_each(|item| self.encode(inner, item));
                }
                (Some(inner), value) => self.encode(inner, value),
            }
        }
    }
}
