//! The messages of the journal. They are not part of the contract, but follow its rules: field numbers are never used again.

use tinwright::node::v1::{Attachment, Container, ImageResult, Mount};

/// Changes that are written at once, and read as a whole or not at all.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Batch {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<JournalEntry>,
}

/// One change.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct JournalEntry {
    #[prost(oneof = "Change", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) change: Option<Change>,
}

/// A change of what the journal has.
#[expect(clippy::large_enum_variant, reason = "few changes are in memory at a time")]
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Change {
    /// An object is new or different.
    #[prost(message, tag = "1")]
    Put(Box<ObjectRecord>),
    /// The object with this id is gone.
    #[prost(int64, tag = "2")]
    Remove(i64),
    /// A call has ended.
    #[prost(message, tag = "3")]
    PutResult(CallRecord),
    /// The result of the call with this id is not needed any more.
    #[prost(string, tag = "4")]
    RemoveResult(String),
    /// No object has had this id or a higher one.
    #[prost(int64, tag = "5")]
    NextId(i64),
    /// The name of this journal, in the marks of its objects.
    #[prost(string, tag = "6")]
    Name(String),
}

/// An object.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ObjectRecord {
    #[prost(oneof = "ObjectBody", tags = "1, 2, 3")]
    pub(crate) body: Option<ObjectBody>,
    #[prost(enumeration = "Phase", tag = "4")]
    pub(crate) phase: i32,
    /// It was posted directly.
    #[prost(bool, tag = "5")]
    pub(crate) owner: bool,
    /// The mark of its kernel steps.
    #[prost(string, tag = "6")]
    pub(crate) mark: String,
    /// Data needed besides the mark to find an attached device.
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) baseline: Vec<u8>,
    /// Data needed besides the device file to detach a device.
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) device_detail: Vec<u8>,
    /// The number of the last start of a container.
    #[prost(uint64, tag = "9")]
    pub(crate) run: u64,
    /// The call of that start has not ended.
    #[prost(bool, tag = "10")]
    pub(crate) is_starting: bool,
    /// The call that deletes the object, with the result that it has if the deletion succeeds.
    #[prost(message, optional, tag = "11")]
    pub(crate) deletion: Option<CallRecord>,
}

/// The object as a message of the contract. Nested objects are references.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum ObjectBody {
    #[prost(message, tag = "1")]
    Attachment(Attachment),
    #[prost(message, tag = "2")]
    Mount(Mount),
    #[prost(message, tag = "3")]
    Container(Container),
}

impl ObjectRecord {
    /// Returns the id of the object; 0 without a body.
    pub(crate) const fn id(&self) -> i64 {
        match &self.body {
            Some(ObjectBody::Attachment(attachment)) => attachment.id,
            Some(ObjectBody::Mount(mount)) => mount.id,
            Some(ObjectBody::Container(container)) => container.id,
            None => 0,
        }
    }
}

/// The phase of an object's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Phase {
    Unspecified = 0,
    /// Its kernel steps are about to begin, or have begun.
    Creating = 1,
    Ready = 2,
    /// The kernel does not have it any more.
    Vanished = 3,
    /// A call deletes it.
    Deleting = 4,
}

/// The result of a call.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CallRecord {
    /// Empty: the call had no id.
    #[prost(string, tag = "1")]
    pub(crate) call_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) result: Option<ImageResult>,
    /// When it ended, in seconds since 1970.
    #[prost(uint64, tag = "3")]
    pub(crate) ended: u64,
}
