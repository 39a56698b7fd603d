//! Connections whose client is not known, and the choice of those that make room for others.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::sources::{Slot, SourceSlots};
use crate::clock::Clock;

/// Time from the first request of an anonymous connection during which an open request makes it
/// busy. A client with a key is identified within milliseconds.
const MAX_BUSY_TIME: Duration = Duration::from_secs(2);

/// Limits on anonymous connections: those whose client has no role and is not known otherwise.
/// During the TLS handshake no client has a role. A client becomes known by
/// [`UnknownClient::identified`].
///
/// Another connection above a limit replaces one that is open: else whoever holds them all would
/// keep out all workers and clients with a key, which are anonymous at first. Of the connections of
/// a source, the oldest that is not busy is replaced. If all of them are busy, the one whose first
/// request began first is replaced. A connection is busy while a request is open, for at most
/// 2 seconds after its first request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousLimits {
    /// Maximum number of connections. Another one replaces one of the source that has the most.
    pub total: usize,
    /// Maximum number of connections from one source. Another one replaces one of that source.
    pub per_source: usize,
    /// Maximum number of open calls per HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// Maximum number of bytes of requests that are buffered for an HTTP/2 connection until they
    /// are read, 65,535 at least. A connection keeps this limit when its client becomes known.
    pub window_bytes: u32,
    /// Time after which a connection accepts no more requests.
    pub lifetime: Duration,
}

/// The open anonymous connections of a listener.
#[derive(Default)]
pub(super) struct AnonymousConnections {
    slots: SourceSlots,
    /// The places of the connections, the oldest first, and some that are no longer anonymous.
    places: VecDeque<Weak<AnonymousPlace>>,
}

/// The place of a connection among the anonymous ones.
#[derive(Debug)]
pub(super) struct AnonymousPlace {
    source: IpAddr,
    pub(super) lifetime: Duration,
    /// Cancelled when the connection has to end at once.
    pub(super) evicted: CancellationToken,
    /// Cancelled when the client is known: the connection is no longer anonymous.
    pub(super) identified: CancellationToken,
    state: Mutex<AnonymousState>,
}

/// State of a connection that counts as anonymous, or did.
#[derive(Debug)]
struct AnonymousState {
    /// None once the connection is evicted or its client is known, whichever happens first.
    slot: Option<Slot>,
    /// Number of requests whose responses have not begun.
    open_requests: usize,
    /// Time at which the first request began.
    first_request: Option<Instant>,
}

/// Connection whose client is not known yet; in the extensions of its requests, if anonymous
/// connections are limited.
#[derive(Clone, Debug)]
pub struct UnknownClient(Weak<AnonymousPlace>);

/// An open request of a connection; dropped when its response begins.
pub(super) struct OpenRequest(Weak<AnonymousPlace>);

impl AnonymousConnections {
    /// Evicts a connection if there are too many for another one from `source`. Returns true if it
    /// did. Meanwhile others may end or become known, and then none has to make room.
    pub(super) fn make_room(&self, source: IpAddr, limits: &AnonymousLimits) -> bool {
        let full_source = if self.slots.count(source) >= limits.per_source {
            Some(source)
        } else if self.slots.total() >= limits.total {
            self.largest_source()
        } else {
            None
        };
        full_source.is_some_and(|source| self.evict_from(source))
    }

    /// Adds a connection from `source`, and returns its place.
    pub(super) fn add(&mut self, source: IpAddr, lifetime: Duration) -> Arc<AnonymousPlace> {
        // Places that are no longer anonymous are removed once they are the larger part.
        if self.places.len() > 2 * self.slots.total() + 16 {
            let is_anonymous = |place: Arc<AnonymousPlace>| place.is_anonymous();
            self.places.retain(|place| place.upgrade().is_some_and(is_anonymous));
        }
        let slot = Some(self.slots.slot(source));
        let state = AnonymousState { slot, open_requests: 0, first_request: None };
        let place = Arc::new(AnonymousPlace {
            source,
            lifetime,
            evicted: CancellationToken::new(),
            identified: CancellationToken::new(),
            state: Mutex::new(state),
        });
        self.places.push_back(Arc::downgrade(&place));
        place
    }

