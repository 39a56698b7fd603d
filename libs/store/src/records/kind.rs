//! A kind of records, and the values under which they are found.

use std::fmt;
use std::str::FromStr;

use prost::Message;
use tinwright::Stored;
use tinwright::object::Quota;
use tinwright::secret::Sealable;

/// A kind of record: a protobuf message, its keys and its indexes. The functions return what the message says
/// ([`Stored`]), unless a kind overrides them.
pub trait Kind: fmt::Debug + 'static {
    /// The message.
    type Record: Stored + Message + Sealable + Default + Clone + PartialEq + 'static;
    /// The form of its ids. A page token of another form is refused.
    type Id: FromStr<Err: fmt::Display> + fmt::Display;
    /// The name in messages to people.
    const NOUN: &'static str = <Self::Record as Stored>::SINGULAR;
    /// First part of its key.
    const KIND: &'static str;
    /// Every index that [`indexes`](Self::indexes) can name.
    const INDEXES: &'static [&'static str] = &[];
    /// The maximum of each tenant. None: there is no maximum.
    const QUOTA: Option<Quota> = <Self::Record as Stored>::QUOTA;
    /// The records that a mirror holds.
    const MIRRORED: Mirrored = Mirrored::All;

    /// Returns the name of a record in events; empty if it has none.
    fn name(record: &Self::Record) -> &str {
        record.given_name()
    }

    /// Returns the index entries of a record.
    fn indexes(_: &Self::Record) -> Vec<Index> {
        Vec::new()
    }

    /// True if changes that callers ask for, and changes of the state, are recorded as events.
    const EVENTS: bool = <Self::Record as Stored>::HAS_EVENTS;

    /// Returns the state of a record in its lifecycle, as events name it; empty if records of this kind have none.
    fn state(record: &Self::Record) -> String {
        record.state_word()
    }

    /// Returns the reason of the state.
    fn state_reason(record: &Self::Record) -> &str {
        record.reason_of_state()
    }

    /// Returns the reason of the state as events give it. Callers of the record's tenant read events.
    fn event_reason(record: &Self::Record) -> &str {
        Self::state_reason(record)
    }

    /// True if a record's lifecycle is over, so that its later deletion is not an event unless a caller asked for it.
    fn has_ended(record: &Self::Record) -> bool {
        record.is_final()
    }

    /// True if a record is marked as too long in its state. Becoming so is an alarm.
    fn is_overdue(record: &Self::Record) -> bool {
        record.is_marked_overdue()
    }

    /// Returns a problem of the record that a person should look at; empty for none. A new one is an alarm.
    fn warning(_: &Self::Record) -> &str {
        ""
    }

    /// Returns the tenant that a record belongs to; empty for the site.
    fn tenant(record: &Self::Record) -> &str {
        record.owning_tenant()
    }

    /// Returns what a machine's report changed, for people; empty for nothing.
    fn reported_change(_old: &Self::Record, _new: &Self::Record) -> String {
        String::new()
    }

    /// True if a change that a caller asked for is an event. False for one that only the service itself needs, such as a lock.
    fn is_event(_old: &Self::Record, _new: &Self::Record) -> bool {
        true
    }

    /// Returns the names of the fields that a caller changed.
    fn changed_fields(old: &Self::Record, new: &Self::Record) -> Vec<String> {
        Self::Record::fields_changed(old, new)
    }
}

/// Declares a kind that overrides nothing: its name, its message, the type of its ids, and the first part of its keys.
#[macro_export]
macro_rules! kind {
    ($(#[$doc:meta])* $visibility:vis $kind:ident: $record:ty, $id:ty, $key:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        $visibility enum $kind {}

        impl $crate::records::Kind for $kind {
            type Record = $record;
            type Id = $id;
            const KIND: &'static str = $key;
        }
    };
}

/// The records of a kind that a mirror holds in memory. Its watchers get the changes of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrored {
    /// All.
    All,
    /// Those that are in this unique index, whose value is the record's id.
    Indexed(&'static str),
    /// None.
    Nothing,
}

impl Mirrored {
    /// True if a mirror holds the record with the index entries `entries`.
    pub(crate) fn holds(self, entries: &[Index]) -> bool {
        match self {
            Self::All => true,
            Self::Indexed(name) => entries.iter().any(|index| index.name == name),
            Self::Nothing => false,
        }
    }
}

/// A value under which a record is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Index {
    name: &'static str,
    value: String,
    /// True if at most one record has the value.
    pub(super) unique: bool,
}

impl Index {
    /// At most one record has this value.
    pub fn unique(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), unique: true }
    }

    /// Any number of records may have it.
    pub fn shared(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), unique: false }
    }

    /// Returns the key of the index entry of the record `id`.
    pub(super) fn key(&self, id: &str) -> String {
        let Self { name, value, unique } = self;
        if *unique { format!("{name}/{value}") } else { format!("{name}/{value}/{id}") }
    }
}
