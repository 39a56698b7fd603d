//! Calls that one process passes to another one, which has a stream of the node.
//!
//! ```text
//! node/call/<id>      the call, the process that shall make it, and the result; its secrets are encrypted
//!
//! WAITING ─ taken ─▶ TAKEN ─┬─▶ ANSWERED   with the result
//!    │                      └─▶ LOST       the stream ended, or the time: the node may have got the call
//!    └─▶ REFUSED, or deleted by the sender: the node did not get the call
//! ```
//!
//! Processes do not know each other's addresses, and agents keep a stream to every server, so this is rare. A record that nobody wants any more
//! is deleted by whoever comes by.

use std::time::{Duration, SystemTime};

use prost::Message as _;
use store::ScopedStore;
use store::records::{self, Change, Records};
use tinwright::node::v1::{ImageCall, NodeCallResult};
use tinwright::secret::{Sealable, SecretPart};
use uuid::Uuid;

use crate::error::Error;

/// The longest result that is passed on.
const MAX_RESULT_BYTES: usize = 384 * 1024;
/// The time after the end of a call at which its record is deleted by others.
const REMOVAL_DELAY: Duration = Duration::from_secs(60);

/// The state of a call that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CallState {
    /// Nobody took it.
    Waiting = 0,
    /// The process has a stream, and makes the call.
    Taken = 1,
    /// The process has no stream, or too many calls.
    Refused = 2,
    /// The result is there.
    Answered = 3,
    /// The stream ended before the result came.
    Lost = 4,
    /// The result is too long for a record.
    TooLong = 5,
}

/// A call that is passed on.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct ForwardedCall {
    /// UUID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// The node.
    #[prost(string, tag = "3")]
    pub node_id: String,
    /// The id by which the node knows the call.
    #[prost(string, tag = "4")]
    pub call_id: String,
    /// The process that shall make it.
    #[prost(string, tag = "5")]
    pub server: String,
    /// The time that is left for it when it is stored, in milliseconds.
    #[prost(uint64, tag = "6")]
    pub timeout_ms: u64,
    /// The end of that time, in milliseconds since 1970, for those who delete old records.
    #[prost(int64, tag = "7")]
    pub end_ms: i64,
    /// Its progress.
    #[prost(enumeration = "CallState", tag = "8")]
    pub state: i32,
    /// The call.
    #[prost(message, optional, tag = "9")]
    pub call: Option<ImageCall>,
    /// The result.
    #[prost(message, optional, tag = "10")]
    pub result: Option<NodeCallResult>,
}

impl std::fmt::Debug for ForwardedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, node_id, server, .. } = self;
        let mut text = f.debug_struct("ForwardedCall");
        text.field("id", id).field("node_id", node_id).field("server", server);
        text.field("state", &self.state()).finish_non_exhaustive()
    }
}

/// The whole call and the whole result are secret: they are short-lived, and nobody searches for them.
impl Sealable for ForwardedCall {
    const HAS_SECRETS: bool = true;

    fn take_secrets(&mut self) -> SecretPart {
        let (call, result) = (self.call.take(), self.result.take());
        match (&call, &result) {
            (None, None) => SecretPart::default(),
            _ => SecretPart::of(&Self { call, result, ..Self::default() }),
        }
    }

    fn put_secrets(&mut self, part: &SecretPart) -> Result<(), prost::DecodeError> {
        part.put_own(self)
    }
}

tinwright::stored_record!(ForwardedCall, "forwarded call", id);

store::kind!(
    /// The kind of these records.
    pub CallKind: ForwardedCall, Uuid, "call"
);

/// The calls that are passed on.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The underlying records.
    pub records: Records<CallKind>,
}

impl Mailbox {
    /// The calls in `store`, whose keys are the node service's.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// Stores a new call.
    pub async fn post(&self, call: &ForwardedCall) -> Result<ForwardedCall, Error> {
        Ok(self.records.create(call, Change::default(), None).await?)
    }

