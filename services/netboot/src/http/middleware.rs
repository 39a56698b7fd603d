//! The path of every request: its client, its limits and its metrics.
//!
//! Scripts are served here, before the router: whole racks request them at once, and routing takes as long as rendering.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tower::ServiceExt as _;

use super::rate_limit::{self, Limits};
use super::{Http, Source};

/// Octets of the longest target of a request line: method and version take the rest of 4096.
const MAX_TARGET_BYTES: usize = 4096 - 32;

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
                let response = match self.http.fast_path(&request, source) {
                    Some(response) => response,
                    None => {
                        request.extensions_mut().insert(Source(source));
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

    /// Returns the address of the client, or the status that refuses it.
    fn admit<B>(&self, request: &Request<B>) -> Result<IpAddr, StatusCode> {
        let (site, uri) = (self.http.boots.site(), request.uri());
        let source = rate_limit::source(request, &site.serving.trusted_proxies);
        let source = source.ok_or(StatusCode::FORBIDDEN)?;
        if uri.path_and_query().is_some_and(|target| target.as_str().len() > MAX_TARGET_BYTES) {
            return Err(StatusCode::URI_TOO_LONG);
        }
        if site.rate_limits {
            let now = self.http.boots.clock.monotonic();
            let admitted = self.limits.admit(source, uri.path(), now);
            admitted.map_err(|_| StatusCode::TOO_MANY_REQUESTS)?;
        }
        Ok(source)
    }
}

/// Returns the metric label of `path`. The path itself is no label: peers control it.
fn route(path: &str) -> &'static str {
    match path {
        path if path.starts_with("/v1/boot/") => "boot",
        path if path.starts_with("/files/") => "files",
        path if path.starts_with("/iso/") => "iso",
        path if path.ends_with("/autoexec.ipxe") => "autoexec",
        path if path.ends_with("/auto.ipxe") => "script",
        path if path.starts_with("/ipxe/") => "loader",
        _ => "other",
    }
}
