//! Requests, as the steps of handling them need them, and as logs show them.

use std::net::{IpAddr, SocketAddr};
use std::time::{Instant, SystemTime};

use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use runtime::client_address::ClientAddress;
use runtime::serve::ConnectionAddresses;
use tinwright::HardwareId;
use tracing::{Level, Span};

use super::refusal::Refusal;
use super::route::Route;
use super::{Service, session};
use crate::contents;

/// A request over HTTP.
pub(super) struct HttpRequest<'r> {
    /// The other end of the connection.
    pub(super) peer: SocketAddr,
    /// Its head.
    pub(super) head: &'r Parts,
    /// The route and the path; `None` if the path is malformed.
    pub(super) route: Option<(Route, &'r [&'r str])>,
    /// The span of its log lines; none if probably nothing is logged.
    pub(super) span: Span,
}

impl<'r> HttpRequest<'r> {
    pub(super) fn new(peer: SocketAddr, head: &'r Parts, path: Option<&'r [&'r str]>) -> Self {
        let route = path.map(|path| (Route::of(path), path));
        let mut new = Self { peer, head, route, span: Span::none() };
        let has_effects = route.is_some_and(|(route, _)| route.has_effects());
        if has_effects || tracing::enabled!(target: "metadata::access", Level::DEBUG) {
            new.span = new.new_span();
        }
        new
    }

    /// Returns the name of the route in metrics.
    pub(super) fn label(&self) -> &'static str {
        self.route.map_or("other", |(route, path)| route.label(path))
    }

    fn new_span(&self) -> Span {
        let Parts { method, uri, headers, .. } = self.head;
        tracing::info_span!(
            "request",
            peer = %self.peer,
            %method,
            path = contents::redacted(uri.path()),
            session = session::has_token(headers),
            user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()),
            machine.id = tracing::field::Empty,
        )
    }
}

/// The client of a request over HTTP or gRPC, and the time of the request.
#[derive(Clone, Copy)]
pub(super) struct Client<'r> {
    pub(super) peer: IpAddr,
    /// True if the request came through a proxy that is not trusted.
    pub(super) forwarded: bool,
    pub(super) headers: &'r HeaderMap,
    /// The address of ours that it connected to, if known.
    pub(super) listener: Option<SocketAddr>,
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    /// Its address, in canonical form.
    pub(super) address: IpAddr,
    request: Option<&'r HttpRequest<'r>>,
}

impl Client<'_> {
    /// Calls `log` in the request's span, which is created if it has none yet: most requests log nothing.
    pub(super) fn log(&self, machine: HardwareId, log: impl FnOnce()) {
        let Some(request) = self.request.filter(|request| request.span.is_none()) else {
            return log();
        };
        let span = request.new_span();
        span.record("machine.id", tracing::field::display(machine));
        span.in_scope(log);
    }
}

impl Service {
    /// Returns the client of a request from `peer`.
    pub(super) fn client<'r>(
        &self,
        peer: SocketAddr,
        headers: &'r HeaderMap,
        extensions: &Extensions,
        request: Option<&'r HttpRequest<'r>>,
    ) -> Result<Client<'r>, Refusal> {
        let peer = peer.ip().to_canonical();
        let client = ClientAddress::of(peer, headers, &self.config.trusted_proxies);
        let ClientAddress { address, forwarded } = client.map_err(|_| Refusal::Malformed)?;
        let listener = extensions.get::<ConnectionAddresses>().map(|peers| peers.local);
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        Ok(Client { peer, forwarded, headers, listener, now, wall, address, request })
    }
}
