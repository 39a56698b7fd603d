//! Whom a request is from, and how much one may ask (netboot specification, H11, H12 and G8).

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::Request;
use axum::http::request::Parts;
use runtime::forwarded::{Caller, Trusted};
use runtime::limit::{Limit, TooMany};
use runtime::serve::Ends;

/// How long one who was refused too often is not listened to.
const PENALTY: Duration = Duration::from_secs(60);

/// Where a request comes from: the peer, or for whom a trusted proxy asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source(pub(super) IpAddr);

/// How often one source may ask.
#[derive(Debug)]
pub(super) struct Limits {
    /// Scripts: 10 a second.
    scripts: Limit<IpAddr>,
    /// Refusals: 30 a minute.
    refusals: Limit<IpAddr>,
    /// One penalty at a time.
    penalties: Limit<IpAddr>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            scripts: Limit::new(Duration::from_millis(100), 10),
            refusals: Limit::new(Duration::from_secs(2), 30),
            penalties: Limit::new(PENALTY, 1),
        }
    }
}

impl Limits {
    /// Whether `source` may ask for `path`.
    pub(super) fn admit(&self, source: IpAddr, path: &str, now: Instant) -> Result<(), TooMany> {
        if self.penalties.is_full(&source, now) {
            return Err(TooMany);
        }
        let script = path == "/ipxe" || path.ends_with("/auto.ipxe");
        if script { self.scripts.take(source, now) } else { Ok(()) }
    }

    /// Counts a refusal; one too many begins the penalty.
    pub(super) fn refused(&self, source: IpAddr, now: Instant) {
        if self.refusals.take(source, now).is_err() {
            tracing::warn!(%source, "refused too often: not listened to for a minute");
            let _already = self.penalties.take(source, now);
        }
    }
}

/// Where `request` comes from. A header that cannot be read leaves the proxy itself, which is no machine.
pub(super) fn source<B>(request: &Request<B>, trusted: &Trusted) -> Option<IpAddr> {
    let peer = request.extensions().get::<Ends>()?.remote.ip();
    let caller = Caller::of(peer, request.headers(), trusted);
    Some(caller.map_or(peer.to_canonical(), |caller| caller.address))
}

impl<S: Sync> FromRequestParts<S> for Source {
    type Rejection = Infallible;

    /// Nobody's address where nobody has looked.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let nobody = Self(std::net::Ipv4Addr::UNSPECIFIED.into());
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(nobody))
    }
}
