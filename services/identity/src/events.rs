//! The events of the site: those of every owner, merged by time.
//!
//! An event's id is time-ordered, so that a page of all owners is made of a page of each: the events up to the first id at which
//! an owner's page ended early.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{SelectAll, select_all};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, future};
use runtime::{Caller, Channel};
use store::serving;
use tinwright::common::v1::Synced;
use tinwright::event::v1 as pb;
use tinwright::event::v1::event_service_server::{EventService, EventServiceServer};
use tinwright::event::v1::owner_event_service_client::OwnerEventServiceClient;
use tinwright::event::v1::watch_events_response::Event as WatchEvent;
use tinwright::event::v1::watch_owner_events_response::Event as OwnerWatchEvent;
use tinwright::watch::SERVER_STOPS;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

/// Events that wait for a slow watcher.
const MAX_QUEUED_EVENTS: usize = 256;
/// Events of a page that a watcher with a start time is sent first.
const PAGE_EVENTS: i32 = 500;

type Responses = mpsc::Sender<Result<pb::WatchEventsResponse, Status>>;

/// Serves the events of all owners over gRPC.
#[derive(Clone, Debug)]
pub struct EventApi {
    owners: Arc<[Owner]>,
    stop: CancellationToken,
}

/// A service that owns objects.
#[derive(Clone, Debug)]
struct Owner {
    name: String,
    client: OwnerEventServiceClient<Channel>,
}

/// The watcher has gone.
#[derive(Debug)]
struct Gone;

impl EventApi {
    /// The events of `owners`, each with the channel to its process. Watches end at `stop`.
    pub fn new(
        owners: impl IntoIterator<Item = (String, Channel)>,
        stop: CancellationToken,
    ) -> Self {
        let owner = |(name, channel)| Owner { name, client: OwnerEventServiceClient::new(channel) };
        Self { owners: owners.into_iter().map(owner).collect(), stop }
    }

    /// Converts it into a service for a tonic router.
    pub fn into_service(self) -> EventServiceServer<Self> {
        EventServiceServer::new(self)
    }

    /// Returns the page of all owners' events after the id `token`, and the token of the next page.
    async fn page(
        &self,
        filter: &pb::EventFilter,
        page_size: i32,
        token: &str,
    ) -> Result<(Vec<pb::Event>, String), Status> {
        let limit = serving::page_size(page_size)?;
        let parts = self.owners.iter().map(|owner| owner.list(filter, page_size, token));
        Ok(merge(future::try_join_all(parts).await?, limit))
    }

    /// Sends a watcher its events until the watch ends, and the status of a failure.
    async fn serve_watcher(self, filter: pb::EventFilter, to: Responses) {
        if let Err(status) = self.follow(filter, &to).await {
            // The watcher may have gone meanwhile.
            let _sent = to.send(Err(status)).await;
        }
    }

    /// Sends a watcher the stored events since its start time, synced, and then all new ones.
    async fn follow(&self, filter: pb::EventFilter, to: &Responses) -> Result<(), Status> {
        let opened = self.owners.iter().map(|owner| owner.watch(&filter));
        // Followed before the stored ones are read, so that none is missed.
        let mut new = select_all(future::try_join_all(opened).await?);
        let sent = match filter.start_time {
            Some(_) => self.send_stored(&filter, to).await?,
            None => Some(HashSet::new()),
        };
        let Some(sent) = sent else { return Ok(()) };
        if send(to, WatchEvent::Synced(Synced {})).await.is_err() {
            return Ok(());
        }
        self.send_new(&mut new, sent, to).await
    }

    /// Sends the stored events. Returns their ids; none if the watcher has gone.
    async fn send_stored(
        &self,
        filter: &pb::EventFilter,
        to: &Responses,
    ) -> Result<Option<HashSet<String>>, Status> {
        let (mut token, mut sent) = (String::new(), HashSet::new());
        loop {
            let (events, next) = self.page(filter, PAGE_EVENTS, &token).await?;
            for event in events {
                sent.insert(event.id.clone());
                if send(to, WatchEvent::Added(event)).await.is_err() {
                    return Ok(None);
                }
            }
            if next.is_empty() {
                return Ok(Some(sent));
            }
            token = next;
        }
    }

    /// Sends new events that were not `sent` already.
    async fn send_new(
        &self,
        new: &mut SelectAll<Streaming<pb::WatchOwnerEventsResponse>>,
        mut sent: HashSet<String>,
        to: &Responses,
    ) -> Result<(), Status> {
        loop {
            let next = tokio::select! {
                next = new.try_next() => next?,
                () = to.closed() => return Ok(()),
                () = self.stop.cancelled() => None,
            };
            let Some(response) = next else {
                return Err(Status::unavailable(SERVER_STOPS));
            };
            let Some(OwnerWatchEvent::Added(event)) = response.event else { continue };
            if !sent.remove(&event.id) && send(to, WatchEvent::Added(event)).await.is_err() {
                return Ok(());
            }
        }
    }
}

async fn send(to: &Responses, event: WatchEvent) -> Result<(), Gone> {
    to.send(Ok(pb::WatchEventsResponse { event: Some(event) })).await.map_err(|_| Gone)
}

impl Owner {
    /// Returns a page of the owner's events, and the token of its next page.
    async fn list(
        &self,
        filter: &pb::EventFilter,
        page_size: i32,
        token: &str,
    ) -> Result<(Vec<pb::Event>, String), Status> {
        let (owner, filter, page_token) =
            (self.name.clone(), Some(filter.clone()), token.to_owned());
        let request = pb::ListOwnerEventsRequest { owner, filter, page_size, page_token };
        let page = self.client.clone().list_owner_events(request).await?.into_inner();
        Ok((page.events, page.next_page_token))
    }

