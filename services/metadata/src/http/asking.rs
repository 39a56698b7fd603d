//! A request, as the steps of its answer need it, and as logs show it.

use std::net::SocketAddr;
use std::time::Instant;

use axum::http::header;
use axum::http::request::Parts;
use tinwright::HardwareId;
use tracing::{Level, Span};

use super::route::Route;
use super::session;
use super::wire::Wire;
use crate::contents;

/// A request.
pub(super) struct Asking<'r> {
    /// Who is at the other end of the connection.
    pub(super) peer: SocketAddr,
    /// The connection, where there is one.
    pub(super) wire: Option<&'r Wire>,
    /// What is asked.
    pub(super) head: &'r Parts,
    /// For what; nothing where that is no path.
    pub(super) what: Option<(Route, &'r [&'r str])>,
    /// When.
    pub(super) now: Instant,
    /// What its log lines stand in; none where there is likely to be no line.
    pub(super) span: Span,
}

impl<'r> Asking<'r> {
    /// `head`, asked for `path` over `wire` by `peer`.
    pub(super) fn new(
        peer: SocketAddr,
        wire: Option<&'r Wire>,
        head: &'r Parts,
        path: Option<&'r [&'r str]>,
    ) -> Self {
        let what = path.map(|path| (Route::of(path), path));
        let mut new = Self { peer, wire, head, what, now: Instant::now(), span: Span::none() };
        let acts = what.is_some_and(|(route, _)| route.acts());
        if acts || tracing::enabled!(target: "metadata::access", Level::DEBUG) {
            new.span = new.shown();
        }
        new
    }

    /// What the request is counted as.
    pub(super) fn label(&self) -> &'static str {
        self.what.map_or("other", |(route, path)| route.label(path))
    }

    /// Does `log` in the request's span, which is made now if it is not there yet: most requests need none.
    pub(super) fn log(&self, machine: HardwareId, log: impl FnOnce()) {
        if !self.span.is_none() {
            return log();
        }
        let span = self.shown();
        span.record("machine.id", tracing::field::display(machine));
        span.in_scope(log);
    }

    fn shown(&self) -> Span {
        let Parts { method, uri, headers, .. } = self.head;
        tracing::info_span!(
            "request",
            peer = %self.peer,
            %method,
            path = contents::shown(uri.path()),
            session = session::has_token(headers),
            user_agent = ?headers.get(header::USER_AGENT),
            machine.id = tracing::field::Empty,
        )
    }
}
