//! What every request passes before its door, and its response after it: written once for all doors.
//!
//! ```text
//! request id ─▶ access log, metrics ─▶ rate limit ─▶ place ─▶ size of the body ─▶ deadline ─▶ door
//! ```
//!
//! A request has one of a limited number of places until the body of its response was sent (`places`). A stream of events may be open for
//! hours: once it begins, it has one of the places of streams instead. An upload has one of the places of uploads instead, once its client
//! is known, and then no deadline.
//!
//! A request that is refused here is answered by its door, because each has error documents of its own.

mod access_log;
mod places;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use runtime::client_address::ClientAddress;
use runtime::network::limited_source;
use runtime::rate_limit::{Rate, RateLimiter};
use runtime::serve::ConnectionAddresses;
use tinwright::status;
use tonic::Status;

pub use self::access_log::REQUEST_ID;
use self::access_log::StrangersLog;
pub(crate) use self::places::RequestPlace;
use self::places::{Place, PlacedBody, Places};
use crate::metrics::Metrics;
use crate::{GatewaySettings, errors};
use runtime::unread_body;

/// Maximum number of concurrent requests, without streams of events. A request counts until its
/// response was sent.
const MAX_REQUESTS: usize = 1024;
/// Maximum number of concurrent requests per address.
const MAX_REQUESTS_PER_SOURCE: usize = 128;
/// Minimum age at which a request with an unread response may lose its place among all.
const SURE_TIME: Duration = Duration::from_secs(60);
/// The most streams of events at a time.
const MAX_STREAMS: usize = 1024;
/// The same to one address.
const MAX_STREAMS_PER_SOURCE: usize = 64;
/// Maximum number of concurrent uploads.
const MAX_UPLOADS: usize = 64;
/// Maximum number of concurrent uploads of one tenant, or of one client without a tenant.
const MAX_UPLOADS_PER_OWNER: usize = 8;
/// Requests from one address.
const REQUESTS: Rate = Rate::per_second(500).with_burst(2000);
/// The time after which a request above a limit may be repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A request that the layers refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body has more than this many bytes.
    TooLarge(usize),
    /// There are too many requests from its address, by their rate or at a time.
    TooManyRequests,
    /// There are too many requests at a time.
    Overloaded,
    /// There was no response within this time.
    Deadline(Duration),
    /// The forwarding header of a trusted proxy cannot be read.
    MalformedForwarding,
}

impl Refusal {
    /// Returns the status.
    pub fn status(&self) -> Status {
        match self {
            Self::TooLarge(max) => {
                Status::invalid_argument(format!("the body has more than {max} bytes"))
            }
            Self::TooManyRequests => {
                status::overloaded("too many requests from this address", RETRY_DELAY)
            }
            Self::Overloaded => Status::unavailable("too many requests at a time"),
            Self::Deadline(after) => {
                Status::deadline_exceeded(format!("no response within {after:?}"))
            }
            Self::MalformedForwarding => {
                Status::invalid_argument("the forwarding header makes no sense")
            }
        }
    }

    /// Returns the HTTP status.
    pub fn http_status(&self) -> StatusCode {
        if matches!(self, Self::TooLarge(_)) {
            return StatusCode::PAYLOAD_TOO_LARGE;
        }
        errors::http_status(&self.status())
    }
}

/// The address of a request's client; in its extensions. Rate limits are for an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Source(pub IpAddr);

