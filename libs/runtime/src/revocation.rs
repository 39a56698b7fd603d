//! Revoked identities in memory: certificates, and the credentials of a door's clients.
//!
//! ```text
//! identity service ─WatchRevocations─▶ Revocations ─▶ connections and calls of revoked callers are refused, open ones end
//! ```
//!
//! While the feed is cut, the identities that were revoked before stay refused. It is opened again after two seconds at most, so
//! that a revocation made meanwhile holds soon.

mod calls;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::Channel;
use tinwright::identity::v1::{Revocation, WatchRevocationsRequest, WatchRevocationsResponse};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

pub use self::calls::refuse_revoked;
use crate::feed::{self, FeedEvent};
use crate::retry::Backoff;

/// The delays before the feed is opened again. A process that cannot reach the identity service accepts what is revoked meanwhile, so
/// the longest one is short.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(2));

/// The revoked identities, by name: `certificate:<serial number>` or `credential:<id>`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Revocations(Arc<watch::Sender<Table>>);

#[derive(Debug, Default)]
struct Table {
    revoked: HashSet<String>,
    /// True once the feed has sent everything for the first time.
    is_complete: bool,
    /// True while the feed is cut.
    is_cut: bool,
}

impl Revocations {
    /// True if `identity` is revoked.
    pub fn contains(&self, identity: &str) -> bool {
        self.0.borrow().revoked.contains(identity)
    }

    /// Resolves once `identity` is revoked.
    pub async fn revoked(&self, identity: &str) {
        let mut tables = self.0.subscribe();
        if tables.wait_for(|table| table.revoked.contains(identity)).await.is_err() {
            // Not reached: the sender lives as long as this value.
            std::future::pending().await
        }
    }

    /// Does `work`; stops and returns none once `identity` is revoked.
    pub async fn unless_revoked<T>(
        &self,
        identity: &str,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            () = self.revoked(identity) => None,
            done = work => Some(done),
        }
    }

    /// True while the feed is cut: what is revoked meanwhile is not known.
    pub fn is_cut(&self) -> bool {
        self.0.borrow().is_cut
    }

    /// Resolves once all revocations are known.
    pub async fn ready(&self) {
        let mut tables = self.0.subscribe();
        let _complete = tables.wait_for(|table| table.is_complete).await;
    }

    /// Applies an event of the feed.
    pub fn apply(&self, event: FeedEvent<Revocation>) {
        self.0.send_if_modified(|table| match event {
            FeedEvent::Snapshot(all) => {
                table.revoked = all.into_iter().map(|revocation| revocation.id).collect();
                (table.is_complete, table.is_cut) = (true, false);
                true
            }
            FeedEvent::Put(revocation) => table.revoked.insert(revocation.id),
            FeedEvent::Deleted(id) => table.revoked.remove(&id),
            FeedEvent::Disconnected => {
                table.is_cut = true;
                // Nobody waits for it.
                false
            }
        });
    }

    /// Follows the identity service at `channel` until `stop`.
    pub async fn follow(&self, channel: Channel, stop: CancellationToken) {
        self.follow_watch(|| feed::open(&channel, WatchRevocationsRequest {}), stop).await;
    }

    /// Follows the watch that `open` opens until `stop`.
    async fn follow_watch<F>(&self, open: impl Fn() -> F, stop: CancellationToken)
    where
        F: Future<Output = Result<Streaming<WatchRevocationsResponse>, Status>>,
    {
        let handle = |event| self.apply(event);
        feed::follow_with_backoff("revocation", BACKOFF, open, handle, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    fn revocation(id: &str) -> Revocation {
        Revocation { id: id.into(), ..Revocation::default() }
    }

    #[tokio::test]
    async fn an_identity_is_revoked_from_the_event_on() {
        let revocations = Revocations::default();
        let waiting = revocations.revoked("certificate:0a");
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        revocations.apply(FeedEvent::Snapshot(vec![revocation("certificate:0b")]));
        assert!(waiting.as_mut().now_or_never().is_none());
        revocations.apply(FeedEvent::Put(revocation("certificate:0a")));
        assert!(waiting.now_or_never().is_some());
        assert!(revocations.contains("certificate:0a") && revocations.contains("certificate:0b"));
        revocations.apply(FeedEvent::Deleted("certificate:0b".into()));
        assert!(!revocations.contains("certificate:0b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_that_was_cut_is_opened_again_every_two_seconds_at_least() {
        let (attempts, stop) = (Mutex::new(Vec::new()), CancellationToken::new());
        let open = || {
            let mut attempts = attempts.lock().unwrap();
            attempts.push(Instant::now());
            if attempts.len() == 20 {
                stop.cancel();
            }
            std::future::ready(Err(Status::unavailable("the service is away")))
        };
        Revocations::default().follow_watch(open, stop.clone()).await;
        let attempts = attempts.lock().unwrap();
        assert_eq!(attempts.len(), 20);
        // The clock is paused: these are the delays themselves, rounded up to a millisecond.
        let longest = attempts.windows(2).map(|pair| pair[1].duration_since(pair[0])).max();
        assert!(longest <= Some(Duration::from_millis(2001)), "{longest:?}");
    }

    #[tokio::test]
    async fn revoked_identities_stay_refused_while_the_feed_is_cut() {
        let revocations = Revocations::default();
        assert!(revocations.ready().now_or_never().is_none());
        revocations.apply(FeedEvent::Snapshot(vec![revocation("credential:1")]));
        assert!(revocations.ready().now_or_never().is_some());
        assert!(!revocations.is_cut());
        revocations.apply(FeedEvent::Disconnected);
        assert!(revocations.contains("credential:1") && revocations.is_cut());
        revocations.apply(FeedEvent::Snapshot(Vec::new()));
        assert!(!revocations.contains("credential:1") && !revocations.is_cut());
    }
}
