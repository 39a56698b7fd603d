//! One call by a stream of another process: posted, taken there, and answered.

use std::time::{Duration, SystemTime};

use runtime::Clock;
use store::mirror::Mirror;
use tinwright::node::v1::{ImageCall, NodeCallResult};
use tinwright::watch::WatchEvent;
use uuid::Uuid;

use crate::error::Error;
use crate::mailbox::{CallKind, CallState, ForwardedCall, Mailbox, millis};
use crate::streams::Streams;

/// The outcome of an attempt.
#[derive(Debug)]
pub enum Forwarded {
    /// The node answered.
    Answered(Box<NodeCallResult>),
    /// The process did not make the call.
    NotTaken,
    /// The node may have got the call, and its result was lost.
    Lost,
}

/// A call to be passed on.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The node.
    pub node_id: &'a str,
    /// The id by which the node knows the call.
    pub call_id: &'a str,
    /// The call.
    pub call: &'a ImageCall,
    /// The time that is left for it.
    pub timeout: Duration,
    /// The time until which a process has to take it.
    pub take_until: SystemTime,
}

/// Passes calls on.
#[derive(Clone, Debug)]
pub struct Forwarder {
    mailbox: Mailbox,
    mirror: Mirror<CallKind>,
    streams: Streams,
    clock: Clock,
}

impl Forwarder {
    /// Passes calls on by `mirror`'s records. Streams of this process are in `streams`.
    pub fn new(mirror: Mirror<CallKind>, streams: Streams, clock: Clock) -> Self {
        let mailbox = Mailbox::new(mirror.records().store().clone());
        Self { mailbox, mirror, streams, clock }
    }

    /// Passes `call` on to the process `server`. It ends early if the node opens a stream to this process.
    pub async fn forward(&self, call: Outgoing<'_>, server: &str) -> Result<Forwarded, Error> {
        let Outgoing { node_id, call_id, timeout, take_until, .. } = call;
        let mut added = self.streams.added();
        added.mark_unchanged();
        let new = ForwardedCall {
            id: Uuid::new_v4().to_string(),
            node_id: node_id.to_owned(),
            call_id: call_id.to_owned(),
            server: server.to_owned(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            end_ms: millis(self.clock.wall() + timeout),
            call: Some(call.call.clone()),
            ..ForwardedCall::default()
        };
        let posted = self.mailbox.post(&new).await?;
        let mut watcher = self.mirror.watch_one(&posted.id);
        let mut not_taken = Box::pin(self.clock.sleep_until(take_until));
        let mut is_taken = false;
        loop {
            let event = tokio::select! {
                event = watcher.next() => event,
                () = &mut not_taken, if !is_taken => match self.mailbox.take_back(&posted).await? {
                    true => return Ok(Forwarded::NotTaken),
                    false => {
                        is_taken = true;
                        continue;
                    }
                },
                _ = added.changed() => match self.streams.has(node_id) {
                    true => return self.give_up(&posted).await,
                    false => continue,
                },
            };
            match event {
                Ok(WatchEvent::Put(record)) if record.state() == CallState::Waiting => {}
                Ok(WatchEvent::Put(record)) if record.state() == CallState::Taken => {
                    is_taken = true
                }
                Ok(WatchEvent::Put(record)) => return self.outcome(record).await,
                Ok(WatchEvent::Synced) => {}
                Ok(WatchEvent::Deleted(_)) => return Ok(Forwarded::Lost),
                Err(_) => watcher = self.mirror.watch_one(&posted.id),
            }
        }
    }

    /// Takes the call back if it was not taken, for a stream of this process.
    async fn give_up(&self, posted: &ForwardedCall) -> Result<Forwarded, Error> {
        if self.mailbox.take_back(posted).await? {
            return Ok(Forwarded::NotTaken);
        }
        self.mailbox.remove(&posted.id).await?;
        Ok(Forwarded::Lost)
    }

    async fn outcome(&self, record: ForwardedCall) -> Result<Forwarded, Error> {
        self.mailbox.remove(&record.id).await?;
        match (record.state(), record.result) {
            (CallState::Answered, Some(result)) => Ok(Forwarded::Answered(Box::new(result))),
            (CallState::Refused, _) => Ok(Forwarded::NotTaken),
            (CallState::TooLong, _) => Err(Error::ResultTooLong),
            (CallState::Answered | CallState::Lost | CallState::Waiting | CallState::Taken, _) => {
                Ok(Forwarded::Lost)
            }
        }
    }
}