    /// Follows the owner's new events; returns once it does.
    async fn watch(
        &self,
        filter: &pb::EventFilter,
    ) -> Result<Streaming<pb::WatchOwnerEventsResponse>, Status> {
        let (owner, filter) = (self.name.clone(), Some(filter.clone()));
        let request = pb::WatchOwnerEventsRequest { owner, filter };
        let mut events = self.client.clone().watch_owner_events(request).await?.into_inner();
        let first = events.message().await?.and_then(|response| response.event);
        match first {
            Some(OwnerWatchEvent::Synced(_)) => Ok(events),
            Some(OwnerWatchEvent::Added(_)) | None => {
                Err(Status::unavailable(format!("the events of {} cannot be followed", self.name)))
            }
        }
    }
}

/// Merges a page of each owner. Returns at most `limit` events in id order, and the token of the next page. An owner whose page
/// ended at an id has events after it that are not known yet, so no later event of another owner is returned before them.
fn merge(parts: Vec<(Vec<pb::Event>, String)>, limit: usize) -> (Vec<pb::Event>, String) {
    let ends = parts.iter().map(|(_, next)| next).filter(|next| !next.is_empty());
    let end = ends.min().cloned();
    let mut events: Vec<_> = parts.into_iter().flat_map(|(events, _)| events).collect();
    events.sort_by(|a, b| a.id.cmp(&b.id));
    let known = end.as_ref().map_or(events.len(), |end| events.partition_point(|it| it.id <= *end));
    if known > limit {
        events.truncate(limit);
        let next = events.last().map(|last| last.id.clone()).unwrap_or_default();
        return (events, next);
    }
    events.truncate(known);
    (events, end.unwrap_or_default())
}

/// Returns the filter of `request`, limited to the tenant of the caller if it has one.
fn effective_filter<T>(request: &Request<T>, filter: Option<&pb::EventFilter>) -> pb::EventFilter {
    let filter = filter.cloned().unwrap_or_default();
    let tenant = request.extensions().get().and_then(Caller::tenant);
    match tenant {
        Some(own) => pb::EventFilter { tenant: own.as_str().to_owned(), ..filter },
        None => filter,
    }
}

impl EventService for EventApi {
    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let filter = effective_filter(&request, request.get_ref().filter.as_ref());
        let pb::ListEventsRequest { filter: _, page_size, page_token } = request.into_inner();
        let (events, next_page_token) = self.page(&filter, page_size, &page_token).await?;
        Ok(Response::new(pb::ListEventsResponse { events, next_page_token }))
    }

    type WatchEventsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchEventsResponse, Status>> + Send>>;

    async fn watch_events(
        &self,
        request: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let filter = effective_filter(&request, request.get_ref().filter.as_ref());
        let (to, responses) = mpsc::channel(MAX_QUEUED_EVENTS);
        tokio::spawn(self.clone().serve_watcher(filter, to).in_current_span());
        Ok(Response::new(ReceiverStream::new(responses).boxed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(ids: &[&str]) -> Vec<pb::Event> {
        ids.iter().map(|id| pb::Event { id: (*id).into(), ..pb::Event::default() }).collect()
    }

    fn merged(parts: &[(&[&str], &str)], limit: usize) -> (String, String) {
        let parts = parts.iter().map(|(ids, next)| (events(ids), (*next).to_owned()));
        let (events, next) = merge(parts.collect(), limit);
        (events.into_iter().map(|event| event.id).collect(), next)
    }

    #[test]
    fn events_of_all_owners_are_in_time_order() {
        assert_eq!(
            merged(&[(&["a", "d"], ""), (&["b"], ""), (&[], "")], 9),
            ("abd".into(), "".into())
        );
    }

    #[test]
    fn no_event_comes_before_an_earlier_one_that_is_not_read_yet() {
        let parts: [(&[&str], &str); 2] = [(&["a", "c"], "c"), (&["b", "d"], "")];
        assert_eq!(merged(&parts, 9), ("abc".into(), "c".into()));
        // A strict filter found nothing up to b.
        let parts: [(&[&str], &str); 2] = [(&[], "b"), (&["a", "d"], "")];
        assert_eq!(merged(&parts, 9), ("a".into(), "b".into()));
    }

    #[test]
    fn a_page_has_at_most_so_many_events() {
        let parts: [(&[&str], &str); 2] = [(&["a", "c"], ""), (&["b", "d"], "")];
        assert_eq!(merged(&parts, 3), ("abc".into(), "c".into()));
        assert_eq!(merged(&parts, 4), ("abcd".into(), "".into()));
    }

    #[test]
    fn a_caller_with_a_tenant_gets_the_events_of_its_tenant_only() {
        let mut request = Request::new(());
        let wanted = pb::EventFilter { tenant: "other".into(), ..pb::EventFilter::default() };
        assert_eq!(effective_filter(&request, Some(&wanted)).tenant, "other");
        let caller = Caller::from(runtime::Role::Viewer).with_tenant("acme".parse().unwrap());
        request.extensions_mut().insert(caller.unwrap());
        assert_eq!(effective_filter(&request, Some(&wanted)).tenant, "acme");
        assert_eq!(effective_filter(&request, None).tenant, "acme");
    }
}
