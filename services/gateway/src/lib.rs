//! The gateway: the doors through which clients use the contract over JSON, and upload images. It stores nothing, and calls the services as its clients.
//!
//! ```text
//! client ─HTTP─▶ layers ─▶ door ─▶ Authenticator ─▶ Client ─gRPC with the client's caller─▶ services
//! ```
//!
//! - [`backend`]: the channels to the services. [`authentication`]: the client of a request, and the calls as this client.
//! - [`layers`]: request ids, access log, metrics, limits and deadlines, once for all doors.
//! - [`errors`]: the HTTP status of each code and reason, and problem documents.
//! - [`mirror`]: the REST mirror at `/api/v1`, by the [`routes`] that the descriptors of the contract give. [`openapi`]: the document that
//!   describes them. [`pages`]: documents and pages over HTTP.
//! - [`ial`]: the provider side of a platform's infrastructure abstraction layer at `/v1`. [`imageapi`]: the ImageAPI of nodes.
//! - [`uploads`]: uploads of images at `/uploads`, which are passed on to the image service.
//! - One module for each door. A [`Door`] is a router below a path, with its limits; [`Gateway::router`] puts the layers around them.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod authentication;
pub mod backend;
pub mod errors;
pub mod ial;
pub mod imageapi;
pub mod layers;
mod metrics;
pub mod mirror;
pub mod openapi;
pub mod pages;
pub mod routes;
#[cfg(test)]
mod test_body;
#[cfg(test)]
mod test_log;
pub mod uploads;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use prometheus_client::registry::Registry;
use runtime::client_address::TrustedProxies;
use runtime::revocation::Revocations;
use runtime::{Caller, Clock};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub use self::authentication::{Authenticator, Client, ClientChannel};
pub use self::backend::Backend;
use self::errors::Problem;
pub use self::layers::Refusal;
use self::layers::{DoorLayers, LayerState, Source};
use self::metrics::Metrics;

/// Timeout of pages and documents.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A door: what is served below one path, and its limits.
pub struct Door {
    /// Its name in logs and metrics.
    pub name: &'static str,
    /// The path below which it serves, such as `/api/v1`. Its router sees paths without it.
    pub prefix: &'static str,
    /// Its routes, with a fallback: the door answers for all paths below its own.
    pub router: Router,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// The longest time until the response begins, unless the door gives back the place of the request.
    pub deadline: Duration,
    /// Answers a request that the layers refuse, in the door's own form.
    pub refuse: fn(&Refusal) -> Response,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The settings of the gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The proxies whose forwarding headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// True if the requests from one address are rate limited.
    pub rate_limits: bool,
    /// The clock for rate limits, and for the end of credentials.
    pub clock: Clock,
    /// Ends open streams.
    pub stop: CancellationToken,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        let trusted_proxies = TrustedProxies::default();
        let (clock, stop) = (Clock::system(), CancellationToken::new());
        Self { trusted_proxies, rate_limits: true, clock, stop }
    }
}

/// What all doors share. Clones share it, too.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The services.
    pub backend: Arc<Backend>,
    /// Finds the clients of requests.
    pub authenticator: Arc<Authenticator>,
    /// Ends open streams.
    pub stop: CancellationToken,
    shared: Arc<LayerState>,
}

impl Gateway {
    /// A gateway to the services of `backend`, which refuses the revoked identities in `revocations`. Its metrics are in `registry`.
    pub fn new(
        backend: Backend,
        revocations: Revocations,
        settings: GatewaySettings,
        registry: &mut Registry,
    ) -> Self {
        let (clock, stop) = (settings.clock.clone(), settings.stop.clone());
        let authenticator = Authenticator::new(backend.to("identity"), revocations, clock);
        let shared = Arc::new(LayerState::new(settings, Metrics::new(registry)));
        Self { backend: Arc::new(backend), authenticator: Arc::new(authenticator), stop, shared }
    }

    /// Returns the client of the request with these `parts`, and records it in the request. Its
    /// credential is not limited to hubs or locations.
    pub(crate) async fn client(&self, parts: &Parts) -> Result<Client, Status> {
        let connection = parts.extensions.get::<Caller>();
        let source = parts.extensions.get::<Source>().map(|source| source.0);
        let client = self.authenticator.by_request(&parts.headers, connection, source).await?;
        let text = "an API key, or a client certificate of this site, is needed";
        let client = client.ok_or_else(|| Status::unauthenticated(text))?;
        client.identify(&parts.extensions);
        client.check_unlimited()?;
        Ok(client)
    }

    /// Returns the router of `doors`, and of `pages` for all other paths.
    pub fn router(&self, doors: impl IntoIterator<Item = Door>, pages: Router) -> Router {
        let pages = Door {
            name: "none",
            prefix: "",
            router: pages.fallback(errors::no_such_path),
            max_body_bytes: usize::MAX,
            deadline: PAGE_TIMEOUT,
            refuse: |refusal| {
                Problem::with_http(refusal.http_status(), refusal.status()).into_response()
            },
        };
        let mut router = Router::new().fallback_service(self.behind_layers(pages).1);
        for door in doors {
            let (prefix, routes) = self.behind_layers(door);
            // As a service also the path with a slash at its end is the door's, which `nest` leaves to the fallback.
            router = router.nest_service(prefix, routes);
        }
        layers::outermost(self.shared.clone(), router)
    }

    /// Returns the prefix and the routes of `door`, within its limits.
    fn behind_layers(&self, door: Door) -> (&'static str, Router) {
        let Door { name, prefix, router, max_body_bytes, deadline, refuse } = door;
        let shared = self.shared.clone();
        (prefix, DoorLayers { shared, name, max_body_bytes, deadline, refuse }.around(router))
    }
}