    /// Returns the source with the most connections. Of several such sources, returns that of the
    /// oldest connection.
    fn largest_source(&self) -> Option<IpAddr> {
        let max = self.slots.max_count();
        self.present().map(|place| place.source).find(|source| self.slots.count(*source) >= max)
    }

    /// Evicts a connection from `source`. Returns false if there is none.
    ///
    /// A busy one goes if there is no other: else a client with calls that never end would keep out
    /// all others behind its address.
    fn evict_from(&self, source: IpAddr) -> bool {
        let now = Clock::system().monotonic();
        let of_source = || self.present().filter(move |place| place.source == source);
        of_source().any(|place| place.evict_if(|state| !state.is_busy(now)))
            || of_source()
                .min_by_key(|place| place.state().first_request)
                .is_some_and(|place| place.evict_if(|_| true))
    }

    /// Returns the places that are anonymous, the oldest first.
    fn present(&self) -> impl Iterator<Item = Arc<AnonymousPlace>> {
        self.places.iter().filter_map(Weak::upgrade).filter(|place| place.is_anonymous())
    }
}

impl AnonymousPlace {
    /// Returns the handle by which a request can make the client known.
    pub(super) fn unknown_client(self: &Arc<Self>) -> UnknownClient {
        UnknownClient(Arc::downgrade(self))
    }

    /// Ends the connection if it is still anonymous and `is_evictable`. Returns true if it did.
    fn evict_if(&self, is_evictable: impl FnOnce(&AnonymousState) -> bool) -> bool {
        let mut state = self.state();
        is_evictable(&state) && state.leave(&self.evicted)
    }

    fn is_anonymous(&self) -> bool {
        self.state().slot.is_some()
    }

    fn state(&self) -> MutexGuard<'_, AnonymousState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnonymousState {
    /// Frees the slot and cancels `reason`. Returns false if the slot was free before.
    fn leave(&mut self, reason: &CancellationToken) -> bool {
        let had_slot = self.slot.take().is_some();
        if had_slot {
            reason.cancel();
        }
        had_slot
    }

    /// True if a request is open at `now`, and the first one began a short time ago.
    fn is_busy(&self, now: Instant) -> bool {
        let is_recent = |began| now.saturating_duration_since(began) < MAX_BUSY_TIME;
        self.open_requests > 0 && self.first_request.is_some_and(is_recent)
    }
}

impl UnknownClient {
    /// Ends the limits on anonymous connections for this connection: its client has authenticated
    /// itself by a request.
    pub fn identified(&self) {
        if let Some(place) = self.0.upgrade() {
            place.state().leave(&place.identified);
        }
    }

    /// Counts a request of the connection as open until the returned value is dropped.
    pub(super) fn begin_request(&self) -> OpenRequest {
        if let Some(place) = self.0.upgrade() {
            let mut state = place.state();
            state.open_requests += 1;
            state.first_request.get_or_insert_with(|| Clock::system().monotonic());
        }
        OpenRequest(self.0.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(place) = self.0.upgrade() {
            place.state().open_requests -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const LIFETIME: Duration = Duration::from_secs(60);

    fn place() -> Arc<AnonymousPlace> {
        AnonymousConnections::default().add(SOURCE, LIFETIME)
    }

    #[test]
    fn a_connection_is_evicted_or_known_and_never_both() {
        let first_known = place();
        first_known.unknown_client().identified();
        assert!(!first_known.evict_if(|_| true) && !first_known.evicted.is_cancelled());
        let first_evicted = place();
        assert!(first_evicted.evict_if(|_| true));
        first_evicted.unknown_client().identified();
        assert!(!first_evicted.identified.is_cancelled());
    }

    #[test]
    fn the_list_of_connections_stays_short_in_a_flood_from_one_source() {
        let limits = AnonymousLimits {
            total: 64,
            per_source: 4,
            max_concurrent_streams: 8,
            window_bytes: 65_535,
            lifetime: LIFETIME,
        };
        let mut open = AnonymousConnections::default();
        // The tasks of evicted connections hold their places until they end.
        let mut held = Vec::new();
        for _ in 0..10 * limits.total {
            open.make_room(SOURCE, &limits);
            held.push(open.add(SOURCE, LIFETIME));
            assert!(open.places.len() <= 2 * limits.total, "{} connections", held.len());
        }
        assert_eq!(open.slots.total(), limits.per_source);
    }
}
