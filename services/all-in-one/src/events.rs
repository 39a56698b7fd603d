//! Events of the services of this process: they are served over gRPC, and the calls that lead to them are recorded
//! (`docs/reference/events.md`).
//!
//! - [`OwnerEvents`]: the gRPC service.
//! - [`origin`]: names the caller in the events of a call's changes.
//! - [`refusals`]: refused calls as events.

pub(crate) mod origin;
pub(crate) mod refusals;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use runtime::supervise::Tier;
use store::events::{EventFeed, EventLog, EventWatcher};
use store::{ScopedStore, Store, serving};
use tinwright::common::v1::Synced;
use tinwright::event::v1 as pb;
use tinwright::event::v1::owner_event_service_server::{
    OwnerEventService, OwnerEventServiceServer,
};
use tinwright::event::v1::watch_owner_events_response::Event as WatchEvent;
use tinwright::status;
use tinwright::watch::SERVER_STOPS;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use self::refusals::Refusals;

/// The events of the services of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerEvents {
    feeds: Arc<[EventFeed]>,
    stop: CancellationToken,
}

impl OwnerEvents {
    /// The events of `owners`, whose keys are in `store`. Watches end at `stop`.
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        owners: impl IntoIterator<Item = String>,
        stop: CancellationToken,
    ) -> Self {
        let feed = |owner: String| {
            EventFeed::new(EventLog::new(ScopedStore::new(store.clone(), &owner), &owner))
        };
        Self { feeds: owners.into_iter().map(feed).collect(), stop }
    }

    /// Converts it into a service for a tonic router.
    pub(crate) fn into_service(self) -> OwnerEventServiceServer<Self> {
        OwnerEventServiceServer::new(self)
    }

    /// Returns the record of refused calls, and starts to follow the events.
    pub(crate) fn start(&self, refusals: &Refusals, tier: &mut Tier) {
        for feed in &*self.feeds {
            tier.spawn(feed.clone().run(tier.stop.clone()));
        }
        let logs = self.feeds.iter().map(|feed| feed.log().clone()).collect();
        tier.spawn(refusals.clone().run(logs, tier.stop.clone()));
    }

    fn feed(&self, owner: &str) -> Result<&EventFeed, Status> {
        let feed = self.feeds.iter().find(|feed| feed.log().owner() == owner);
        feed.ok_or_else(|| status::not_found("owner", owner))
    }
}

impl OwnerEventService for OwnerEvents {
    #[tracing::instrument(target = "tinwright", skip_all)]
    async fn list_owner_events(
        &self,
        request: Request<pb::ListOwnerEventsRequest>,
    ) -> Result<Response<pb::ListOwnerEventsResponse>, Status> {
        let pb::ListOwnerEventsRequest { owner, filter, page_size, page_token } =
            request.into_inner();
        let (log, limit) = (self.feed(&owner)?.log(), serving::page_size(page_size)?);
        let page = log.list(&filter.unwrap_or_default(), &page_token, limit).await?;
        let (events, next_page_token) = (page.records, page.next.unwrap_or_default());
        Ok(Response::new(pb::ListOwnerEventsResponse { events, next_page_token }))
    }

    type WatchOwnerEventsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchOwnerEventsResponse, Status>> + Send>>;

    #[tracing::instrument(target = "tinwright", skip_all)]
    async fn watch_owner_events(
        &self,
        request: Request<pb::WatchOwnerEventsRequest>,
    ) -> Result<Response<Self::WatchOwnerEventsStream>, Status> {
        let pb::WatchOwnerEventsRequest { owner, filter } = request.into_inner();
        let watcher = self.feed(&owner)?.watch(filter.unwrap_or_default()).await;
        Ok(Response::new(Box::pin(responses(watcher, self.stop.clone()))))
    }
}

/// Returns the responses of a watch: synced, then the events, then the reason of the end.
fn responses(
    watcher: EventWatcher,
    stop: CancellationToken,
) -> impl Stream<Item = Result<pb::WatchOwnerEventsResponse, Status>> {
    let respond = |event| Ok(pb::WatchOwnerEventsResponse { event: Some(event) });
    let synced = stream::iter([respond(WatchEvent::Synced(Synced {}))]);
    let events = stream::unfold(Some((watcher, stop)), move |open| async move {
        let (mut watcher, stop) = open?;
        match stop.run_until_cancelled(watcher.next()).await.flatten() {
            Some(Ok(event)) => Some((respond(WatchEvent::Added(event)), Some((watcher, stop)))),
            Some(Err(missed)) => Some((Err(Status::out_of_range(missed.to_string())), None)),
            None => Some((Err(Status::unavailable(SERVER_STOPS)), None)),
        }
    });
    futures_util::StreamExt::chain(synced, events)
}
