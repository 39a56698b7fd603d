//! The provider side of Cycle's Infrastructure Abstraction Layer at `/v1`: `docs/ial.md`.
//!
//! ```text
//! request ─▶ route ─▶ body ─▶ wrapper: auth ─▶ Session ─▶ wrapper: request ─▶ calls as the client ─▶ envelope
//! ```
//!
//! - [`routes`], [`wrapper`], [`object`], [`requests`]: a request, decoded strictly. The document of a call is read once its client is known.
//! - [`responses`], [`fault`], [`status`]: the answers, and the faults of services.
//! - [`catalogue`], [`configuration`]: pure conversions. `session`: a client and its services.
//! - `provider`, `location`, `server`, `ip`: the calls.

pub mod catalogue;
pub mod configuration;
pub mod fault;
mod ip;
mod location;
pub mod object;
mod openapi;
mod provider;
pub mod requests;
pub mod responses;
pub mod routes;
mod server;
mod session;
pub mod status;
pub mod wrapper;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderMap, Method, header};
use runtime::Clock;
use runtime::rate_limit::{Rate, RateLimiter};
use runtime::serve::ConnectionEnd;

use self::fault::{Code, Fault};
use self::object::Object;
use self::routes::Endpoint;
use self::session::Session;
use self::wrapper::{Credentials, Wrapper, auth_invalid};
use crate::layers::Source;
use crate::{Door, Gateway, Refusal};
use runtime::unread_body::{finish, read};

/// The largest body of a request.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The longest time until an answer. The layers' is longer, so that this door writes the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Calls with one credential. A platform asks for the state of each machine that is being built
/// every 5 to 10 s, and may ask for all of them at once: this is enough for 400 machines.
const CALLS: Rate = Rate::per_second(80).with_burst(400);
/// Checks of wrong credentials from one address.
const FAILED_CHECKS: Rate = Rate::per_minute(10);
/// The listings without credentials, by source. The platform asks for both every six hours.
const PUBLIC_LISTINGS: Rate = Rate::per_second(2).with_burst(20);
/// The time after which a call above a limit may be repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The same after too many checks of wrong credentials.
const CHECK_DELAY: Duration = Duration::from_secs(6);

/// The settings of the door.
#[derive(Clone, Debug)]
pub struct IalSettings {
    /// True if the listings are answered without credentials.
    pub is_catalogue_public: bool,
    /// True if calls are rate limited.
    pub has_rate_limits: bool,
    /// The clock of rate limits and of states.
    pub clock: Clock,
}

/// The door.
struct Ial {
    gateway: Gateway,
    settings: IalSettings,
    calls: RateLimiter<Arc<str>>,
    failed_checks: RateLimiter<IpAddr>,
    /// Listings without credentials.
    public_listings: RateLimiter<IpAddr>,
}

/// Serves the IAL at `/v1` and `//v1`. Clients request the second if their base URL ends with a
/// slash.
pub fn doors(gateway: &Gateway, settings: IalSettings) -> [Door; 2] {
    let rate = |rate| if settings.has_rate_limits { rate } else { Rate::UNLIMITED };
    let (calls, failed_checks) =
        (RateLimiter::new(rate(CALLS)), RateLimiter::new(rate(FAILED_CHECKS)));
    let public_listings = RateLimiter::new(rate(PUBLIC_LISTINGS));
    let ial = Ial { gateway: gateway.clone(), settings, calls, failed_checks, public_listings };
    let router = Router::new().fallback(answer).with_state(Arc::new(ial));
    ["/v1", "//v1"].map(|prefix| Door {
        name: "ial",
        prefix,
        router: router.clone(),
        max_body_bytes: MAX_BODY_BYTES,
        deadline: DEADLINE + RETRY_DELAY,
        refuse: |refusal| refused(refusal).into_response(),
    })
}

/// Returns the fault of a request that the layers refuse.
fn refused(refusal: &Refusal) -> Fault {
    match refusal {
        Refusal::TooLarge(_) => too_large(),
        Refusal::TooManyRequests => {
            Fault::new(Code::RateLimiting, "too many calls").retry_after(RETRY_DELAY)
        }
        Refusal::Overloaded => {
            Fault::new(Code::NotReady, "temporarily not possible").retry_after(RETRY_DELAY)
        }
        Refusal::Deadline(_) => status::slow(),
        Refusal::MalformedForwarding => {
            Fault::new(Code::InvalidSyntax, "the forwarding header makes no sense")
        }
    }
}

fn too_large() -> Fault {
    Fault { close: true, ..Fault::new(Code::MaxExceeded, "the body has more than 1 MiB") }
}

async fn answer(State(ial): State<Arc<Ial>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    let answered = ial.respond(&parts, &mut body);
    let answered = tokio::time::timeout(DEADLINE, answered).await;
    let answered = answered.unwrap_or_else(|_| Err(status::slow()));
    let mut response = answered.unwrap_or_else(Fault::into_response);
    finish(body, parts.version, &mut response).await;
    response
}

impl Ial {
    /// Answers a request. The body is taken when it is read.
    async fn respond(&self, parts: &Parts, body: &mut Option<Body>) -> Result<Response, Fault> {
        let route = Endpoint::find(&parts.method, parts.uri.path())?;
        if route == Endpoint::OpenApi {
            return Ok(responses::respond(http::StatusCode::OK, openapi::document().into()));
        }
        let incomplete = |text| Fault::new(Code::InvalidSyntax, text);
        let body = read(body, MAX_BODY_BYTES, too_large, incomplete).await?;
        check_media_type(&parts.headers, &body)?;
        if body.is_empty() && (route.is_listing() || parts.method == Method::GET) {
            return self.respond_without_body(route, parts).await;
        }
        let wrapper = Wrapper::read(&body, route == Endpoint::Release)?;
        let credentials = wrapper.credentials.clone();
        if route == Endpoint::Verify {
            return self.verify(credentials, parts).await;
        }
        if route.is_listing() {
            return self.list(route, credentials, parts).await;
        }
        let session = self.session(&credentials.ok_or_else(auth_invalid)?, parts).await?;
        let request = wrapper.request()?;
        self.call(route, &session, &request, parts).await
    }