/// The door that answered; in the extensions of its response.
#[derive(Clone, Copy, Debug)]
struct DoorName(&'static str);

/// What the layers of all doors share.
#[derive(Debug)]
pub(crate) struct LayerState {
    settings: GatewaySettings,
    metrics: Metrics,
    strangers: StrangersLog,
    rates: RateLimiter<IpAddr>,
    requests: Places<IpAddr>,
    streams: Places<IpAddr>,
    uploads: Places<String>,
}

impl LayerState {
    pub(crate) fn new(settings: GatewaySettings, metrics: Metrics) -> Self {
        let is_limited = settings.rate_limits;
        let rates = RateLimiter::new(if is_limited { REQUESTS } else { Rate::UNLIMITED });
        let per_source = |max| if is_limited { max } else { usize::MAX };
        let requests = Places::new(MAX_REQUESTS, per_source(MAX_REQUESTS_PER_SOURCE));
        let requests = requests.with_lifetime(SURE_TIME);
        let streams = Places::new(MAX_STREAMS, per_source(MAX_STREAMS_PER_SOURCE));
        let uploads = Places::new(MAX_UPLOADS, MAX_UPLOADS_PER_OWNER);
        let strangers = StrangersLog::default();
        Self { settings, metrics, strangers, rates, requests, streams, uploads }
    }

    /// Takes a place for an upload of `owner`; none if there are too many uploads.
    pub(crate) fn upload_place(&self, owner: String) -> Option<Place<String>> {
        self.uploads.take(Some(owner), self.settings.clock.monotonic()).ok()
    }
}

/// The layers of one door.
#[derive(Clone)]
pub(crate) struct DoorLayers {
    pub(crate) shared: Arc<LayerState>,
    pub(crate) name: &'static str,
    pub(crate) max_body_bytes: usize,
    pub(crate) deadline: Duration,
    pub(crate) refuse: fn(&Refusal) -> Response,
}

impl DoorLayers {
    /// Returns `routes` behind these layers.
    pub(crate) fn around(self, routes: Router) -> Router {
        let max_body = DefaultBodyLimit::max(self.max_body_bytes);
        routes.layer(max_body).layer(from_fn_with_state(Arc::new(self), limited))
    }

    async fn respond(&self, mut request: Request, door: Next) -> Result<Response, Refusal> {
        let LayerState { requests, streams, .. } = &*self.shared;
        let source = self.source(&request)?;
        source.map(|source| request.extensions_mut().insert(Source(source)));
        let now = || self.shared.settings.clock.monotonic();
        let place = RequestPlace::new(requests.take(source, now())?);
        request.extensions_mut().insert(place.clone());
        if content_length(request.headers()) > Some(self.max_body_bytes as u64) {
            let version = request.version();
            unread_body::drain(request.into_body(), version).await;
            return Err(Refusal::TooLarge(self.max_body_bytes));
        }
        let response = tokio::select! {
            biased;
            response = door.run(request) => response,
            () = place.late(self.deadline) => return Err(Refusal::Deadline(self.deadline)),
        };
        let place = match is_event_stream(&response) {
            true => Some(streams.take(source, now())?),
            false => place.take(),
        };
        Ok(response.map(|body| Body::new(PlacedBody::new(body, place))))
    }

    /// Returns the source of `request`, and counts it there; none for a request inside the process.
    fn source(&self, request: &Request) -> Result<Option<IpAddr>, Refusal> {
        let LayerState { settings, rates, .. } = &*self.shared;
        let Some(peer) = request.extensions().get::<ConnectionAddresses>() else { return Ok(None) };
        let proxies = &settings.trusted_proxies;
        let client = ClientAddress::of(peer.remote.ip(), request.headers(), proxies);
        let source = limited_source(client.map_err(|_| Refusal::MalformedForwarding)?.address);
        let now = settings.clock.monotonic();
        rates.take(source, now).map_err(|_| Refusal::TooManyRequests)?;
        Ok(Some(source))
    }
}

async fn limited(State(layers): State<Arc<DoorLayers>>, request: Request, door: Next) -> Response {
    let (version, has_body) = (request.version(), !request.body().is_end_stream());
    let response = layers.respond(request, door).await;
    let mut response = response.unwrap_or_else(|refusal| {
        let mut response = (layers.refuse)(&refusal);
        if has_body {
            unread_body::close(version, &mut response);
        }
        response
    });
    response.extensions_mut().insert(DoorName(layers.name));
    response
}

/// Returns `router` behind the layers that no request gets around.
pub(crate) fn outermost(shared: Arc<LayerState>, router: Router) -> Router {
    router.layer(from_fn_with_state(shared, access_log::logged))
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
