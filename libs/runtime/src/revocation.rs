//! Revoked identities in memory: certificates, and the credentials of a door's clients.
//!
//! ```text
//! identity service ─WatchRevocations─▶ Revocations ─▶ connections and calls of revoked callers are refused, open ones end
//! ```
//!
//! While the feed is cut, the identities that were revoked before stay refused.

mod calls;

use std::collections::HashSet;
use std::sync::Arc;

use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::identity::v1::{Revocation, WatchRevocationsRequest};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub use self::calls::refuse_revoked;
use crate::feed::{self, FeedEvent};

/// The revoked identities, by name: `certificate:<serial number>` or `credential:<id>`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Revocations(Arc<watch::Sender<Table>>);

#[derive(Debug, Default)]
struct Table {
    revoked: HashSet<String>,
    /// True once the feed has sent everything for the first time.
    is_complete: bool,
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
                table.is_complete = true;
                true
            }
            FeedEvent::Put(revocation) => table.revoked.insert(revocation.id),
            FeedEvent::Deleted(id) => table.revoked.remove(&id),
            FeedEvent::Disconnected => false,
        });
    }

    /// Follows the identity service at `channel` until `stop`.
    pub async fn follow(&self, channel: Channel, stop: CancellationToken) {
        let open = || async {
            let mut client = IdentityServiceClient::new(channel.clone());
            Ok(client.watch_revocations(WatchRevocationsRequest {}).await?.into_inner())
        };
        feed::follow("revocation", open, |event| self.apply(event), stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

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

    #[tokio::test]
    async fn revoked_identities_stay_refused_while_the_feed_is_cut() {
        let revocations = Revocations::default();
        assert!(revocations.ready().now_or_never().is_none());
        revocations.apply(FeedEvent::Snapshot(vec![revocation("credential:1")]));
        assert!(revocations.ready().now_or_never().is_some());
        revocations.apply(FeedEvent::Disconnected);
        assert!(revocations.contains("credential:1"));
        revocations.apply(FeedEvent::Snapshot(Vec::new()));
        assert!(!revocations.contains("credential:1"));
    }
}
