//! The loop that merges events into boots and stores these.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::records::Error;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::Event;
use super::open_boots::{OpenBoots, PendingBoot};
use super::queue::Queue;
use super::records::{BootStore, group};
use crate::metrics::Metrics;

/// Interval and size of the commits that store boots: 128 boots a second, in commits so small that they delay no DHCP reply.
/// The other boots of a rack that is powered on at once wait, and grow. A boot has at most 20 KB.
const STORE_INTERVAL: Duration = Duration::from_millis(250);
const BATCH_BOOTS: usize = 32;
/// Timeout of one commit.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval in which old boots are deleted.
const EVICTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Merges events into boots, and stores these.
#[derive(Debug)]
pub struct Recorder {
    queue: Arc<Queue>,
    /// Events that were taken from the queue last; empty between two calls.
    events: Vec<Event>,
    store: BootStore,
    metrics: Metrics,
    boots: OpenBoots,
    failed: bool,
}

impl Recorder {
    /// Stores the events of `queue` in `store`.
    pub(crate) fn new(queue: Arc<Queue>, store: BootStore, metrics: Metrics) -> Self {
        let (events, boots) = Default::default();
        Self { queue, events, store, metrics, boots, failed: false }
    }

    /// Runs until `stop`, and then stores the rest.
    pub async fn run(mut self, stop: CancellationToken) {
        let (mut tick, mut hourly) = (interval(STORE_INTERVAL), interval(EVICTION_INTERVAL));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let queue = self.queue.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = queue.enough() => self.merge(),
                _ = tick.tick() => {
                    self.merge();
                    self.store_batch().await;
                }
                _ = hourly.tick() => self.evict().await,
            }
        }
        self.merge();
        while self.store_batch().await == Remaining::Some {}
    }

    /// Adds the waiting events to their boots.
    fn merge(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.queue.swap(&mut events);
        events.drain(..).for_each(|event| self.add(event));
        self.events = events;
    }

    fn add(&mut self, event: Event) {
        self.metrics.event(event.step.kind());
        self.metrics.events_dropped(self.boots.add(event));
    }

    /// Stores a batch of boots that have grown. If the store fails, the batch is tried again.
    async fn store_batch(&mut self) -> Remaining {
        let batch = self.boots.batch(BATCH_BOOTS);
        if batch.is_empty() {
            return Remaining::None;
        }
        let failure = match timeout(COMMIT_TIMEOUT, self.store.put(&batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the store did not answer in time".into()),
        };
        if let Some(reason) = failure {
            if !self.failed {
                tracing::warn!(reason, "boots not stored, retrying");
            }
            self.failed = true;
            self.boots.requeue(batch);
            return Remaining::None;
        }
        self.failed = false;
        let new = |pending: &PendingBoot| pending.is_new.then(|| group(pending.boot.owner));
        let groups: BTreeSet<_> = batch.iter().filter_map(new).collect();
        self.boots.stored(batch);
        for group in groups {
            log_failure(self.store.trim(&group).await);
        }
        Remaining::Some
    }

    async fn evict(&mut self) {
        let now = SystemTime::now();
        self.boots.evict(now);
        log_failure(self.store.delete_old(now).await);
    }
}

/// Tells if another batch may follow at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remaining {
    Some,
    None,
}

/// Logs that old boots were not deleted. They are deleted the next time.
fn log_failure(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::debug!(error = &error as &dyn std::error::Error, "old boots not deleted");
    }
}

#[cfg(test)]
mod tests;
