//! Limits on the connections of a listener, and the connections that count against them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::HANDSHAKE_TIMEOUT;
use super::anonymous::{AnonymousConnections, AnonymousLimits, AnonymousPlace, UnknownClient};
use super::sources::{Slot, SourceSlots};
use crate::authority::SiteAuthority;
use crate::client_address::TrustedProxies;
use crate::clock::{Clock, sleep_until};
use crate::network;
use crate::revocation::Revocations;
use crate::telemetry::LimitedLog;

/// The most calls that one connection may have open, unless limited: in the process, one connection carries all of a client's.
const MAX_CONCURRENT_STREAMS: u32 = 4096;
/// The largest head of an HTTP/1 request, unless limited: what hyper allows by itself.
const MAX_HEAD_BYTES: usize = 408 * 1024;

/// Limits on connections from outside. By default their number is not limited.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// The most connections at a time.
    pub total: usize,
    /// Maximum number of connections from one source: an IPv4 address, or an IPv6 network.
    pub per_source: usize,
    /// Maximum number of connections from one IPv6 network of 64 bits, if a source is smaller: a
    /// machine may have many addresses of its network.
    pub per_ipv6_network: usize,
    /// Length of the prefix of an IPv6 network that is one source: 64 where a client may have all
    /// addresses of such a network, 128 where each address is a client of its own.
    pub ipv6_prefix_length: u8,
    /// Proxies, which have connections for many clients: limits per source are not for them.
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
            per_source: usize::MAX,
            per_ipv6_network: usize::MAX,
            ipv6_prefix_length: 128,
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

/// The open connections of a listener.
#[derive(Default)]
pub(super) struct OpenConnections {
    limits: ConnectionLimits,
    by_source: SourceSlots,
    /// The connections from IPv6 addresses, by their networks of 64 bits.
    by_ipv6_network: SourceSlots,
    anonymous: AnonymousConnections,
    closed: LimitedLog,
}

/// The place of a connection among the open ones; it is free once this is dropped.
pub(super) struct Place {
    /// None if anonymous connections are not limited.
    anonymous: Option<Arc<AnonymousPlace>>,
    _slot: Slot,
    /// None for an IPv4 address, and for a proxy.
    _network_slot: Option<Slot>,
}

impl Place {
    /// Ends the limits on anonymous connections: the client has a role.
    pub(super) fn set_identified(&mut self) {
        self.anonymous = None;
    }

    /// Returns the handle by which a request can make the client known.
    pub(super) fn unknown_client(&self) -> Option<UnknownClient> {
        self.anonymous.as_ref().map(AnonymousPlace::unknown_client)
    }

    /// True if the connection has to make room for another.
    #[cfg(test)]
    pub(super) fn is_evicted(&self) -> bool {
        self.anonymous.as_ref().is_some_and(|place| place.evicted.is_cancelled())
    }

    /// Waits for the end of the connection's lifetime from now on; for ever if the client becomes known before.
    pub(super) async fn expired(&self) {
        match &self.anonymous {
            Some(place) => self.anonymous_for(place.lifetime).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the connection has been anonymous for `time` from now on; for ever if its client
    /// is known, or becomes known before.
    pub(super) async fn anonymous_for(&self, time: Duration) {
        if let Some(place) = &self.anonymous {
            let end = Clock::system().monotonic() + time;
            if place.identified.run_until_cancelled(sleep_until(Some(end))).await.is_some() {
                return;
            }
        }
        std::future::pending().await
    }

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
            log_closed(&self.closed, remote, "too many connections; this one is closed");
        }
        place
    }

    fn place(&mut self, remote: SocketAddr, total: usize) -> Option<Place> {
        let limits = &self.limits;
        let is_exempt = limits.exempt.contains(remote.ip());
        let source = network::source(remote.ip(), limits.ipv6_prefix_length);
        let network = Some(network::limited_source(remote.ip()));
        let network = network.filter(|network| network.is_ipv6() && !is_exempt);
        let has_share = !is_exempt && self.by_source.count(source) >= limits.per_source;
        let is_full = |network| self.by_ipv6_network.count(network) >= limits.per_ipv6_network;
        if total >= limits.total || has_share || network.is_some_and(is_full) {
            return None;
        }
        let anonymous = limits.anonymous.map(|limits| AnonymousLimits {
            per_source: if is_exempt { usize::MAX } else { limits.per_source },
            ..limits
        });
        Some(Place {
            anonymous: anonymous.map(|limits| self.anonymous_place(remote, source, &limits)),
            _slot: self.by_source.slot(source),
            _network_slot: network.map(|network| self.by_ipv6_network.slot(network)),
        })
    }

    /// Returns a place among the anonymous connections for the one from `remote`, which counts for
    /// `source`. Evicts another connection if there are too many.
    fn anonymous_place(
        &mut self,
        remote: SocketAddr,
        source: IpAddr,
        limits: &AnonymousLimits,
    ) -> Arc<AnonymousPlace> {
        if self.anonymous.make_room(source, limits) {
            let event = "too many connections of unknown clients; one of them is closed";
            log_closed(&self.closed, remote, event);
        }
        self.anonymous.add(source, limits.lifetime)
    }
}

/// Logs `event` because of the connection from `remote`, if the limit of lines allows it.
fn log_closed(log: &LimitedLog, remote: SocketAddr, event: &str) {
    if let Some(closed) = log.count(Clock::system().monotonic()) {
        tracing::warn!(%remote, closed, "{event}");
    }
}
