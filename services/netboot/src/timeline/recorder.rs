//! The loop that merges events into boots and stores these.

use std::collections::BTreeSet;
use std::time::Duration;

use runtime::Clock;
use store::records::Error;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::merge::OpenBoot;
use super::open_boots::OpenBoots;
use super::records::{BootStore, group};
use super::step_reports::StepObserver;
use super::{Event, Timeline};
use crate::metrics::EventName;

/// Interval and size of the commits that store boots: 128 boots a second, in commits so small that they delay no DHCP reply.
/// The other boots of a rack that is powered on at once wait, and grow. A boot has at most 20 KB.
const STORE_INTERVAL: Duration = Duration::from_millis(250);
const BATCH_BOOTS: usize = 32;
/// Timeout of one commit.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between deletions of old boots.
const EVICTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Merges events into boots, and stores these.
#[derive(Debug)]
pub struct Recorder {
    timeline: Timeline,
    /// Events that were taken from the queue last; empty between two calls.
    events: Vec<Event>,
    store: BootStore,
    boots: OpenBoots,
    failed: bool,
    clock: Clock,
    /// Selects the steps that are reported to the workflow service.
    pub steps: Option<StepObserver>,
}

impl Recorder {
    /// Stores the events of `timeline` in `store`.
    pub fn new(timeline: Timeline, store: BootStore, clock: Clock) -> Self {
        let (events, boots) = Default::default();
        Self { timeline, events, store, boots, failed: false, clock, steps: None }
    }

    /// Runs until `stop`, and then stores the rest.
    pub async fn run(mut self, stop: CancellationToken) {
        let (mut tick, mut hourly) = (interval(STORE_INTERVAL), interval(EVICTION_INTERVAL));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let queue = self.timeline.queue.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = queue.enough.notified() => self.merge(),
                _ = tick.tick() => {
                    self.merge();
                    let _more = self.store_batch().await;
                }
                _ = hourly.tick() => self.evict().await,
            }
        }
        self.merge();
        while self.store_batch().await {}
    }

    /// Adds the waiting events to their boots.
    fn merge(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.timeline.queue.swap(&mut events);
        events.drain(..).for_each(|event| self.add(event));
        self.events = events;
    }

    fn add(&mut self, event: Event) {
        if let Some(steps) = &self.steps {
            steps.observe(&event);
        }
        let kind = EventName(event.step.kind);
        self.timeline.metrics.boot_events.get_or_create(&[("kind", kind)]).inc();
        self.timeline.metrics.dropped_boot_events.inc_by(self.boots.add(event));
    }

    /// Stores a batch of changed boots, or requeues it if the store fails. True if another batch may follow at once.
    async fn store_batch(&mut self) -> bool {
        let batch = self.boots.batch(BATCH_BOOTS);
        if batch.is_empty() {
            return false;
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
            return false;
        }
        self.failed = false;
        let new = |open: &OpenBoot| open.is_new.then(|| group(open.owner));
        let groups: BTreeSet<_> = batch.iter().filter_map(new).collect();
        self.boots.stored(batch);
        for group in groups {
            log_failure(self.store.trim(&group).await);
        }
        true
    }

    async fn evict(&mut self) {
        let now = self.clock.wall();
        self.boots.evict(now);
        log_failure(self.store.delete_old(now).await);
    }
}

/// Logs a failure to delete old boots. The next eviction deletes them.
fn log_failure(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::debug!(error = runtime::cause(&error), "old boots not deleted");
    }
}

#[cfg(test)]
mod tests;