    /// Removes a call that nobody has taken. False if somebody has.
    pub async fn take_back(&self, posted: &ForwardedCall) -> Result<bool, Error> {
        match self.records.commit(self.records.to_delete(posted)).await {
            Ok(_) => Ok(true),
            Err(records::Error::Changed { .. }) => {
                Ok(self.records.get(&posted.id).await?.is_none())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a call whose outcome was read.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        self.records.take_back(id, None, |_| false).await?;
        Ok(())
    }

    /// Changes the state of `call`. None if it was removed or changed meanwhile.
    pub async fn advance(
        &self,
        call: &ForwardedCall,
        state: CallState,
        result: Option<NodeCallResult>,
    ) -> Result<Option<ForwardedCall>, Error> {
        let mut new = ForwardedCall { result, ..call.clone() };
        new.set_state(state);
        if new.result.as_ref().is_some_and(|it| it.encoded_len() > MAX_RESULT_BYTES) {
            new.result = None;
            new.set_state(CallState::TooLong);
        }
        if state != CallState::Taken {
            new.call = None;
        }
        match self.records.replace(call, new).await {
            Ok(stored) => Ok(Some(stored)),
            Err(records::Error::Changed { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes calls whose time ended a while before `now`.
    pub async fn delete_old(&self, now: SystemTime) -> Result<(), Error> {
        let limit = now.checked_sub(REMOVAL_DELAY).map_or(0, millis);
        let listing = self.records.list("", 500, |call| call.end_ms < limit).await?;
        for call in listing.records {
            self.remove(&call.id).await?;
        }
        Ok(())
    }
}

/// Returns `time` in milliseconds since 1970.
pub fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::memory::MemoryStore;
    use tinwright::node::v1::image_call::{Call, DeleteObject};

    use super::*;

    fn mailbox() -> Mailbox {
        Mailbox::new(ScopedStore::new(Arc::new(MemoryStore::default()), "node"))
    }

    fn call(end_ms: i64) -> ForwardedCall {
        let call = Call::DeleteMount(DeleteObject { id: 1, force: false });
        ForwardedCall {
            id: Uuid::new_v4().to_string(),
            call: Some(ImageCall { call: Some(call) }),
            end_ms,
            ..ForwardedCall::default()
        }
    }

    #[tokio::test]
    async fn a_call_is_taken_or_taken_back_and_never_both() {
        let mailbox = mailbox();
        let posted = mailbox.post(&call(0)).await.unwrap();
        let taken = mailbox.advance(&posted, CallState::Taken, None).await.unwrap().unwrap();
        assert!(taken.call.is_some());
        assert!(!mailbox.take_back(&posted).await.unwrap());
        let posted = mailbox.post(&call(0)).await.unwrap();
        assert!(mailbox.take_back(&posted).await.unwrap());
        assert!(mailbox.advance(&posted, CallState::Taken, None).await.unwrap().is_none());
        assert!(mailbox.take_back(&posted).await.unwrap(), "it is not there");
    }

    #[tokio::test]
    async fn a_result_that_is_too_long_is_left_out_and_old_calls_are_deleted() {
        let mailbox = mailbox();
        let posted = mailbox.post(&call(1000)).await.unwrap();
        let long = NodeCallResult { call_id: "x".repeat(MAX_RESULT_BYTES), ..Default::default() };
        let answered = mailbox.advance(&posted, CallState::Answered, Some(long)).await.unwrap();
        let answered = answered.unwrap();
        assert_eq!((answered.state(), answered.result.is_none()), (CallState::TooLong, true));
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(61);
        mailbox.delete_old(later).await.unwrap();
        assert!(mailbox.records.get(&posted.id).await.unwrap().is_some());
        mailbox.delete_old(later + Duration::from_secs(1)).await.unwrap();
        assert!(mailbox.records.get(&posted.id).await.unwrap().is_none());
    }

    #[test]
    fn the_call_and_the_result_are_sealed() {
        let mut call = call(7);
        let whole = call.clone();
        let part = call.take_secrets();
        assert!(call.call.is_none() && !part.is_empty());
        call.put_secrets(&part).unwrap();
        assert_eq!(call, whole);
    }
}
