//! Limits on the connections of a listener, and the connections that count against them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::HANDSHAKE_TIMEOUT;
use crate::authority::SiteAuthority;
use crate::client_address::TrustedProxies;
use crate::clock::Clock;
use crate::rate_limit::{Rate, TokenBucket};
use crate::revocation::Revocations;

/// The most calls that one connection may have open, unless limited: in the process, one connection carries all of a client's.
const MAX_CONCURRENT_STREAMS: u32 = 4096;
/// The largest head of an HTTP/1 request, unless limited: what hyper allows by itself.
const MAX_HEAD_BYTES: usize = 408 * 1024;

/// Limits on connections from outside. By default their number is not limited.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// The most connections at a time.
    pub total: usize,
    /// The most connections from one address at a time.
    pub per_address: usize,
    /// Proxies, which have connections for many clients: limits per address are not for them.
    pub exempt: TrustedProxies,
    /// The largest head of an HTTP/1 request, 8192 at least.
    pub max_head_bytes: usize,
    /// The longest time for the first bytes of a connection, for the head of an HTTP/1 request, and between two of them.
    pub head_timeout: Duration,
    /// The longest time for which sent bytes may be unacknowledged by the peer's system: then the connection has ended. None: the system's.
    pub acknowledge_timeout: Option<Duration>,
    /// The most calls that one HTTP/2 connection may have open.
    pub max_concurrent_streams: u32,
    /// Certificates whose connections are closed.
    pub revocations: Revocations,
    /// The site's authority: once it is replaced, connections of certificates of the former one are closed.
    pub authority: Option<Arc<SiteAuthority>>,
    /// Further limits on connections whose client has no role, if there are any.
    pub anonymous: Option<AnonymousLimits>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: usize::MAX,
            per_address: usize::MAX,
            exempt: TrustedProxies::default(),
            max_head_bytes: MAX_HEAD_BYTES,
            head_timeout: HANDSHAKE_TIMEOUT,
            acknowledge_timeout: None,
            max_concurrent_streams: MAX_CONCURRENT_STREAMS,
            revocations: Revocations::default(),
            authority: None,
            anonymous: None,
        }
    }
}

/// Limits on connections whose client has no role. During the TLS handshake no client has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousLimits {
    /// The most connections at a time. Another one replaces the oldest: else whoever holds them all would keep workers out,
    /// which have no role at first.
    pub total: usize,
    /// The most connections from one address at a time. Another one is refused.
    pub per_address: usize,
    /// The most calls that one HTTP/2 connection may have open.
    pub max_concurrent_streams: u32,
    /// The time after which a connection accepts no more requests.
    pub lifetime: Duration,
}

/// The open connections of a listener.
#[derive(Default)]
pub(super) struct OpenConnections {
    limits: ConnectionLimits,
    by_address: AddressSlots,
    anonymous_by_address: AddressSlots,
    /// The anonymous connections, the oldest first, and some that have ended or have a role meanwhile.
    anonymous: VecDeque<Weak<AnonymousPlace>>,
    closed: ClosedLog,
}

/// The place of a connection among the open ones; it is free once this is dropped.
#[derive(Default)]
pub(super) struct Place {
    /// Present until the client's role is known, if anonymous connections are limited.
    pub(super) anonymous: Option<Arc<AnonymousPlace>>,
    _slot: Slot,
}

/// The place of a connection among the anonymous ones.
pub(super) struct AnonymousPlace {
    /// Cancelled when the connection has to end at once.
    evicted: CancellationToken,
    _slot: Slot,
}

impl Place {
    /// Does `work`; stops and returns none if the connection has to make room for another.
    pub(super) async fn unless_evicted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match &self.anonymous {
            Some(place) => place.evicted.run_until_cancelled(work).await,
            None => Some(work.await),
        }
    }
}

impl OpenConnections {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Returns a place for a connection from `remote`, unless there are too many besides these `total` in all.
    pub(super) fn admit(&mut self, remote: SocketAddr, total: usize) -> Option<Place> {
        let place = self.place(remote, total);
        if place.is_none() {
            self.closed.record(remote, "too many connections; this one is closed");
        }
        place
    }

    fn place(&mut self, remote: SocketAddr, total: usize) -> Option<Place> {
        let address = remote.ip().to_canonical();
        let is_exempt = self.limits.exempt.contains(address);
        let per_address = |limit| if is_exempt { usize::MAX } else { limit };
        let slot = self.by_address.slot(address, per_address(self.limits.per_address), total)?;
        if total >= self.limits.total {
            return None;
        }
        let Some(limits) = self.limits.anonymous else {
            return Some(Place { anonymous: None, _slot: slot });
        };
        let others = self.anonymous.len();
        let per_address = per_address(limits.per_address);
        let anonymous_slot = self.anonymous_by_address.slot(address, per_address, others)?;
        if self.make_room(limits.total) {
            self.closed.record(remote, "too many connections without a role; the oldest is closed");
        }
        let evicted = CancellationToken::new();
        let anonymous = Arc::new(AnonymousPlace { evicted, _slot: anonymous_slot });
        self.anonymous.push_back(Arc::downgrade(&anonymous));
        Some(Place { anonymous: Some(anonymous), _slot: slot })
    }

    /// Evicts the oldest anonymous connection if there are `limit`. Returns true if it did.
    fn make_room(&mut self, limit: usize) -> bool {
        if self.anonymous.len() >= limit {
            self.anonymous.retain(|place| place.strong_count() > 0);
        }
        let is_full = self.anonymous.len() >= limit;
        if is_full && let Some(oldest) = self.anonymous.pop_front().and_then(|it| it.upgrade()) {
            oldest.evicted.cancel();
        }
        is_full
    }
}

/// One of the open connections from an address, which share it: its references are their number.
type Slot = Arc<()>;

/// The number of open connections from each address.
#[derive(Default)]
struct AddressSlots(HashMap<IpAddr, Slot>);

impl AddressSlots {
    /// Returns a slot for one more connection from `address`, unless it has `limit`. There are `total` in all.
    fn slot(&mut self, address: IpAddr, limit: usize, total: usize) -> Option<Slot> {
        // Addresses without connections are removed once they are the larger part.
        if self.0.len() > 2 * total + 16 {
            self.0.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        let slot = self.0.entry(address).or_default();
        (Arc::strong_count(slot) <= limit).then(|| slot.clone())
    }
}

/// Logs connections that are closed because there are too many, one a second: a flood of them must not fill the disk.
struct ClosedLog {
    lines: TokenBucket,
    /// The number since the last line.
    closed: u64,
}

impl Default for ClosedLog {
    fn default() -> Self {
        Self { lines: TokenBucket::new(Rate::per_second(1)), closed: 0 }
    }
}

impl ClosedLog {
    /// Records one because of the connection from `remote`.
    fn record(&mut self, remote: SocketAddr, event: &str) {
        self.closed += 1;
        if self.lines.take(Clock::system().monotonic()).is_ok() {
            let closed = std::mem::take(&mut self.closed);
            tracing::warn!(%remote, closed, "{event}");
        }
    }
}
