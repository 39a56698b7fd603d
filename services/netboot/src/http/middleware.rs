//! The path of every request: its client, its limits and its metrics.
//!
//! Scripts are served here, before the router: whole racks request them at once, and routing takes as long as rendering.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use runtime::client_address::{ClientAddress, TrustedProxies};
use runtime::neighbour::NeighbourCheck;
use runtime::rate_limit::{Rate, RateLimiter};
use runtime::serve::ConnectionAddresses;
use tower::ServiceExt as _;

use super::Http;
use crate::machine_view::PRIVATE_FILES;

/// Prefixes of paths, besides those of scripts, for which the owner of the source is looked up.
const IDENTIFYING: [&str; 3] = ["/images/", "/iso/", PRIVATE_FILES];

/// Octets of the longest target of a request line: method and version take the rest of 4096.
const MAX_TARGET_BYTES: usize = 4096 - 32;
/// A client that was refused too often gets 429 for this time.
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
    /// True if a request of `source` for `path` is within the limits.
    fn admit(&self, source: IpAddr, path: &str, now: Instant) -> bool {
        !self.penalties.is_exhausted(&source, now)
            && (!is_script(path) || self.scripts.take(source, now).is_ok())
    }

    /// Counts a refusal. One too many begins the penalty.
    fn refused(&self, source: IpAddr, now: Instant) {
        if self.refusals.take(source, now).is_err() {
            tracing::warn!(%source, "client refused too often, penalty of a minute");
            let _already = self.penalties.take(source, now);
        }
    }
}

pub(super) struct Middleware {
    pub(super) http: Arc<Http>,
    pub(super) limits: Limits,
    pub(super) routes: Router,
}

impl Middleware {
    /// Responds to a request, and counts it.
    pub(super) async fn respond(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let route = route(request.uri().path());
        let response = match self.admit(&request) {
            Ok(source) => {
                let neighbour = self.neighbour(&request, source).await;
                let response = match self.http.fast_path(&request, (source, neighbour)) {
                    Some(response) => response,
                    None => {
                        request.extensions_mut().insert(source);
                        request.extensions_mut().insert(neighbour);
                        self.routes.clone().oneshot(request).await?
                    }
                };
                if matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
                    self.limits.refused(source, self.http.boots.clock.monotonic());
                }
                response
            }
            Err(status @ StatusCode::TOO_MANY_REQUESTS) => {
                (status, [(header::RETRY_AFTER, "5")]).into_response()
            }
            Err(status) => status.into_response(),
        };
        self.http.metrics.http_response(route, response.status().as_u16());
        Ok(response)
    }

    /// Returns the owner of the address `source` on our link, for a request that needs it. A proxy hides it.
    async fn neighbour<B>(&self, request: &Request<B>, source: IpAddr) -> NeighbourCheck {
        let path = request.uri().path();
        let peer = request.extensions().get::<ConnectionAddresses>();
        let peer = peer.map(|addresses| addresses.remote.ip().to_canonical());
        let identifies = IDENTIFYING.iter().any(|prefix| path.starts_with(prefix));
        if !is_script(path) && !identifies {
            NeighbourCheck::Unchecked
        } else if peer != Some(source) {
            NeighbourCheck::Routed
        } else {
            self.http.boots.owner_of(source).await
        }
    }

    /// Returns the address of the client, or the status that refuses it.
    fn admit<B>(&self, request: &Request<B>) -> Result<IpAddr, StatusCode> {
        let (site, uri) = (&self.http.boots.site, request.uri());
        let source = source(request, &site.serving.trusted_proxies);
        let source = source.ok_or(StatusCode::FORBIDDEN)?;
        if uri.path_and_query().is_some_and(|target| target.as_str().len() > MAX_TARGET_BYTES) {
            return Err(StatusCode::URI_TOO_LONG);
        }
        let clock = &self.http.boots.clock;
        if site.rate_limits && !self.limits.admit(source, uri.path(), clock.monotonic()) {
            return Err(StatusCode::TOO_MANY_REQUESTS);
        }
        Ok(source)
    }
}

/// True if a script is served at `path`.
fn is_script(path: &str) -> bool {
    path == "/ipxe" || path.ends_with("/auto.ipxe")
}

/// Returns the metric label of `path`. The path itself is no label: peers control it.
fn route(path: &str) -> &'static str {
    match path {
        path if path.starts_with("/v1/boot/") => "boot",
        path if path.starts_with("/files/") => "files",
        path if path.starts_with("/images/") => "images",
        path if path.starts_with("/iso/") => "iso",
        path if path.starts_with(PRIVATE_FILES) => "platform",
        path if path.ends_with("/autoexec.ipxe") => "autoexec",
        path if path.ends_with("/auto.ipxe") => "script",
        path if path.starts_with("/ipxe/") => "loader",
        _ => "other",
    }
}

/// Returns the client of `request`. With a header that cannot be parsed it is the proxy, which is no machine.
fn source<B>(request: &Request<B>, trusted: &TrustedProxies) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectionAddresses>()?.remote.ip();
    let caller = || ClientAddress::of(peer, request.headers(), trusted).ok();
    let caller = trusted.contains(peer).then(caller).flatten();
    Some(caller.map_or(peer.to_canonical(), |caller| caller.address))
}