    async fn call(
        &self,
        route: Endpoint,
        session: &Session,
        request: &Object<'_>,
        parts: &Parts,
    ) -> Result<Response, Fault> {
        let now = self.settings.clock.wall();
        match route {
            Endpoint::Configure => location::configure(session, request).await,
            Endpoint::Provision => server::provision(session, request).await,
            Endpoint::ProvisionStatus => server::provision_status(session, request, now).await,
            Endpoint::Restart => server::restart(session, request, now).await,
            Endpoint::Decommission => server::decommission(session, request).await,
            Endpoint::Allocate => {
                let end = parts.extensions.get::<ConnectionEnd>().cloned();
                ip::allocate(session, request, end).await
            }
            Endpoint::Release => ip::release(session, request).await,
            Endpoint::Verify | Endpoint::Locations | Endpoint::Models | Endpoint::OpenApi => {
                Err(Fault::new(Code::Uri, "there is no such path, or not with this method"))
            }
        }
    }

    /// Answers a listing, or a GET of a status whose document is in the query.
    async fn respond_without_body(
        &self,
        route: Endpoint,
        parts: &Parts,
    ) -> Result<Response, Fault> {
        let credentials = bearer(&parts.headers);
        if route.is_listing() {
            return self.list(route, credentials, parts).await;
        }
        let session = self.session(&credentials.ok_or_else(auth_invalid)?, parts).await?;
        let query: serde_json::Map<_, _> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
                .map(|(name, value)| (name.into_owned(), value.into_owned().into()))
                .collect();
        let wrapped = serde_json::json!({"request": query}).to_string();
        let request = Wrapper::read(wrapped.as_bytes(), false)?.request()?;
        self.call(route, &session, &request, parts).await
    }

    async fn list(
        &self,
        route: Endpoint,
        credentials: Option<Credentials>,
        parts: &Parts,
    ) -> Result<Response, Fault> {
        let session = match credentials {
            Some(credentials) => Some(self.session(&credentials, parts).await?),
            None if self.settings.is_catalogue_public => None,
            None => return Err(auth_invalid()),
        };
        // A listing reads the whole catalogue.
        let now = self.settings.clock.monotonic();
        if let (None, Some(source)) = (&session, source(parts))
            && self.public_listings.take(source, now).is_err()
        {
            return Err(Fault::new(Code::RateLimiting, "too many calls").retry_after(RETRY_DELAY));
        }
        provider::list(route, &self.gateway.backend, session.as_ref()).await
    }

    /// Finds the client of the credentials of a request, and records it in the request. The client
    /// has a number of calls per second, and may act for its hubs only.
    async fn session(&self, credentials: &Credentials, parts: &Parts) -> Result<Session, Fault> {
        let authenticator = &self.gateway.authenticator;
        let client = authenticator.by_fields(&credentials.fields, source(parts)).await;
        let client = client.map_err(|error| {
            // No credential has fields that are too long.
            let is_invalid = error.code() == tonic::Code::InvalidArgument;
            if is_invalid { auth_invalid() } else { status::fault(&error, &auth_invalid()) }
        })?;
        client.identify(&parts.extensions);
        let now = self.settings.clock.monotonic();
        if self.calls.take(client.caller.subject().clone(), now).is_err() {
            return Err(Fault::new(Code::RateLimiting, "too many calls").retry_after(RETRY_DELAY));
        }
        Session::new(client, credentials.hub.clone(), self.gateway.backend.clone())
    }

    /// Checks credentials. Those that cannot order a machine are wrong ones for the platform:
    /// nothing else that it offers could be done with them.
    async fn verify(
        &self,
        credentials: Option<Credentials>,
        parts: &Parts,
    ) -> Result<Response, Fault> {
        let checked = match credentials {
            Some(credentials) => self.session(&credentials, parts).await,
            None => Err(auth_invalid()),
        };
        let valid = match checked {
            Ok(session) => session.may_order(),
            Err(Fault {
                code: Code::AuthInvalid | Code::AuthExpired | Code::Permissions, ..
            }) => false,
            Err(fault) => return Err(fault),
        };
        let now = self.settings.clock.monotonic();
        // Right ones are answered: others at the address may have sent the wrong ones.
        if let Some(source) = source(parts).filter(|_| !valid)
            && self.failed_checks.take(source, now).is_err()
        {
            let fault = Fault::new(Code::RateLimiting, "too many checks of wrong credentials");
            return Err(fault.retry_after(CHECK_DELAY));
        }
        Ok(responses::success(&responses::Verified { valid }))
    }
}

/// Returns the source of the request, for rate limits; none for a request inside the process.
fn source(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<Source>().map(|source| source.0)
}

fn check_media_type(headers: &HeaderMap, body: &[u8]) -> Result<(), Fault> {
    let Some(sent) = headers.get(header::CONTENT_TYPE).filter(|_| !body.is_empty()) else {
        return Ok(());
    };
    let essence = sent.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    if essence.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Fault::new(Code::InvalidContentType, "the body is not application/json"))
}

/// Returns the API key of a request without body.
fn bearer(headers: &HeaderMap) -> Option<Credentials> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() {
        return None;
    }
    let fields = [("api_key".to_owned(), key.to_owned())].into();
    Some(Credentials { fields, hub: None })
}

#[cfg(test)]
mod tests;
