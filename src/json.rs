//! Any message of the contract from and to its canonical protobuf JSON.
//!
//! Driven by the descriptors, so nothing has to be derived for a message. Fields are written under their proto names
//! (`dhcp.lease_time`), as the documentation spells them; both these and lower-camel names are read. Unknown fields
//! are refused.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::de::DeserializeSeed as _;

/// Why a message cannot be read or written.
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

fn descriptor<M: Name>() -> Result<MessageDescriptor, Error> {
    let name = M::full_name();
    let found = POOL.as_ref().and_then(|pool| pool.get_message_by_name(&name));
    found.ok_or(Error::Unknown(name))
}

/// `message` as its descriptor sees it.
pub(crate) fn dynamic<M: Message + Name>(message: &M) -> Result<DynamicMessage, Error> {
    Ok(DynamicMessage::decode(descriptor::<M>()?, message.encode_to_vec().as_slice())?)
}

/// `message` as JSON; fields at their default are left out.
pub fn write<M: Message + Name>(message: &M) -> Result<serde_json::Value, Error> {
    let options = SerializeOptions::new().use_proto_field_name(true);
    let json = dynamic(message)?.serialize_with_options(serde_json::value::Serializer, &options);
    json.map_err(|e| Error::Form(e.to_string()))
}

/// The message that `json` spells. Accepts any self-describing format: JSON and YAML alike.
pub fn read<'de, M, D>(json: D) -> Result<M, Error>
where
    M: Message + Name + Default,
    D: serde::Deserializer<'de, Error: std::fmt::Display>,
{
    let dynamic = descriptor::<M>()?.deserialize(json).map_err(|e| Error::Form(e.to_string()))?;
    Ok(M::decode(dynamic.encode_to_vec().as_slice())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::v1 as pb;

    #[test]
    fn a_message_is_read_under_either_name_and_written_under_its_own() {
        for key in ["allow_pxe", "allowPxe"] {
            let text =
                format!(r#"{{"netboot": {{"{key}": true}}, "dhcp": {{"lease_time": "60s"}}}}"#);
            let mut json = serde_json::Deserializer::from_str(&text);
            let interface: pb::Interface = read(&mut json).unwrap();
            assert!(interface.netboot.as_ref().unwrap().allow_pxe);
            let json = write(&interface).unwrap();
            assert_eq!(json["netboot"]["allow_pxe"], true);
            assert_eq!(json["dhcp"]["lease_time"], "60s");
        }
    }

    #[test]
    fn an_unknown_field_is_named() {
        let mut json = serde_json::Deserializer::from_str(r#"{"colour": "red"}"#);
        let error = read::<pb::Hardware, _>(&mut json).unwrap_err().to_string();
        assert!(error.contains("colour"), "{error}");
    }
}
