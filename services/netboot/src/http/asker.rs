//! Whom a request is from, and how much one may ask (netboot specification, H11, H12 and G8).

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::forwarded::{Caller, Trusted};
use runtime::limit::{Limit, TooMany};
use runtime::serve::Ends;

use crate::boots::Boots;

/// The longest request line's target, in octets: the method and the version take the rest of 4096.
const TARGET: usize = 4096 - 32;
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
    fn admit(&self, source: IpAddr, path: &str, now: Instant) -> Result<(), TooMany> {
        if self.penalties.is_full(&source, now) {
            return Err(TooMany);
        }
        let script = path == "/ipxe" || path.ends_with("/auto.ipxe");
        if script { self.scripts.take(source, now) } else { Ok(()) }
    }

    /// Counts a refusal; one too many begins the penalty.
    fn refused(&self, source: IpAddr, now: Instant) {
        if self.refusals.take(source, now).is_err() {
            tracing::warn!(%source, "refused too often: not listened to for a minute");
            let _already = self.penalties.take(source, now);
        }
    }
}

/// Finds out who asks, and answers those who ask too much.
pub(super) async fn judge(
    State((limits, boots)): State<(Arc<Limits>, Arc<Boots>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(source) = source(&request, &boots.site().serving.trusted_proxies) else {
        return StatusCode::FORBIDDEN.into_response();
    };
    if request.uri().path_and_query().is_some_and(|target| target.as_str().len() > TARGET) {
        return StatusCode::URI_TOO_LONG.into_response();
    }
    let limited = boots.site().rate_limits;
    if limited && limits.admit(source, request.uri().path(), Instant::now()).is_err() {
        return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "5")]).into_response();
    }
    request.extensions_mut().insert(Source(source));
    let answer = next.run(request).await;
    if matches!(answer.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
        limits.refused(source, Instant::now());
    }
    answer
}

/// Where `request` comes from. A header that cannot be read leaves the proxy itself, which is no machine.
fn source(request: &Request, trusted: &Trusted) -> Option<IpAddr> {
    let peer = request.extensions().get::<Ends>()?.remote.ip();
    let caller = Caller::of(peer, request.headers(), trusted);
    Some(caller.map_or(peer.to_canonical(), |caller| caller.address))
}

impl<S: Sync> FromRequestParts<S> for Source {
    type Rejection = Infallible;

    /// Nobody's address where [`judge`] has not looked.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let nobody = Self(std::net::Ipv4Addr::UNSPECIFIED.into());
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(nobody))
    }
}
