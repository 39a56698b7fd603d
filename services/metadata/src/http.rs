//! The wire's rules: who is asking, what may be asked, and how an answer looks.
//!
//! One request, in this order; each step may refuse, and a refusal has no body:
//!
//! ```text
//! host ─▶ path ─▶ method ─▶ caller ─▶ machine ─▶ limit ─┬─▶ phone home: POST
//!                                                       ├─▶ session: PUT a token
//!                                                       └─▶ token, forwarded? ─▶ tree: GET
//! ```
//!
//! A wrong path and an unknown address look alike. Every request looks its machine up anew, so a connection that
//! outlives an instance never shows the next one's data to the last one's token.

mod answer;
mod caller;
mod limit;
mod listen;
mod phone_home;
mod refusal;
mod route;
mod session;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Response};

use crate::index::{Index, Lookup};
use crate::machine::Machine;
use crate::path::Path;
use crate::token::Tokens;
use crate::tree;
use caller::Caller;
use limit::Limits;
use refusal::Refusal;
use route::Route;

pub use caller::{Everyone, Trusted};
pub use listen::serve;
pub use phone_home::{Call, NotStored, PhoneHome};

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose word about a client's address is believed.
    pub trusted_proxies: Trusted,
    /// Whether secrets are kept from requests that somebody passed on: a proxy on the machine, misused to reach us.
    pub refuse_forwarded: bool,
    /// The hosts that may be asked for, without port; empty for any. Guards browsers against rebound names.
    pub allowed_hosts: Vec<String>,
    /// Whether there is a limit to how often each machine may ask.
    pub rate_limits: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            trusted_proxies: Trusted::default(),
            refuse_forwarded: true,
            allowed_hosts: Vec::new(),
            rate_limits: true,
        }
    }
}

/// Answers machines. Clones are one service.
#[derive(Clone)]
pub struct Service {
    index: Arc<Index>,
    tokens: Arc<Tokens>,
    phone_home: Arc<dyn PhoneHome>,
    config: Arc<Config>,
    limits: Arc<Limits>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Service {
    /// Answers from `index`, and reports calls home to `phone_home`.
    pub fn new(
        index: Arc<Index>,
        tokens: Tokens,
        phone_home: Arc<dyn PhoneHome>,
        config: Config,
    ) -> Self {
        let limits = if config.rate_limits { Limits::default() } else { Limits::none() };
        let (tokens, config, limits) = (Arc::new(tokens), Arc::new(config), Arc::new(limits));
        Self { index, tokens, phone_home, config, limits }
    }

    /// As a router, to be given each connection's peer as [`ConnectInfo<SocketAddr>`].
    pub fn router(self) -> Router {
        // The tree has its own rules for slashes and escapes, so one handler takes every path.
        Router::new().fallback(handle).with_state(self)
    }

    async fn respond(&self, peer: SocketAddr, request: Request) -> Result<Response, Refusal> {
        let (head, body) = request.into_parts();
        self.admit_host(&head.headers, &head.uri)?;
        let path = Path::parse(head.uri.path()).ok_or(Refusal::NotFound)?;
        let route = Route::of(&path);
        route.admit(&head.method)?;
        let caller = Caller::of(peer.ip(), &head.headers, &self.config.trusted_proxies)?;
        let machine = match self.machine(caller)? {
            Some(machine) => machine,
            None => return route.for_nobody(),
        };
        tracing::Span::current().record("machine.id", tracing::field::display(machine.id));
        match route {
            Route::PhoneHome => self.phoned_home(&machine, body).await,
            Route::Token => self.open_session(&machine, caller, &head.headers, SystemTime::now()),
            Route::DatedToken => Err(Refusal::Forbidden),
            Route::Tree => self.look_up(&machine, caller, &path, &head.headers),
        }
    }

    /// The machine that asks, or `None` for an address nobody has.
    fn machine(&self, caller: Caller) -> Result<Option<Arc<Machine>>, Refusal> {
        let now = Instant::now();
        match self.index.lookup(caller.address, now) {
            Lookup::NotReady => Err(Refusal::NotReady),
            Lookup::Unknown => self.limits.misses.take(caller.address, now).map(|()| None),
            Lookup::Known { machine, .. } => {
                self.limits.requests.take(machine.id, now).map(|()| Some(machine))
            }
        }
    }

    fn look_up(
        &self,
        machine: &Machine,
        caller: Caller,
        path: &Path,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        self.check_session(machine, headers, SystemTime::now())?;
        if caller.forwarded && self.config.refuse_forwarded && tree::is_secret(path) {
            return Err(Refusal::Forbidden);
        }
        let body = tree::get(machine, path).ok_or(Refusal::NotFound)?;
        Ok(answer::ok(body, headers))
    }

    fn admit_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        if self.config.allowed_hosts.is_empty() {
            return Ok(());
        }
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok());
        let asked: Option<Authority> = uri.authority().cloned().or(named);
        let asked = asked.ok_or(Refusal::Forbidden)?;
        let mut allowed = self.config.allowed_hosts.iter();
        let good = allowed.any(|host| host.eq_ignore_ascii_case(asked.host()));
        if good { Ok(()) } else { Err(Refusal::Forbidden) }
    }
}

#[tracing::instrument(skip_all, fields(
    %peer,
    method = %request.method(),
    path = request.uri().path(),
    session = session::has_token(request.headers()),
    user_agent = ?request.headers().get(header::USER_AGENT),
    machine.id,
))]
async fn handle(
    State(service): State<Service>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request<Body>,
) -> Response {
    let response = service.respond(peer, request).await;
    let response = response.unwrap_or_else(|refusal| refusal.into_response());
    tracing::debug!(status = response.status().as_u16(), "answered");
    answer::finish(response)
}

#[cfg(test)]
mod tests;
