//! The wire's rules: who is asking, what may be asked, and how an answer looks.
//!
//! One request, in this order; each step may refuse, and a refusal has no body:
//!
//! ```text
//! host ─▶ path ─▶ method ─▶ caller ─▶ machine ─▶ limit ─▶ neighbour ─┬─▶ phone home: POST
//!                                                                   ├─▶ session: PUT a token
//!                                                                   └─▶ token, forwarded? ─▶ contents: GET
//! ```
//!
//! Calls over gRPC go the same way as a GET; see `hegel`.
//!
//! A wrong path and an unknown address look alike. Every request looks its machine up anew, so a connection that
//! outlives an instance never shows the next one's data to the last one's token.

mod answer;
mod asking;
mod explain;
mod health;
mod hegel;
mod limit;
mod listen;
mod phone_home;
mod policy;
mod refusal;
mod route;
mod seen;
mod session;
mod wire;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::{IntoResponse as _, Response};

use crate::contents::{Asked, Contents, document, lookup_id};
use crate::endpoints::{Failure, Filter};
use crate::guard::{Denied, Place, SourceCheck};
use crate::index::{Index, Lookup};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::neighbour::Neighbours;
use crate::path::Path;
use crate::token::Tokens;
use crate::tree::Body as Found;
use asking::Asking;
use limit::Limits;
use refusal::Refusal;
use route::Route;
use runtime::client_address::ClientAddress;
use seen::{Event, Seen};
use tracing::Instrument as _;
use wire::Wire;

pub use route::is_reserved_path;

pub use explain::Subject;
pub use hegel::Hegel;
pub use listen::{serve, serve_calls};
pub use phone_home::{Call, NotStored, PhoneHome};
pub use runtime::client_address::{TrustedProxies, TrustsEveryone};

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose word about a client's address is believed.
    pub trusted_proxies: TrustedProxies,
    /// Whether secrets are kept from requests that somebody passed on: a proxy on the machine, misused to reach us.
    pub refuse_forwarded: bool,
    /// The hosts that may be asked for, without port; empty for any. Guards browsers against rebound names.
    pub allowed_hosts: Vec<String>,
    /// What a machine has to be known by besides its address, where its own policy does not say.
    pub source_check: SourceCheck,
    /// Whether there is a limit to how often each machine may ask.
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

