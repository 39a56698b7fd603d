//! Records over gRPC: page sizes, watches and errors of every service.

mod stored_watch;

use std::collections::HashSet;
use std::pin::Pin;

use futures_util::{Stream, StreamExt as _, future, stream};
use tinwright::status::{self, Violations};
use tinwright::watch::{SERVER_STOPS, WatchEvent, WatchResponse};
use tinwright::{Stored, check};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};
use tracing::Instrument as _;

use self::stored_watch::StoredWatch;
use crate::events::{current_origin, with_origin};
use crate::mirror::{Mirror, Watcher};
use crate::records::requests::IdempotentRequest;
use crate::records::{self, Kind, Listing, RecordSource};

/// Records of a page if the caller gives no size.
const DEFAULT_PAGE_RECORDS: i32 = 100;
/// Records of the largest page.
const MAX_PAGE_RECORDS: i32 = 1000;
/// Bytes of the longest request id.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Returns the number of records of a page for a caller who requests `size`.
pub fn page_size(size: i32) -> Result<usize, Violations> {
    let size = if size == 0 { DEFAULT_PAGE_RECORDS } else { size.min(MAX_PAGE_RECORDS) };
    usize::try_from(size).map_err(|_| Violations::single("page_size", "is negative"))
}

/// Passes if `request_id` is short enough to be stored.
pub fn check_request_id(request_id: &str) -> Result<(), Violations> {
    check::length(request_id, MAX_REQUEST_ID_BYTES)
        .map_err(|reason| Violations::single("request_id", reason))
}

/// Returns the request `request_id` of `caller` with `body`, if it may be repeated. Another caller, or another call, may use the
/// same id for another request.
pub fn idempotent<M: prost::Message + prost::Name>(
    caller: &str,
    request_id: &str,
    body: &M,
) -> Result<Option<IdempotentRequest>, Violations> {
    check_request_id(request_id)?;
    let scope = format!("{caller} {}", M::full_name());
    Ok(IdempotentRequest::new(request_id, body).map(|request| request.in_scope(&scope)))
}

/// Returns a page of the records of `source` that pass the filter `keep`, each changed by `show`, and the token of the next page.
pub async fn list<K: Kind>(
    source: &impl RecordSource<K>,
    size: i32,
    token: &str,
    keep: impl Fn(&K::Record) -> bool,
    show: impl Fn(K::Record) -> K::Record,
) -> Result<(Vec<K::Record>, String), Status> {
    let listing = source.records().list_from(source, token, page_size(size)?, keep).await?;
    let Listing { records, next } = listing;
    Ok((records.into_iter().map(show).collect(), next.unwrap_or_default()))
}

/// Runs `work` of a call to its end in a task: the future of the call itself is dropped if the caller goes away.
pub async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let work = with_origin(current_origin(), work).in_current_span();
    tokio::spawn(work).await.unwrap_or_else(|_| Err(Status::internal("the call was interrupted")))
}

/// A watch's response to its caller.
pub type Events<W> = Pin<Box<dyn Stream<Item = Result<W, Status>> + Send>>;

/// Streams the events of the record `id`, or of all if it is empty, each record changed by `show`, until `stop` or until the
/// caller is too slow.
pub fn watch_by_id<K: Kind, W: WatchResponse<Object = K::Record> + Send + 'static>(
    mirror: &Mirror<K>,
    id: &str,
    stop: &CancellationToken,
    show: impl Fn(K::Record) -> K::Record + Send + 'static,
) -> Result<Response<Events<W>>, Status> {
    watch_filtered(mirror, id, stop, None, show)
}

/// A filter of records.
pub type Filter<R> = Box<dyn Fn(&R) -> bool + Send>;

/// Does the same as [`watch_by_id`] for the records that pass `filter`, if there is one. A record that passes it no longer is
/// deleted for the caller, who learns nothing of those that never passed it.
pub fn watch_filtered<K: Kind, W: WatchResponse<Object = K::Record> + Send + 'static>(
    mirror: &Mirror<K>,
    id: &str,
    stop: &CancellationToken,
    filter: Option<Filter<K::Record>>,
    show: impl Fn(K::Record) -> K::Record + Send + 'static,
) -> Result<Response<Events<W>>, Status> {
    Ok(visible(StoredWatch::held(mirror, id)?, stop, filter, show))
}

/// Does the same for a kind whose mirror holds a part of the records: the others are read from the store before the watch is synced.
pub fn watch_stored<K: Kind, W: WatchResponse<Object = K::Record> + Send + 'static>(
    mirror: &Mirror<K>,
    id: &str,
    stop: &CancellationToken,
    filter: Option<Filter<K::Record>>,
    show: impl Fn(K::Record) -> K::Record + Send + 'static,
) -> Result<Response<Events<W>>, Status> {
    Ok(visible(StoredWatch::all(mirror, id)?, stop, filter, show))
}

