//! Events: what callers changed, how records moved through their lifecycles, alarms, and refused calls.
//!
//! ```text
//! <service>/event/<id>      the event, without its id and its owner; the id is time-ordered
//! ```
//!
//! The event of a change is written in the commit of the change (`records::Change`), and no index entry leads
//! to it. Services do not record events themselves: `records` compares the record with the one before, and takes the
//! caller from the [`Origin`] of the running call. The other way, a caller handed down to each function that commits, is
//! forgotten in one of them, and then nobody knows who made that change.

mod feed;
mod log;
mod origin;

use tinwright::EventId;
use tinwright::event::v1::Event;

pub use self::feed::{EventFeed, EventWatcher, MissedEvents};
pub use self::log::{EventLog, RETENTION};
pub(crate) use self::origin::record_changed;
pub use self::origin::{ChangedObjects, Origin, current_origin, with_origin};
use crate::Write;

/// Writes of a commit that are reserved for events.
pub const RESERVED_WRITES: usize = 10;
/// Bytes of a commit that are reserved for events.
pub const RESERVED_BYTES: usize = 8 * 1024;
/// Bytes of the longest text of an event.
const MAX_TEXT_BYTES: usize = 400;
/// First part of an event's key.
const KIND: &str = "event";

/// Returns `text` as one line: control characters become spaces, and it is cut to at most [`MAX_TEXT_BYTES`].
pub(crate) fn one_line(text: &str) -> String {
    let text = text.trim().replace(char::is_control, " ");
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

/// Returns the write that stores `event` under a new id, with the present time.
pub(crate) fn to_write(mut event: Event) -> Write {
    use prost::Message as _;
    let key = format!("{KIND}/{}", EventId::new());
    (event.id, event.owner) = (String::new(), String::new());
    event.time = Some(crate::wall_time().into());
    Write::Put(key, event.encode_to_vec().into())
}

#[cfg(test)]
mod tests;
