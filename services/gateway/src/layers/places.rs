//! Places of requests: so many in all, and so many for one source, such as an address.
//!
//! A place is taken before the body of the request is read, and is free again once the body of the response was sent or dropped.
//! A response that its client does not read keeps its place in its source's limit. In the limit on
//! all, it may lose its place to another request after a minute: else a few sources could keep
//! everybody out.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::Extensions;
use http_body::{Frame, SizeHint};

use super::Refusal;

/// The most bytes that are given to the connection at once. It takes the next ones when the client has read most of the earlier ones, so
/// that a large body is not given away before it is sent.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// The places, shared by clones.
#[derive(Clone, Debug)]
pub(crate) struct Places<S> {
    max: usize,
    max_per_source: usize,
    /// A place among all is sure for this time; none for ever.
    lifetime: Option<Duration>,
    taken: Arc<Mutex<Taken<S>>>,
}

#[derive(Debug)]
struct Taken<S> {
    /// The times when places among all were taken, by their numbers.
    all: BTreeMap<u64, Instant>,
    by_source: HashMap<S, usize>,
    /// The number of the next place.
    next: u64,
}

/// One place; it is free again once this is dropped.
#[derive(Debug)]
pub(crate) struct Place<S: Eq + Hash> {
    places: Places<S>,
    number: u64,
    source: Option<S>,
}

impl<S> Default for Taken<S> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_source: HashMap::new(), next: 0 }
    }
}

impl<S: Clone + Eq + Hash> Places<S> {
    /// Places for `max` requests in all, and for `max_per_source` of one source.
    pub(super) fn new(max: usize, max_per_source: usize) -> Self {
        Self { max, max_per_source, lifetime: None, taken: Arc::default() }
    }

    /// The same places, of which those that are older than `lifetime` may be taken away among all.
    pub(super) fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// Takes a place at `now` for a request of `source`. One without a source counts among all only.
    pub(super) fn take(&self, source: Option<S>, now: Instant) -> Result<Place<S>, Refusal> {
        let mut taken = self.lock();
        let of_source = source.as_ref().and_then(|source| taken.by_source.get(source)).copied();
        if of_source.is_some_and(|count| count >= self.max_per_source) {
            return Err(Refusal::TooManyRequests);
        }
        if taken.all.len() >= self.max {
            let is_old = |lifetime, at: &Instant| now.saturating_duration_since(*at) >= lifetime;
            let oldest = taken.all.first_entry().ok_or(Refusal::Overloaded)?;
            if !self.lifetime.is_some_and(|lifetime| is_old(lifetime, oldest.get())) {
                return Err(Refusal::Overloaded);
            }
            oldest.remove();
        }
        let number = taken.next;
        taken.next += 1;
        taken.all.insert(number, now);
        if let Some(source) = source.clone() {
            *taken.by_source.entry(source).or_default() += 1;
        }
        drop(taken);
        Ok(Place { places: self.clone(), number, source })
    }
}

impl<S> Places<S> {
    fn lock(&self) -> MutexGuard<'_, Taken<S>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Eq + Hash> Drop for Place<S> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all.remove(&self.number);
        let Some(source) = &self.source else { return };
        if let Some(count) = taken.by_source.get_mut(source) {
            *count -= 1;
            if *count == 0 {
                taken.by_source.remove(source);
            }
        }
    }
}

/// The place of a request; in its extensions. A door gives it back for a request with limits of its
/// own, such as an upload, to which the deadline no longer applies then.
#[derive(Clone, Debug)]
pub(crate) struct RequestPlace(Arc<Mutex<Option<Place<IpAddr>>>>);

impl RequestPlace {
    pub(super) fn new(place: Place<IpAddr>) -> Self {
        Self(Arc::new(Mutex::new(Some(place))))
    }

    /// Gives back the place of the request with these `extensions`.
    pub(crate) fn give_back(extensions: &Extensions) {
        if let Some(place) = extensions.get::<Self>() {
            drop(place.take());
        }
    }

    /// Takes the place; none if it was given back.
    pub(super) fn take(&self) -> Option<Place<IpAddr>> {
        self.lock().take()
    }

    /// Waits until the request is late: for ever if its place was given back.
    pub(super) async fn late(&self, deadline: Duration) {
        tokio::time::sleep(deadline).await;
        let is_given_back = self.lock().is_none();
        if is_given_back {
            std::future::pending::<()>().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Place<IpAddr>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a response, with the place of its request.
#[derive(Debug)]
pub(super) struct PlacedBody {
    body: Body,
    /// Bytes of `body` that were not sent yet.
    rest: Bytes,
    /// None after the end, or if the request has none.
    place: Option<Place<IpAddr>>,
}

impl PlacedBody {
    /// The body, which keeps the place until its end.
    pub(super) fn new(body: Body, place: Option<Place<IpAddr>>) -> Self {
        Self { body, rest: Bytes::new(), place }
    }

    fn next_part(&mut self) -> Frame<Bytes> {
        Frame::data(self.rest.split_to(self.rest.len().min(MAX_FRAME_BYTES)))
    }
}

impl http_body::Body for PlacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next_part())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            ended => {
                self.place = None;
                return Poll::Ready(ended);
            }
        };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                self.next_part()
            }
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
