//! Messages as JSON, from their bytes.
//!
//! The JSON is protobuf's (ProtoJSON), with the names of the contract; fields at their default are left out. A field that is marked
//! `json_object` has the bytes of an object, and is that object in JSON; in protobuf's own JSON it would be base64.
//!
//! ```text
//! descriptors ─▶ plans     once: for each message, its fields by number, with their names and the JSON of their values
//! bytes ─▶ wire ─▶ write   for each message: fields in the order of their numbers
//! ```
//!
//! A message that is decoded into a dynamic one and written from that takes five times as long, which a page of a hundred objects shows.
//! Only well-known types other than times and durations go that way.

mod plan;
#[cfg(test)]
mod tests;
mod wire;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use prost_reflect::{DescriptorPool, MessageDescriptor};
use tonic::Status;

use self::plan::{MessagePlan, Shape, ValuePlan};
use self::wire::{WireValue, fields};
use self::write::Writer;

/// Writes the messages of a pool. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Transcoder(Arc<Plans>);

/// The plans of all messages, by their full names.
#[derive(Debug, Default)]
struct Plans {
    all: Vec<MessagePlan>,
    numbers: HashMap<String, usize>,
}

/// Bytes that are not the message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TranscodeError {
    /// The encoding is broken.
    #[error("the message is broken: {0}")]
    Broken(&'static str),
    /// A value has no JSON.
    #[error("{0}")]
    NoJson(String),
    /// The descriptors do not have the message.
    #[error("no message {0}")]
    Unknown(String),
}

impl From<TranscodeError> for Status {
    fn from(error: TranscodeError) -> Self {
        Self::internal(format!("the response: {error}"))
    }
}

impl Transcoder {
    /// Prepares the messages of `pool`.
    pub(super) fn new(pool: &DescriptorPool) -> Self {
        let messages: Vec<_> = pool.all_messages().collect();
        let names = messages.iter().map(|message| message.full_name().to_owned());
        let numbers: HashMap<_, _> = names.enumerate().map(|(n, name)| (name, n)).collect();
        let all = messages.iter().map(|message| MessagePlan::new(message, &numbers)).collect();
        Self(Arc::new(Plans { all, numbers }))
    }

    /// Returns the JSON of the `message` that is encoded in `bytes`.
    ///
    /// # Errors
    /// Bytes that are no such message, or have a value without JSON, such as a time after the year 9999.
    pub(super) fn json(
        &self,
        message: &MessageDescriptor,
        bytes: &[u8],
    ) -> Result<Vec<u8>, TranscodeError> {
        let plan = self.plan(message)?;
        let mut writer = Writer::new(&self.0.all, bytes.len());
        writer.message(plan, bytes)?;
        Ok(writer.into_json())
    }

    /// Returns the revision of the object that is the whole `message`; none if it is no object with a revision.
    pub(super) fn revision(&self, message: &MessageDescriptor, bytes: &[u8]) -> Option<i64> {
        let [whole] = self.plan(message).ok()?.fields() else { return None };
        let (Shape::Optional | Shape::Plain, ValuePlan::Message(object)) =
            (&whole.shape, &whole.value)
        else {
            return None;
        };
        let revision = self.0.all[*object].field_named("revision")?;
        let object = last(bytes, whole.number).and_then(WireValue::bytes).unwrap_or_default();
        let revision = last(object, revision.number).and_then(WireValue::varint);
        Some(revision.unwrap_or_default().cast_signed())
    }

    /// Returns the name of the field that the first oneof of `message` has.
    pub(super) fn case(&self, message: &MessageDescriptor, bytes: &[u8]) -> Option<&str> {
        let plan = self.plan(message).ok()?;
        let fields = fields(bytes).ok()?;
        let mut set = fields.iter().filter_map(|field| plan.field(field.number));
        set.find(|field| field.is_case).map(|field| field.name())
    }

    fn plan(&self, message: &MessageDescriptor) -> Result<&MessagePlan, TranscodeError> {
        let number = self.0.numbers.get(message.full_name());
        let plan = number.and_then(|number| self.0.all.get(*number));
        plan.ok_or_else(|| TranscodeError::Unknown(message.full_name().to_owned()))
    }
}

/// Returns the last value of the field `number` in a message.
fn last(bytes: &[u8], number: u32) -> Option<WireValue<'_>> {
    let fields = fields(bytes).ok()?;
    fields.iter().rev().find(|field| field.number == number).map(|field| field.value)
}