/// Answers machines.
pub struct Service {
    index: Arc<Index>,
    tokens: Tokens,
    phone_home: Arc<dyn PhoneHome>,
    config: Config,
    limits: Limits,
    seen: Seen,
    metrics: Metrics,
    neighbours: Option<Arc<dyn Neighbours>>,
    contents: Contents,
    started: Instant,
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
        Self {
            index,
            tokens,
            phone_home,
            config,
            limits,
            seen: Seen::default(),
            metrics: Metrics::default(),
            neighbours: None,
            contents: Contents::default(),
            started: Instant::now(),
        }
    }

    /// The same, counting in `metrics`.
    pub fn counted(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// The same, looking at who has an address.
    pub fn watching(self, neighbours: Arc<dyn Neighbours>) -> Self {
        Self { neighbours: Some(neighbours), ..self }
    }

    /// The same, with what the site adds to what machines are told.
    pub fn with(self, contents: Contents) -> Self {
        Self { contents, ..self }
    }

    /// The answer to a request of `peer`'s.
    pub async fn answer(&self, peer: SocketAddr, request: Request) -> Response {
        self.answer_on(None, peer, request).await
    }

    /// The same, over `wire`.
    async fn answer_on(&self, wire: Option<&Wire>, peer: SocketAddr, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let path = Path::parse(head.uri.path());
        let path = path.as_ref().map(Path::segments);
        let asking = Asking::new(peer, wire, &head, path.as_deref());
        let response = self.respond(&asking, body).instrument(asking.span.clone()).await;
        let response = response.unwrap_or_else(|refusal| {
            if let Some(reason) = refusal.reason() {
                self.metrics.denied(reason);
            }
            refusal.into_response()
        });
        let status = response.status().as_u16();
        self.metrics.answered(asking.label(), status, asking.now.elapsed());
        asking.span.in_scope(|| tracing::debug!(target: "metadata::access", status, "answered"));
        answer::finish(response)
    }

    async fn respond(&self, asking: &Asking<'_>, body: Body) -> Result<Response, Refusal> {
        let Asking { peer, wire, head, now, .. } = *asking;
        self.admit_host(&head.headers, &head.uri)?;
        let (route, path) = asking.what.ok_or(Refusal::NotFound)?;
        route.admit(&head.method)?;
        let caller = ClientAddress::of(peer.ip(), &head.headers, &self.config.trusted_proxies)?;
        if route == Route::Health {
            return health::answer(&self.index, path, self.started.elapsed());
        }
        let Some(machine) = self.machine(caller, path, now)? else {
            self.metrics.missed(wire.map(Wire::listener).unwrap_or_default());
            return route.for_nobody();
        };
        asking.span.record("machine.id", tracing::field::display(machine.id));
        // Who knows its secret name may ask from anywhere.
        if lookup_id(path).is_none() {
            let (place, admitted) = self.admitted(&machine, peer, caller).await;
            admitted.map_err(|denied| {
                asking.log(machine.id, || warn_of(caller, place, denied));
                Refusal::Forbidden(denied.label())
            })?;
        }
        match route {
            Route::Events => self.reported(&machine, body).await,
            Route::PhoneHome => self.phoned_home(&machine, body).await,
            Route::Token => {
                let now = SystemTime::now();
                let opened = self.open_session(&machine, caller, &head.headers, now)?;
                limit_hops(&machine, wire, opened)
            }
            Route::DatedToken => Err(Refusal::Forbidden("dated_token")),
            // OpenStack's way to leave a password for the owner: none is kept.
            Route::Password if head.method == Method::POST => Err(Refusal::Conflict),
            Route::Tree | Route::Password | Route::Health => {
                self.look_up(&machine, caller, path, asking).await
            }
        }
    }

    /// The machine that asks, or `None` for an address nobody has. One that knows its secret name may ask from anywhere.
    fn machine(
        &self,
        caller: ClientAddress,
        path: &[&str],
        now: Instant,
    ) -> Result<Option<Arc<Machine>>, Refusal> {
        let found = match lookup_id(path) {
            Some(name) => self.index.lookup_named(name, now),
            None => self.index.lookup(caller.address, now),
        };
        self.counted_in(caller, found, now)
    }

    /// What was `found`, unless `caller` asks too often.
    fn counted_in(
        &self,
        caller: ClientAddress,
        found: Lookup,
        now: Instant,
    ) -> Result<Option<Arc<Machine>>, Refusal> {
        match found {
            Lookup::NotReady => Err(Refusal::NotReady),
            Lookup::Unknown => Ok(self.limits.misses.take(caller.address, now).map(|()| None)?),
            Lookup::Found { machine, .. } => {
                Ok(self.limits.requests.take(machine.id, now).map(|()| Some(machine))?)
            }
        }
    }

    /// Refuses who has the machine's address but is not the machine, as far as that can be seen.
    async fn check_source(
        &self,
        machine: &Machine,
        peer: SocketAddr,
        caller: ClientAddress,
    ) -> Result<(), Refusal> {
        let (place, admitted) = self.admitted(machine, peer, caller).await;
        admitted.map_err(|denied| {
            warn_of(caller, place, denied);
            Refusal::Forbidden(denied.label())
        })
    }

    /// Where the caller is, and whether that is the machine.
    async fn admitted(
        &self,
        machine: &Machine,
        peer: SocketAddr,
        caller: ClientAddress,
    ) -> (Place, Result<(), Denied>) {
        let check = machine.guard.source.unwrap_or(self.config.source_check);
        let place = self.place(check, peer, caller).await;
        (place, check.admits(machine.macs(), place))
    }

    async fn place(&self, check: SourceCheck, peer: SocketAddr, caller: ClientAddress) -> Place {
        let address = caller.address;
        let Some(neighbours) = &self.neighbours else { return Place::Unseen };
        match check {
            SourceCheck::Port if self.leased_at_port(address) => {
                return Place::AtPort;
            }
            SourceCheck::Address | SourceCheck::Port => return Place::Unseen,
            SourceCheck::OnLink | SourceCheck::Neighbour => {}
        }
        if peer.ip().to_canonical() != address {
            return Place::Beyond;
        }
        if address.is_loopback() {
            return Place::Here;
        }
        if let Some(place) = neighbours.known(address) {
            return place;
        }
        let neighbours = neighbours.clone();
        let looked = tokio::task::spawn_blocking(move || neighbours.place(address)).await;
        // Nobody is let in by a failure.
        looked.unwrap_or(Place::Nobody)
    }

    fn leased_at_port(&self, address: IpAddr) -> bool {
        self.index.lease(address, Instant::now()).is_some_and(|lease| lease.at_port)
    }

    async fn look_up(
        &self,
        machine: &Machine,
        caller: ClientAddress,
        path: &[&str],
        asking: &Asking<'_>,
    ) -> Result<Response, Refusal> {
        let (headers, now) = (&asking.head.headers, SystemTime::now());
        let (family, secret) = (self.contents.family(path), self.contents.is_secret(path));
        self.check_policy(machine, caller, headers, (family, secret), now)?;
        let trusted = self.trusts(machine, caller, headers, now);
        let told = self.told(machine, caller.address, asking.now);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let asked = Asked { host, trusted };
        let (found, event) = match self.contents.endpoints.at(path) {
            Some(filter) => {
                let made = self.filtered(filter, &told, asked).await;
                let made = made.inspect_err(|failure| {
                    asking.log(machine.id, || tracing::warn!(%failure, "nothing was made"));
                });
                (made?, Some(Event::UserDataRead))
            }
            None => (self.contents.get(&told, path, asked), seen::event(path)),
        };
        let body = found.ok_or(Refusal::NotFound)?;
        if let Some(event) = event
            && self.seen.first(machine, event, asking.now)
        {
            asking.log(machine.id, || self.tell(machine, event));
        }
        Ok(answer::ok(body, headers))
    }

    /// What a filter of the site's makes of the hardware that `machine` is.
    async fn filtered(
        &self,
        filter: &Arc<Filter>,
        machine: &Machine,
        asked: Asked<'_>,
    ) -> Result<Option<Found>, Failure> {
        let document = document::hardware(machine, asked).to_string();
        self.contents.endpoints.answer(filter, document).await
    }

    fn admit_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        if self.config.allowed_hosts.is_empty() {
            return Ok(());
        }
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok());
        let asked: Option<Authority> = uri.authority().cloned().or(named);
        let asked = asked.ok_or(Refusal::Forbidden("host"))?;
        let mut allowed = self.config.allowed_hosts.iter();
        let good = allowed.any(|host| host.eq_ignore_ascii_case(asked.host()));
        if good { Ok(()) } else { Err(Refusal::Forbidden("host")) }
    }
}

/// `opened`, so that it dies at the router the machine's policy names.
fn limit_hops(
    machine: &Machine,
    wire: Option<&Wire>,
    mut opened: Response,
) -> Result<Response, Refusal> {
    if let (Some(hops), Some(wire)) = (machine.guard.hop_limit, wire) {
        wire.limit(hops, &mut opened).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "no hop limit can be set");
            Refusal::NotReady
        })?;
    }
    Ok(opened)
}

fn warn_of(caller: ClientAddress, place: Place, denied: Denied) {
    tracing::warn!(address = %caller.address, ?place, reason = %denied, "not the machine");
}

#[cfg(test)]
mod tests;
