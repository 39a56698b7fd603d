//! Messages as JSON, with fields that are JSON objects of their own.
//!
//! A field that is marked `json_object` has the bytes of an object. In the JSON of a message it is that object, wherever it is; in
//! protobuf's own JSON it would be base64.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{
    DescriptorPool, DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, SerializeOptions,
};
use serde_json::Value;
use tinwright::options::is_set;

/// The messages with such fields, in themselves or in others that they contain.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonObjects(Arc<BTreeSet<String>>);

impl JsonObjects {
    /// Finds them in `pool`.
    pub(super) fn new(pool: &DescriptorPool) -> Self {
        let mut found = BTreeSet::new();
        loop {
            let before = found.len();
            for message in pool.all_messages() {
                let has = message.fields().any(|field| {
                    is_set(&field, "json_object")
                        || field
                            .kind()
                            .as_message()
                            .is_some_and(|it| found.contains(it.full_name()))
                });
                if has {
                    found.insert(message.full_name().to_owned());
                }
            }
            if found.len() == before {
                return Self(Arc::new(found));
            }
        }
    }

    fn contains(&self, message: &MessageDescriptor) -> bool {
        self.0.contains(message.full_name())
    }

    /// Returns `message` as JSON. Fields at their default are left out.
    pub(super) fn write(&self, message: &DynamicMessage) -> Result<Vec<u8>, serde_json::Error> {
        let options = SerializeOptions::new().use_proto_field_name(true);
        if !self.contains(&message.descriptor()) {
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
        if !self.contains(message) {
            return;
        }
        for field in message.fields() {
            let name =
                if json.get(field.name()).is_some() { field.name() } else { field.json_name() };
            let Some(value) = json.get_mut(name) else { continue };
            if is_set(&field, "json_object") {
                change(value);
                continue;
            }
            let Kind::Message(inner) = field.kind() else { continue };
            match value.as_array_mut() {
                Some(items) => items.iter_mut().for_each(|item| self.each(&inner, item, change)),
                None => self.each(&inner, value, change),
            }
        }
    }
}
