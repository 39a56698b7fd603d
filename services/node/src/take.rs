//! Calls that other processes pass on to this one.

use std::sync::Arc;
use std::time::Duration;

use runtime::Clock;
use store::mirror::Mirror;
use tinwright::watch::WatchEvent;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::delivery::{Attempt, deliver};
use crate::error::Error;
use crate::mailbox::{CallKind, CallState, ForwardedCall, Mailbox};
use crate::streams::Streams;

/// The calls that this process makes for others at a time.
const MAX_OPEN: usize = 256;

/// Makes the calls that other processes pass on.
#[derive(Clone, Debug)]
pub struct Taker {
    mailbox: Mailbox,
    mirror: Mirror<CallKind>,
    streams: Streams,
    clock: Clock,
    own: String,
    open: Arc<Semaphore>,
}

impl Taker {
    /// Makes the calls among `mirror`'s records for the process `own` by its `streams`.
    pub fn new(mirror: Mirror<CallKind>, streams: Streams, clock: Clock, own: String) -> Self {
        let mailbox = Mailbox::new(mirror.records().store().clone());
        Self { mailbox, mirror, streams, clock, own, open: Arc::new(Semaphore::new(MAX_OPEN)) }
    }

    /// Makes calls until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (mut watcher, mut tasks) = (self.mirror.watch(), JoinSet::new());
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                Some(_) = tasks.join_next() => continue,
                event = watcher.next() => event,
            };
            match event {
                Ok(WatchEvent::Put(call))
                    if call.server == self.own && call.state() == CallState::Waiting =>
                {
                    tasks.spawn(self.clone().take_logged(call));
                }
                Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) => {}
                Err(_) => watcher = self.mirror.watch(),
            }
        }
    }

    async fn take_logged(self, call: ForwardedCall) {
        if let Err(error) = self.take(&call).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, node.id = call.node_id, "a call that was passed on failed");
        }
    }

    async fn take(&self, call: &ForwardedCall) -> Result<(), Error> {
        let permit = self.open.try_acquire();
        if permit.is_err() || !self.streams.has(&call.node_id) {
            return self.mailbox.advance(call, CallState::Refused, None).await.map(drop);
        }
        let Some(taken) = self.mailbox.advance(call, CallState::Taken, None).await? else {
            return Ok(());
        };
        let Some(message) = &call.call else { return Ok(()) };
        let timeout = Duration::from_millis(call.timeout_ms);
        let (node, id) = (&call.node_id, &call.call_id);
        let attempt = tokio::select! {
            attempt = deliver(&self.streams, node, id, message, timeout) => attempt,
            () = self.clock.sleep_until(self.clock.wall() + timeout) => Attempt::Ended,
        };
        let (state, result) = match attempt {
            Attempt::Answered(result) => (CallState::Answered, Some(*result)),
            Attempt::Ended => (CallState::Lost, None),
            Attempt::NoStream => (CallState::Refused, None),
        };
        self.mailbox.advance(&taken, state, result).await.map(drop)
    }
}
