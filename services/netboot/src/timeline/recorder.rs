//! The loop that merges events and keeps the boots they make.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use store::records::Error;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::Event;
use super::merge::Boots;
use super::records::Kept;
use crate::metrics::Metrics;

/// How often boots that have grown are kept.
const TICK: Duration = Duration::from_secs(1);
/// How many are kept in one commit: a boot has 20 KB at the most.
const BATCH: usize = 40;
/// How long the store may take for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often old boots are deleted.
const FORGETTING: Duration = Duration::from_secs(60 * 60);

/// Merges events, and keeps the boots they make.
#[derive(Debug)]
pub struct Recorder {
    events: mpsc::Receiver<Event>,
    kept: Kept,
    metrics: Metrics,
    boots: Boots,
    failed: bool,
}

impl Recorder {
    /// Of `events`, into `kept`.
    pub fn new(events: mpsc::Receiver<Event>, kept: Kept, metrics: Metrics) -> Self {
        Self { events, kept, metrics, boots: Boots::default(), failed: false }
    }

    /// Runs until `stop`, and keeps what there is then.
    pub async fn run(mut self, stop: CancellationToken) {
        let (mut tick, mut hourly) = (interval(TICK), interval(FORGETTING));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = self.events.recv() => self.take(event),
                _ = tick.tick() => self.keep().await,
                _ = hourly.tick() => self.forget().await,
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
        self.keep().await;
    }

    fn take(&mut self, event: Event) {
        self.metrics.event(event.what.kind());
        self.metrics.events_dropped(self.boots.take(event));
    }

    /// Keeps what has grown; with the store away, it stays and is tried again.
    async fn keep(&mut self) {
        loop {
            let mut grown = self.boots.dirty(BATCH);
            if grown.is_empty() {
                break;
            }
            let done = timeout(PATIENCE, self.kept.keep(&grown)).await;
            let failure = match done {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the store does not answer".into()),
            };
            if let Some(reason) = failure {
                if !self.failed {
                    tracing::warn!(reason, "boots are not kept; trying again");
                }
                self.failed = true;
                return;
            }
            self.failed = false;
            let mut fresh = BTreeSet::new();
            for boot in &mut grown {
                if boot.fresh {
                    fresh.insert(boot.owner.clone());
                }
                (boot.dirty, boot.fresh) = (false, false);
            }
            for owner in fresh {
                said(self.kept.trim(&owner).await);
            }
        }
        self.boots.forget(SystemTime::now());
    }

    async fn forget(&self) {
        said(self.kept.forget(SystemTime::now()).await);
    }
}

/// Old boots that stay do no harm: they go the next time.
fn said(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::debug!(error = &error as &dyn std::error::Error, "old boots stay");
    }
}

#[cfg(test)]
mod tests;
