//! A call for a node: by a stream of this process, else by another process that has one.
//!
//! ```text
//! stream here? ─▶ sent ─┬─▶ result
//!      │                └─ stream ended ─▶ again, by the next stream, with the same id
//!      └ none ─▶ another process has one? ─▶ passed on ─┬─▶ result
//!                     │                                  └─ not taken, lost ─▶ again
//!                     └ none ─▶ not sent before: NODE_NOT_CONNECTED; else wait for the node to connect again
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use runtime::Clock;
use sha2::{Digest as _, Sha256};
use store::events::{EventLog, current_origin};
use store::mirror::Mirror;
use store::serving;
use tinwright::event::v1::{Event, EventKind};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Outcome;
use tinwright::node::v1::{ImageCall, ImageError, ImageResult, Node, NodeCallResult};
use tinwright::status::Violations;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::delivery::{Attempt, deliver};
use crate::error::Error;
use crate::forward::{Forwarded, Forwarder, Outgoing};
use crate::mailbox::CallKind;
use crate::nodes::Nodes;
use crate::streams::Streams;

/// The longest time until a result.
pub const TIMEOUT: Duration = Duration::from_secs(28);
/// The longest time until a process has taken a call, so that a call that none takes is refused within a second.
const TAKE_TIMEOUT: Duration = Duration::from_millis(900);
/// The time after which the records are read again while no stream leads to a node.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The open calls of this process.
const MAX_OPEN: usize = 1024;

/// Makes calls for nodes.
#[derive(Clone, Debug)]
pub struct Calls {
    nodes: Nodes,
    streams: Streams,
    forwarder: Forwarder,
    log: EventLog,
    own: String,
    open: Arc<Semaphore>,
}

/// The id of a call.
#[derive(Clone, Debug)]
pub struct CallId {
    /// The id that the caller chose; empty if it chose none.
    chosen: String,
    /// The id by which nodes know the call.
    scoped: String,
}

impl CallId {
    /// Returns the id of a call of `caller`, who chose the id `chosen`; a random one if that is
    /// empty. Ids of two callers are two calls.
    pub fn new(caller: &str, chosen: String) -> Result<Self, Violations> {
        serving::check_request_id(&chosen)
            .map_err(|_| Violations::single("call_id", "has more than 128 bytes"))?;
        if chosen.is_empty() {
            return Ok(Self { scoped: Uuid::new_v4().simple().to_string(), chosen });
        }
        let mut digest = Sha256::new();
        // With its length: else two pairs could look like one.
        digest.update((caller.len() as u64).to_be_bytes());
        digest.update(caller);
        digest.update(&chosen);
        let scoped = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { chosen, scoped })
    }
}

/// A call in progress.
#[derive(Debug)]
struct Pending<'a> {
    node: &'a Node,
    call_id: &'a str,
    call: &'a ImageCall,
    begin: Instant,
    /// The time until which some process has to have taken it.
    take_until: SystemTime,
}

impl Calls {
    /// Makes calls by `streams` of this process, `own`, and passes others on by `mirror`'s records.
    pub fn new(nodes: Nodes, streams: Streams, mirror: Mirror<CallKind>, own: String) -> Self {
        let forwarder = Forwarder::new(mirror, streams.clone(), nodes.clock.clone());
        let log = EventLog::new(nodes.records.store().clone(), "node");
        Self { nodes, streams, forwarder, log, own, open: Arc::new(Semaphore::new(MAX_OPEN)) }
    }

    /// Makes the `call` named `id` on `node`, and returns its result. An event says what it
    /// changed.
    pub async fn call(
        &self,
        node: &Node,
        id: &CallId,
        call: &ImageCall,
    ) -> Result<ImageResult, Error> {
        let permit = self.open.try_acquire().map_err(|_| Error::TooManyCalls)?;
        let clock = &self.nodes.clock;
        let (begin, now) = (clock.monotonic(), clock.wall());
        let take_until = now + TAKE_TIMEOUT;
        let pending = Pending { node, call_id: &id.scoped, call, begin, take_until };
        let answered = tokio::select! {
            answered = self.deliver(&pending) => answered?,
            () = clock.sleep_until(now + TIMEOUT) => return Err(Error::TimedOut(node.id.clone())),
        };
        drop(permit);
        if answered.id_reused {
            // The caller knows its own id only.
            return Err(Error::CallIdReused(id.chosen.clone()));
        }
        let result = answered.result.unwrap_or_else(no_result);
        self.record_change(node, call, &result).await;
        Ok(result)
    }

