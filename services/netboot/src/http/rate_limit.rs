//! The client of a request, and its limits.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use axum::http::Request;
use runtime::client_address::{ClientAddress, TrustedProxies};
use runtime::rate_limit::{Rate, RateLimiter, TooManyRequests};
use runtime::serve::Peers;

/// Time for which a client that was refused too often gets 429.
const PENALTY: Duration = Duration::from_secs(60);

/// Limits per source.
#[derive(Debug)]
pub(super) struct Limits {
    /// Scripts: 10 a second.
    scripts: RateLimiter<IpAddr>,
    /// Refusals: 30 a minute.
    refusals: RateLimiter<IpAddr>,
    /// One penalty at a time.
    penalties: RateLimiter<IpAddr>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            scripts: RateLimiter::new(Rate::per_second(10)),
            refusals: RateLimiter::new(Rate::per_minute(30)),
            penalties: RateLimiter::new(Rate::new(PENALTY, 1)),
        }
    }
}

impl Limits {
    /// Refuses a request of `source` for `path` that is over a limit.
    pub(super) fn admit(
        &self,
        source: IpAddr,
        path: &str,
        now: Instant,
    ) -> Result<(), TooManyRequests> {
        if self.penalties.is_exhausted(&source, now) {
            return Err(TooManyRequests);
        }
        let script = path == "/ipxe" || path.ends_with("/auto.ipxe");
        if script { self.scripts.take(source, now) } else { Ok(()) }
    }

    /// Counts a refusal. One too many begins the penalty.
    pub(super) fn refused(&self, source: IpAddr, now: Instant) {
        if self.refusals.take(source, now).is_err() {
            tracing::warn!(%source, "client refused too often, penalty of a minute");
            let _already = self.penalties.take(source, now);
        }
    }
}

/// Returns the client of `request`. With a header that cannot be parsed it is the proxy, which is no machine.
pub(super) fn source<B>(request: &Request<B>, trusted: &TrustedProxies) -> Option<IpAddr> {
    let peer = request.extensions().get::<Peers>()?.remote.ip();
    let caller = ClientAddress::of(peer, request.headers(), trusted);
    Some(caller.map_or(peer.to_canonical(), |caller| caller.address))
}
