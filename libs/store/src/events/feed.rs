//! New events of one service, for any number of watchers: one reader follows the store, and reads an event only if somebody
//! watches.

use std::time::Duration;

use tinwright::event::v1::{Event, EventFilter};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::EventLog;
use super::log::matches;
use crate::record_error::Error;
use crate::{Changes, Revision, Store as _};

/// Events that a watcher may be late by.
const MAX_QUEUED_EVENTS: usize = 1024;
/// The pause after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Interval at which expired events are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The events of one service, and a feed of its new ones.
#[derive(Clone, Debug)]
pub struct EventFeed {
    log: EventLog,
    new: broadcast::Sender<FeedItem>,
    following: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
enum FeedItem {
    New(Box<Event>),
    /// The feed was overtaken: events are missing here.
    Gap,
}

/// The watcher missed events: it has to begin again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watcher missed events: begin again")]
pub struct MissedEvents;

impl EventFeed {
    /// A feed of `log`; [`run`](Self::run) fills it.
    pub fn new(log: EventLog) -> Self {
        let new = broadcast::Sender::new(MAX_QUEUED_EVENTS);
        Self { log, new, following: watch::Sender::new(false) }
    }

    /// The stored events.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Returns a watcher of the events that are committed from now on and pass `filter`.
    pub async fn watch(&self, filter: EventFilter) -> EventWatcher {
        let new = self.new.subscribe();
        let mut following = self.following.subscribe();
        // The sender lives as long as `self`.
        let _following = following.wait_for(|following| *following).await;
        EventWatcher { new, filter }
    }

    /// Follows the store and deletes expired events, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let both = async { tokio::join!(self.follow(), self.expire()) };
        stop.run_until_cancelled(both).await;
        Ok(())
    }

    async fn follow(&self) {
        let mut after = Revision::UNKNOWN;
        loop {
            match self.step(after).await {
                Ok(revision) => after = revision,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        owner = self.log.owner(),
                        "reading new events failed; trying again"
                    );
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Sends the events committed since `after`. Returns the revision read up to.
    async fn step(&self, after: Revision) -> Result<Revision, Error> {
        match self.log.store().changed("event/", after).await? {
            Changes::Keys { keys, revision } => {
                let mut events = Vec::new();
                for key in keys.iter().filter(|_| self.new.receiver_count() > 0) {
                    // Expired ones are gone.
                    events.extend(self.log.get(key).await?);
                }
                // After all reads: a failed step is repeated.
                events.into_iter().for_each(|event| self.send(FeedItem::New(Box::new(event))));
                Ok(revision)
            }
            Changes::Lost { revision } => {
                if after != Revision::UNKNOWN {
                    self.send(FeedItem::Gap);
                }
                self.following.send_replace(true);
                Ok(revision)
            }
        }
    }

    fn send(&self, item: FeedItem) {
        // Without a watcher nobody needs it.
        let _sent = self.new.send(item);
    }

    async fn expire(&self) {
        let mut hourly = tokio::time::interval(EXPIRY_INTERVAL);
        loop {
            hourly.tick().await;
            if let Err(error) = self.log.delete_expired(crate::wall_time()).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    owner = self.log.owner(),
                    "expired events were not deleted; trying again in an hour"
                );
            }
        }
    }
}

/// Follows the new events of one service.
#[derive(Debug)]
pub struct EventWatcher {
    new: broadcast::Receiver<FeedItem>,
    filter: EventFilter,
}

impl EventWatcher {
    /// Waits for the next event; none after the end of the feed.
    pub async fn next(&mut self) -> Option<Result<Event, MissedEvents>> {
        loop {
            match self.new.recv().await {
                Ok(FeedItem::New(event)) if matches(&self.filter, &event) => {
                    return Some(Ok(*event));
                }
                Ok(FeedItem::New(_)) => {}
                Ok(FeedItem::Gap) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    return Some(Err(MissedEvents));
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
