//! The path of every request: its client, its limits and its metrics.
//!
//! Scripts are answered here, before the router: machines ask for them by the rack, and routing takes as long as rendering.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Bytes, HttpBody};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Router};
use futures_util::future::{Either, Ready, ready};
use tower::{Service, ServiceExt as _};

use super::Http;
use super::rate_limit::{self, Limits, Source};

/// Octets of the longest target of a request line: method and version take the rest of 4096.
const MAX_TARGET_BYTES: usize = 4096 - 32;

/// Boot HTTP as a service. Clones share it.
#[derive(Clone)]
pub struct BootHttp(Arc<Inner>);

struct Inner {
    http: Arc<Http>,
    limits: Limits,
    routes: Router,
}

impl fmt::Debug for BootHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.http.fmt(f)
    }
}

type Answer = Result<Response, Infallible>;

impl BootHttp {
    pub(super) fn new(http: Arc<Http>, routes: Router) -> Self {
        Self(Arc::new(Inner { http, limits: Limits::default(), routes }))
    }
}

impl<B> Service<Request<B>> for BootHttp
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Answer>, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (inner, route) = (&self.0, route(request.uri().path()));
        let answered = match inner.admit(&request) {
            Ok(source) => match inner.http.fast_path(&request, source) {
                Some(answer) => inner.count_refusal(source, answer),
                None => {
                    request.extensions_mut().insert(Source(source));
                    let (inner, routed) = (inner.clone(), inner.routes.clone().oneshot(request));
                    return Either::Right(Box::pin(async move {
                        let answer = inner.count_refusal(source, routed.await?);
                        Ok(inner.counted(route, answer))
                    }));
                }
            },
            Err(status) => refused(status),
        };
        Either::Left(ready(Ok(inner.counted(route, answered))))
    }
}

impl Inner {
    /// Returns the address of the client, or the status that refuses it.
    fn admit<B>(&self, request: &Request<B>) -> Result<IpAddr, StatusCode> {
        let site = self.http.boots.site();
        let source = rate_limit::source(request, &site.serving.trusted_proxies);
        let source = source.ok_or(StatusCode::FORBIDDEN)?;
        if request
            .uri()
            .path_and_query()
            .is_some_and(|target| target.as_str().len() > MAX_TARGET_BYTES)
        {
            return Err(StatusCode::URI_TOO_LONG);
        }
        if site.rate_limits {
            let admitted = self.limits.admit(source, request.uri().path(), Instant::now());
            admitted.map_err(|_| StatusCode::TOO_MANY_REQUESTS)?;
        }
        Ok(source)
    }

    /// Counts a refusal towards the limit of its client.
    fn count_refusal(&self, source: IpAddr, answer: Response) -> Response {
        if matches!(answer.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
            self.limits.refused(source, Instant::now());
        }
        answer
    }

    fn counted(&self, route: &'static str, answer: Response) -> Response {
        self.http.metrics.requested(route, answer.status().as_u16());
        answer
    }
}

/// Renders the refusal of a client.
fn refused(status: StatusCode) -> Response {
    match status {
        StatusCode::TOO_MANY_REQUESTS => (status, [(header::RETRY_AFTER, "5")]).into_response(),
        _ => status.into_response(),
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