    /// Records that `call` changed something on `node`, if it did.
    async fn record_change(&self, node: &Node, call: &ImageCall, result: &ImageResult) {
        let has_failed = matches!(result.result, Some(Outcome::Error(_)) | None);
        let Some(text) = change_text(call).filter(|_| !has_failed) else { return };
        let mut event = Event {
            kind: EventKind::Call.into(),
            noun: "node".into(),
            object_id: node.id.clone(),
            text,
            ..Event::default()
        };
        if let Some(origin) = current_origin() {
            origin.write(&mut event);
        }
        if let Err(error) = self.log.append(event).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, node.id = node.id, "the event of a call was not recorded");
        }
    }

    async fn deliver(&self, pending: &Pending<'_>) -> Result<NodeCallResult, Error> {
        let Pending { node, call_id, call, .. } = pending;
        let (mut was_sent, mut refused) = (false, BTreeSet::new());
        loop {
            let timeout = self.remaining(pending);
            match deliver(&self.streams, &node.id, call_id, call, timeout).await {
                Attempt::Answered(result) => return Ok(*result),
                Attempt::Ended => {
                    was_sent = true;
                    continue;
                }
                Attempt::NoStream => {}
            }
            let Some(server) = self.other_server(&node.id, &refused).await? else {
                if !was_sent {
                    return Err(Error::NotConnected(node.id.clone()));
                }
                refused.clear();
                self.until_changed(&node.id).await;
                continue;
            };
            match self.forward(pending, &server, was_sent).await? {
                Forwarded::Answered(result) => return Ok(*result),
                Forwarded::NotTaken => drop(refused.insert(server)),
                Forwarded::Lost => was_sent = true,
            }
        }
    }

    async fn forward(
        &self,
        pending: &Pending<'_>,
        server: &str,
        was_sent: bool,
    ) -> Result<Forwarded, Error> {
        let now = self.clock().wall();
        let call = Outgoing {
            node_id: &pending.node.id,
            call_id: pending.call_id,
            call: pending.call,
            timeout: self.remaining(pending),
            take_until: if was_sent { now + TAKE_TIMEOUT } else { pending.take_until },
        };
        self.forwarder.forward(call, server).await
    }

    /// Returns another process that has a stream of `node`, as far as it is recorded, and is not in `refused`; the latest first.
    async fn other_server(
        &self,
        node: &str,
        refused: &BTreeSet<String>,
    ) -> Result<Option<String>, Error> {
        let node = self.nodes.records.require(node).await?;
        let others = node.connections.into_iter().rev().map(|connection| connection.server);
        let mut others = others.filter(|server| *server != self.own && !refused.contains(server));
        Ok(others.next())
    }

    /// Resolves when a stream was added here, or after a while.
    async fn until_changed(&self, node: &str) {
        let mut added = self.streams.added();
        added.mark_unchanged();
        if self.streams.has(node) {
            return;
        }
        let clock = self.clock();
        tokio::select! {
            _ = added.changed() => {}
            () = clock.sleep_until(clock.wall() + LOOK_INTERVAL) => {}
        }
    }

    fn remaining(&self, pending: &Pending<'_>) -> Duration {
        TIMEOUT.saturating_sub(self.clock().monotonic() - pending.begin)
    }

    fn clock(&self) -> &Clock {
        &self.nodes.clock
    }
}

fn no_result() -> ImageResult {
    let message = "internal server error: the node sent no result".to_owned();
    let error = ImageError { reason: Reason::Internal.into(), message };
    ImageResult { result: Some(Outcome::Error(error)) }
}

/// Returns what `call` does, in one line for people, if it changes something.
fn change_text(call: &ImageCall) -> Option<String> {
    use tinwright::node::v1::image_call::Call;
    let of = |id: Option<i64>, name: &Option<String>| match (id, name) {
        (Some(id), _) => id.to_string(),
        (None, name) => name.clone().unwrap_or_default(),
    };
    Some(match call.call.as_ref()? {
        Call::ListAttachments(_) | Call::ListMounts(_) | Call::ListContainers(_) => return None,
        Call::CreateAttachment(_) => "an attachment was created by a call".into(),
        Call::CreateMount(_) => "a mount was created by a call".into(),
        Call::CreateContainer(it) => format!("container {:?} was created by a call", it.name),
        Call::DeleteAttachment(it) => format!("attachment {} was deleted by a call", it.id),
        Call::DeleteMount(it) => format!("mount {} was deleted by a call", it.id),
        Call::SetContainerState(it) => {
            let state = it.state().as_str_name().trim_start_matches("STATE_").to_lowercase();
            format!("container {} was set to {state} by a call", of(it.id, &it.name))
        }
        Call::DeleteContainer(it) => {
            format!("container {} was deleted by a call", of(it.id, &it.name))
        }
    })
}
