//! The metadata service over HTTP: finds the machine behind a request, and answers it.
//!
//! A request is checked in this order. Each check may refuse it, and a refusal has no body:
//!
//! ```text
//! host ─▶ path ─▶ method ─▶ client ─▶ machine ─▶ rate limit ─▶ source ─┬─▶ phone home: POST
//!                                                                     ├─▶ session: PUT a token
//!                                                                     └─▶ token, forwarded? ─▶ contents: GET
//! ```
//!
//! Calls over gRPC are checked like a GET; see `hegel`.
//!
//! A wrong path and an unknown address get the same response. The machine is looked up for each request, so a connection that
//! outlives an instance never serves the next instance's data to the last one's token.

mod access;
mod explain;
mod first_access;
mod health;
mod hegel;
mod limits;
mod listen;
mod phone_home;
mod refusal;
mod request;
mod response;
mod route;
mod session;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use runtime::Clock;
use runtime::neighbour::{Neighbours, SourceCheck};
use runtime::serve::HopLimit;
use tracing::Instrument as _;

use crate::contents::{Contents, RequestContext, document, lookup_id};
use crate::index::{Index, Lookup};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::path::Path;
use crate::token::Tokens;
use first_access::{AccessEvent, FirstAccesses};
use limits::Limits;
use refusal::Refusal;
use request::{Client, HttpRequest};
use route::Route;

pub use hegel::Hegel;
pub use listen::{serve, serve_calls};
pub use phone_home::{NotStored, PhoneHome, PhoneHomeCall};
pub use route::is_reserved_path;
pub use runtime::client_address::{TrustedProxies, TrustsEveryone};

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct Config {
    /// The proxies whose forwarding headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// True to refuse secrets to forwarded requests: an open proxy on the machine could be used to read them.
    pub refuse_forwarded: bool,
    /// The accepted values of the `Host` header, without port; empty for any. Protects against DNS rebinding in browsers.
    pub allowed_hosts: Vec<String>,
    /// The check of the source address, where the machine's policy sets none.
    pub source_check: SourceCheck,
    /// True if the requests of a machine are rate limited.
    pub rate_limits: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            trusted_proxies: TrustedProxies::default(),
            refuse_forwarded: true,
            allowed_hosts: Vec::new(),
            source_check: SourceCheck::default(),
            rate_limits: true,
        }
    }
}

