//! Converts any message of the contract from and to its canonical protobuf JSON.
//!
//! The descriptors drive the conversion, so messages derive nothing for it. Fields are written under their proto names
//! (`dhcp.lease_time`), as the documentation spells them; these and lower-camel names are read. Unknown fields are refused.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage as _,
    SerializeOptions,
};
use serde::de::DeserializeSeed as _;
use serde_json::Value;

use crate::options::is_set;

/// An error of a conversion.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The contract has no such message.
    #[error("no message {0} in the contract")]
    Unknown(String),
    /// The JSON does not fit the message.
    #[error("{0}")]
    Form(String),
    /// The bytes do not fit the message.
    #[error("bytes do not fit the message")]
    Decode(#[from] prost::DecodeError),
}

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(crate::DESCRIPTORS).ok());

/// Returns the descriptors of the contract, with their comments.
pub fn pool() -> Option<&'static DescriptorPool> {
    POOL.as_ref()
}

fn descriptor<M: Name>() -> Result<MessageDescriptor, Error> {
    let name = M::full_name();
    let found = POOL.as_ref().and_then(|pool| pool.get_message_by_name(&name));
    found.ok_or(Error::Unknown(name))
}

/// Returns the names of the fields of `M`.
pub fn fields<M: Name>() -> impl Iterator<Item = String> {
    let fields =
        descriptor::<M>().into_iter().flat_map(|message| message.fields().collect::<Vec<_>>());
    fields.map(|field| field.name().to_owned())
}

/// Returns `message` with its descriptor.
pub(crate) fn dynamic<M: Message + Name>(message: &M) -> Result<DynamicMessage, Error> {
    Ok(DynamicMessage::decode(descriptor::<M>()?, message.encode_to_vec().as_slice())?)
}

/// Returns `message` as JSON. Fields at their default are left out, and fields marked `json_object` are that object.
pub fn write<M: Message + Name>(message: &M) -> Result<Value, Error> {
    let options = SerializeOptions::new().use_proto_field_name(true);
    let message = dynamic(message)?;
    let json = message.serialize_with_options(serde_json::value::Serializer, &options);
    let mut json = json.map_err(|e| Error::Form(e.to_string()))?;
    for field in object_fields(&message.descriptor()) {
        if let Some(bytes) = message.get_field(&field).as_bytes()
            && let Ok(object @ Value::Object(_)) = serde_json::from_slice(bytes)
        {
            json[field.name()] = object;
        }
    }
    Ok(json)
}

/// Returns the message that `json` spells. A field marked `json_object` may be that object, or base64.
pub fn read<M: Message + Name + Default>(mut json: Value) -> Result<M, Error> {
    let descriptor = descriptor::<M>()?;
    let mut objects = Vec::new();
    for field in object_fields(&descriptor) {
        if let Some(object) = json.get_mut(field.name()).filter(|value| value.is_object()) {
            let bytes = object.take().to_string().into_bytes();
            objects.push((field, prost_reflect::Value::Bytes(bytes.into())));
        }
    }
    let mut message = descriptor.deserialize(json).map_err(|e| Error::Form(e.to_string()))?;
    for (field, object) in objects {
        message.set_field(&field, object);
    }
    Ok(M::decode(message.encode_to_vec().as_slice())?)
}

/// The fields of a message that hold a JSON object.
fn object_fields(message: &MessageDescriptor) -> impl Iterator<Item = FieldDescriptor> {
    message.fields().filter(|field| is_set(field, "json_object")).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hardware::v1 as pb;

    #[test]
    fn a_message_is_read_under_either_name_and_written_under_its_own() {
        for key in ["allow_pxe", "allowPxe"] {
            let text =
                format!(r#"{{"netboot": {{"{key}": true}}, "dhcp": {{"lease_time": "60s"}}}}"#);
            let interface: pb::Interface = read(text.parse().unwrap()).unwrap();
            assert!(interface.netboot.as_ref().unwrap().allow_pxe);
            let json = write(&interface).unwrap();
            assert_eq!(json["netboot"]["allow_pxe"], true);
            assert_eq!(json["dhcp"]["lease_time"], "60s");
        }
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = read::<pb::Hardware>(json!({"colour": "red"})).unwrap_err().to_string();
        assert!(error.contains("colour"), "{error}");
    }

    #[test]
    fn extra_is_an_object_or_base64_and_written_as_an_object() {
        let object = json!({"extra": {"b": [1, {"a": null}], "a": "x"}});
        for extra in [object.clone(), json!({"extra": "eyJiIjpbMSx7ImEiOm51bGx9XSwiYSI6IngifQ=="})]
        {
            let hardware: pb::Hardware = read(extra).unwrap();
            assert_eq!(hardware.extra, br#"{"b":[1,{"a":null}],"a":"x"}"#);
            assert_eq!(write(&hardware).unwrap(), object);
        }
        assert!(read::<pb::Hardware>(json!({"extra": [1]})).is_err(), "no object");
    }
}
