//! The loop that merges events and keeps the boots they make.

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

/// How often boots that have grown are kept, and how many at a time: 128 a second, in commits so small that nobody who asks for
/// an address meanwhile notices. Of a rack that is powered on at once the others wait, and grow. A boot has 20 KB at the most.
const TICK: Duration = Duration::from_millis(250);
const BATCH: usize = 32;
/// How long the store may take for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often old boots are deleted.
const FORGETTING: Duration = Duration::from_secs(60 * 60);

/// Merges events, and keeps the boots they make.
#[derive(Debug)]
pub struct Recorder {
    queue: Arc<Queue>,
    /// What was taken from the queue last; empty between two calls.
    events: Vec<Event>,
    kept: BootStore,
    metrics: Metrics,
    held: OpenBoots,
    failed: bool,
}

impl Recorder {
    /// Of what waits in `queue`, into `kept`.
    pub(crate) fn new(queue: Arc<Queue>, kept: BootStore, metrics: Metrics) -> Self {
        let (events, held) = Default::default();
        Self { queue, events, kept, metrics, held, failed: false }
    }

    /// Runs until `stop`, and keeps what there is then.
    pub async fn run(mut self, stop: CancellationToken) {
        let (mut tick, mut hourly) = (interval(TICK), interval(FORGETTING));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let queue = self.queue.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = queue.enough() => self.merge(),
                _ = tick.tick() => {
                    self.merge();
                    self.keep().await;
                }
                _ = hourly.tick() => self.forget().await,
            }
        }
        self.merge();
        while self.keep().await == Pace::More {}
    }

    /// Takes what waits into the boots it belongs to.
    fn merge(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.queue.swap(&mut events);
        events.drain(..).for_each(|event| self.take(event));
        self.events = events;
    }

    fn take(&mut self, event: Event) {
        self.metrics.event(event.what.kind());
        self.metrics.events_dropped(self.held.take(event));
    }

    /// Keeps a batch of what has grown; with the store away, it stays and is tried again.
    async fn keep(&mut self) -> Pace {
        let batch = self.held.batch(BATCH);
        if batch.is_empty() {
            return Pace::Rest;
        }
        let failure = match timeout(PATIENCE, self.kept.keep(&batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the store does not answer".into()),
        };
        if let Some(reason) = failure {
            if !self.failed {
                tracing::warn!(reason, "boots are not kept; trying again");
            }
            self.failed = true;
            self.held.requeue(batch);
            return Pace::Rest;
        }
        self.failed = false;
        let fresh = |waiting: &PendingBoot| waiting.fresh.then(|| group(waiting.growing.owner));
        let groups: BTreeSet<_> = batch.iter().filter_map(fresh).collect();
        self.held.kept(batch);
        for group in groups {
            said(self.kept.trim(&group).await);
        }
        Pace::More
    }

    async fn forget(&mut self) {
        let now = SystemTime::now();
        self.held.forget(now);
        said(self.kept.forget(now).await);
    }
}

/// Whether there may be more to keep at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    More,
    Rest,
}

/// Old boots that stay do no harm: they go the next time.
fn said(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::debug!(error = &error as &dyn std::error::Error, "old boots stay");
    }
}

#[cfg(test)]
mod tests;