/// The metadata service.
pub struct Service {
    /// The metrics that it updates.
    pub metrics: Metrics,
    /// Looks up the owners of addresses; `None` if nothing can.
    pub neighbours: Option<Arc<dyn Neighbours>>,
    /// The documents that it serves.
    pub contents: Contents,
    index: Arc<Index>,
    tokens: Tokens,
    phone_home: Arc<dyn PhoneHome>,
    config: Config,
    limits: Limits,
    first_accesses: FirstAccesses,
    clock: Clock,
    started: Instant,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Service {
    /// A service for the machines in `index`, which reports phone-home calls to `phone_home`.
    pub fn new(
        index: Arc<Index>,
        tokens: Tokens,
        phone_home: Arc<dyn PhoneHome>,
        config: Config,
        clock: Clock,
    ) -> Self {
        Self {
            metrics: Metrics::default(),
            neighbours: None,
            contents: Contents::default(),
            index,
            tokens,
            phone_home,
            limits: Limits::new(config.rate_limits),
            config,
            first_accesses: FirstAccesses::default(),
            started: clock.monotonic(),
            clock,
        }
    }

    /// Returns the response to a request from `peer`.
    pub async fn respond(&self, peer: SocketAddr, request: Request) -> Response {
        let started = self.clock.monotonic();
        let (head, body) = request.into_parts();
        let path = Path::parse(head.uri.path());
        let path = path.as_ref().map(Path::segments);
        let request = HttpRequest::new(peer, &head, path.as_deref());
        let result = self.dispatch(&request, body).instrument(request.span.clone()).await;
        let refusal = result.as_ref().err().copied();
        let response = result.unwrap_or_else(Refusal::into_response);
        request.span.in_scope(|| {
            self.record_outcome(request.label(), started, response.status(), refusal);
        });
        response::with_common_headers(response)
    }

    /// Counts and logs the outcome of a request.
    fn record_outcome(
        &self,
        route: &'static str,
        started: Instant,
        status: StatusCode,
        refusal: Option<Refusal>,
    ) {
        let elapsed = self.clock.monotonic().saturating_duration_since(started);
        self.metrics.answered(route, status.as_u16(), elapsed);
        if let Some(reason) = refusal.and_then(Refusal::reason) {
            self.metrics.denied(reason);
        }
        tracing::debug!(target: "metadata::access", status = status.as_u16(), "answered");
    }

    async fn dispatch(&self, request: &HttpRequest<'_>, body: Body) -> Result<Response, Refusal> {
        let head = request.head;
        self.check_host(&head.headers, &head.uri)?;
        let (route, path) = request.route.ok_or(Refusal::NotFound)?;
        route.check_method(&head.method)?;
        let client = self.client(request.peer, &head.headers, &head.extensions, Some(request))?;
        if route == Route::Health {
            let uptime = client.now.saturating_duration_since(self.started);
            return Ok(health::response(&self.index, path, uptime));
        }
        let lookup_id = lookup_id(path);
        let Some(machine) = self.find_machine(&client, lookup_id)? else {
            return route.response_to_unknown_caller();
        };
        request.span.record("machine.id", tracing::field::display(machine.id));
        // The lookup id is a secret of the instance: it is accepted from any address.
        if lookup_id.is_none() {
            self.check_source(&machine, &client).await?;
        }
        match route {
            Route::Events => self.log_progress(&machine, &client, body).await,
            Route::PhoneHome => self.accept_phone_home(&machine, &client, body).await,
            Route::Token => {
                let response = self.open_session(&machine, &client)?;
                Ok(limit_hops(&machine, head.extensions.get(), response))
            }
            Route::DatedToken => Err(Refusal::Forbidden("dated_token")),
            // Here an OpenStack instance posts its password for the owner. None is stored.
            Route::Password if head.method == Method::POST => Err(Refusal::Conflict),
            Route::Tree | Route::Password | Route::Health => {
                self.read(&machine, &client, path).await
            }
        }
    }

    /// Returns the machine with the secret `lookup_id`, else the one that has the client's address; `None` if there is none.
    fn find_machine(
        &self,
        client: &Client<'_>,
        lookup_id: Option<&str>,
    ) -> Result<Option<Arc<Machine>>, Refusal> {
        let found = match lookup_id {
            Some(id) => self.index.lookup_named(id, client.now),
            None => self.index.lookup(client.address, client.now),
        };
        match found {
            Lookup::NotReady => Err(Refusal::NotReady),
            Lookup::Unknown => {
                self.limits.unknown_callers.take(client.address, client.now)?;
                self.metrics.unknown_caller(client.listener);
                Ok(None)
            }
            Lookup::Found { machine, .. } => {
                self.limits.requests.take(machine.id, client.now)?;
                Ok(Some(machine))
            }
        }
    }

    /// Returns the document at `path`.
    async fn read(
        &self,
        machine: &Machine,
        client: &Client<'_>,
        path: &[&str],
    ) -> Result<Response, Refusal> {
        let (family, is_secret) = (self.contents.family(path), self.contents.is_secret(path));
        self.check_policy(machine, client, family, is_secret)?;
        let host = client.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let context = RequestContext { host, trusted: self.is_trusted(machine, client) };
        let machine = &*self.visible(machine, client);
        let (body, event) = match self.contents.endpoints.at(path) {
            Some(filter) => {
                let document = document::hardware(machine, context).to_string();
                let filtered = self.contents.endpoints.answer(filter, document).await;
                let body = filtered.inspect_err(|failure| {
                    client.log(machine.id, || tracing::warn!(%failure, "custom endpoint failed"));
                })?;
                (body, Some(AccessEvent::UserDataRead))
            }
            None => {
                (self.contents.get(machine, path, context), first_access::event_of_reading(path))
            }
        };
        let body = body.ok_or(Refusal::NotFound)?;
        if let Some(event) = event {
            self.record_access(machine, event, client);
        }
        Ok(response::document(body, client.headers))
    }

    fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        let allowed = &self.config.allowed_hosts;
        let in_header = || headers.get(header::HOST)?.to_str().ok()?.parse::<Authority>().ok();
        let is_allowed = allowed.is_empty()
            || uri.authority().cloned().or_else(in_header).is_some_and(|authority| {
                allowed.iter().any(|host| host.eq_ignore_ascii_case(authority.host()))
            });
        if is_allowed { Ok(()) } else { Err(Refusal::Forbidden("host")) }
    }
}

/// Sets the hop limit of the machine's policy for `response`, which is the last one of its connection.
fn limit_hops(
    machine: &Machine,
    connection: Option<&HopLimit>,
    mut response: Response,
) -> Response {
    if let (Some(hops), Some(connection)) = (machine.guard.hop_limit, connection) {
        connection.set(hops);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests;