/// Responds with the events of the records that pass `filter`, if there is one.
fn visible<K: Kind, W: WatchResponse<Object = K::Record> + Send + 'static>(
    watch: StoredWatch<K>,
    stop: &CancellationToken,
    filter: Option<Filter<K::Record>>,
    show: impl Fn(K::Record) -> K::Record + Send + 'static,
) -> Response<Events<W>> {
    let mut shown = HashSet::new();
    let events = events(watch, stop.clone()).filter_map(move |event| {
        let event = event.map(|event| match &filter {
            Some(filter) => passing(event, filter, &mut shown),
            None => Some(event),
        });
        let event = event.map(|event| event.map(|event| W::from(changed(event, &show))));
        future::ready(event.transpose())
    });
    Response::new(Box::pin(events))
}

/// Returns the event for a caller who sees the records that pass `filter`, the ids of which are `shown`.
fn passing<R: Stored>(
    event: WatchEvent<R>,
    filter: &Filter<R>,
    shown: &mut HashSet<String>,
) -> Option<WatchEvent<R>> {
    let id = match event {
        WatchEvent::Put(record) if filter(&record) => {
            shown.insert(record.id().to_owned());
            return Some(WatchEvent::Put(record));
        }
        WatchEvent::Put(record) => record.id().to_owned(),
        WatchEvent::Deleted(id) => id,
        WatchEvent::Synced => return Some(WatchEvent::Synced),
    };
    shown.remove(&id).then_some(WatchEvent::Deleted(id))
}

fn changed<R>(event: WatchEvent<R>, show: impl Fn(R) -> R) -> WatchEvent<R> {
    match event {
        WatchEvent::Put(record) => WatchEvent::Put(show(record)),
        WatchEvent::Deleted(_) | WatchEvent::Synced => event,
    }
}

/// Waits for `next` until `stop`, or until the mirror is not confirmed: then the records of
/// the mirror may be outdated.
async fn until<T>(
    stop: &CancellationToken,
    mut confirmation: watch::Receiver<bool>,
    next: impl Future<Output = T>,
) -> Result<T, Status> {
    let unconfirmed = async { drop(confirmation.wait_for(|confirmed| !confirmed).await) };
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Status::unavailable(SERVER_STOPS)),
        () = unconfirmed => Err(Status::unavailable("the store does not answer: begin again")),
        next = next => Ok(next),
    }
}

/// Streams the events of `watcher`, each record changed by `show`, until `stop`, until the watcher is too slow, or until the mirror is not confirmed.
pub fn watch<K: Kind, W: WatchResponse<Object = K::Record>>(
    watcher: Watcher<K>,
    stop: CancellationToken,
    show: impl Fn(K::Record) -> K::Record,
) -> impl Stream<Item = Result<W, Status>> {
    let events = events(StoredWatch::of(watcher), stop);
    events.map(move |event| event.map(|event| W::from(changed(event, &show))))
}

fn events<K: Kind>(
    watch: StoredWatch<K>,
    stop: CancellationToken,
) -> impl Stream<Item = Result<WatchEvent<K::Record>, Status>> {
    stream::unfold(Some((watch, stop)), |open| async move {
        let (mut watch, stop) = open?;
        let confirmation = watch.confirmation();
        let event = until(&stop, confirmation, watch.next()).await.unwrap_or_else(Err);
        let open = event.is_ok().then_some((watch, stop));
        Some((event, open))
    })
}

impl From<records::Error> for Status {
    fn from(error: records::Error) -> Self {
        let text = error.to_string();
        match error {
            records::Error::Invalid(violations) => violations.into(),
            records::Error::Missing { noun, name } => status::not_found(noun, &name),
            records::Error::Exists { noun, id } => status::already_exists(noun, &id, text),
            records::Error::Taken { noun, by, .. } => status::already_exists(noun, &by, text),
            records::Error::Changed { noun, id } => status::changed_meanwhile(noun, &id),
            records::Error::Quota { tenant, .. } => {
                status::over_quota(&format!("tenant/{tenant}"), text)
            }
            records::Error::UnknownQuota { status, .. } => {
                Status::unavailable(format!("{text}: {}", status.message()))
            }
            records::Error::Reused(id) => status::already_exists("request", &id, text),
            records::Error::PageToken(_) => Violations::single("page_token", text).into(),
            records::Error::Store(error) => failure(&error),
        }
    }
}

/// Returns the status for a failure of the store, and logs the cause once.
fn failure(error: &crate::Error) -> Status {
    let (code, text) = match error {
        crate::Error::Conflict(_) => (Code::Aborted, "changed meanwhile: read again and repeat"),
        crate::Error::Refused(refusal) => {
            return Status::invalid_argument(format!("too large to be stored: {refusal}"));
        }
        crate::Error::Unavailable(_) => (Code::Unavailable, "the store is out of reach"),
        crate::Error::Full => (Code::ResourceExhausted, "the disk is full: nothing can be added"),
        crate::Error::Corrupt(_) => {
            (Code::DataLoss, "what is stored cannot be read: check the store")
        }
    };
    if code != Code::Aborted {
        tracing::error!(error = error as &dyn std::error::Error, "the store failed a request");
    }
    Status::new(code, text)
}

#[cfg(test)]
mod tests;
