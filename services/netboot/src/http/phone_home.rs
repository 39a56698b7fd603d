//! What installed systems and installers tell (netboot specification, section 12.1 and 12.2).
//!
//! A call home is stored by the instance service before it is thanked for. The rest is for people: a line in the log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tinwright::instance::v1::ReportPhoneHomeRequest;
use tonic::Status;
use tonic::transport::Channel;

use super::Http;
use super::rate_limit::Source;
use crate::machine_view::MachineView;

/// The longest body, in octets; cloud-init's three host keys are 2 KiB.
const LONGEST: usize = 64 * 1024;
/// How long a call may take to arrive, and how long to be stored.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of what is told is logged, in characters.
const LOGGED: usize = 2048;

/// Where calls home go.
#[async_trait]
pub trait PhoneHomeSink: Send + Sync + 'static {
    /// Stores that a machine called, and returns once that is durable.
    async fn report(&self, call: ReportPhoneHomeRequest) -> Result<(), Status>;
}

#[async_trait]
impl PhoneHomeSink for Channel {
    async fn report(&self, call: ReportPhoneHomeRequest) -> Result<(), Status> {
        runtime::phone_home::report(self.clone(), call).await
    }
}

pub(super) fn routes() -> Router<Arc<Http>> {
    Router::new()
        .route("/phone-home", any(phone_home))
        // There is no password to encrypt: none is taken.
        .route("/phone-home/key", get(async || StatusCode::NOT_FOUND))
        .route("/events", post(event))
        .route("/problem", post(problem))
        .route("/hardware-components", post(components))
}

async fn phone_home(State(http): State<Arc<Http>>, Source(source): Source, body: Body) -> Response {
    let Some(known) = http.boots.at(source, SystemTime::now()) else {
        // Whoever it is may not learn that nobody knows it.
        return if http.boots.index().is_told() {
            StatusCode::OK.into_response()
        } else {
            later("not all machines are known yet")
        };
    };
    let fields = match read(body).await {
        Some(body) => runtime::phone_home::parse_fields(&body),
        None => None,
    };
    let Some(mut fields) = fields else { return StatusCode::BAD_REQUEST.into_response() };
    let kind = runtime::phone_home::event_type(&fields);
    tracing::info!(hardware.id = known.hardware.id, kind, "a machine called home");
    let instance_id = fields.remove("instance_id").unwrap_or_default();
    // A machine without an instance goes by its own id.
    let instance_id = if instance_id == known.hardware.id { String::new() } else { instance_id };
    let (hardware_id, host_keys) =
        (known.hardware.id.clone(), runtime::phone_home::host_keys(&fields));
    let call = ReportPhoneHomeRequest { hardware_id, instance_id, host_keys, kind };
    match tokio::time::timeout(PATIENCE, http.home.report(call)).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(status)) if status.code() == tonic::Code::FailedPrecondition => {
            tracing::warn!(%status, "a machine called home as another instance: a copied image?");
            StatusCode::CONFLICT.into_response()
        }
        Ok(Err(status)) => later(&status.to_string()),
        Err(_) => later("it takes too long"),
    }
}

fn later(why: &str) -> Response {
    tracing::warn!(why, "a call home is not stored; the caller will try again");
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")]).into_response()
}

/// An installer's own event: `code`, `state`, `message`.
async fn event(State(http): State<Arc<Http>>, Source(source): Source, body: Body) -> Response {
    let body = match read(body).await {
        Some(body) if !body.is_empty() => body,
        Some(_) | None => return StatusCode::BAD_REQUEST.into_response(),
    };
    match http.boots.at(source, SystemTime::now()) {
        Some(known) => told(&known, "event", &body),
        None => StatusCode::OK.into_response(),
    }
}

/// A hardware problem that an installer found.
async fn problem(State(http): State<Arc<Http>>, Source(source): Source, body: Body) -> Response {
    at_work(&http, source, "problem", body).await
}

/// What an installer found in the machine.
async fn components(State(http): State<Arc<Http>>, Source(source): Source, body: Body) -> Response {
    at_work(&http, source, "hardware-components", body).await
}

/// Takes what only a machine at work has to tell.
async fn at_work(http: &Http, source: std::net::IpAddr, what: &str, body: Body) -> Response {
    let known = http.boots.at(source, SystemTime::now()).filter(|known| known.worker_wanted());
    match (known, read(body).await) {
        (None, _) => StatusCode::NOT_FOUND.into_response(),
        (_, None) => StatusCode::BAD_REQUEST.into_response(),
        (Some(known), Some(body)) => told(&known, what, &body),
    }
}

/// What of a machine's word is written down. Anything else may be a secret.
const TOLD: [&str; 6] = ["code", "state", "message", "type", "problem", "components"];

fn told(known: &MachineView, what: &str, body: &[u8]) -> Response {
    let Some(fields) = runtime::phone_home::parse_fields(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let said: Vec<_> = fields
        .iter()
        .filter(|(name, _)| TOLD.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let said: String = said.join(" ").chars().take(LOGGED).collect();
    tracing::info!(hardware.id = known.hardware.id, what, ?said, "told by a machine");
    StatusCode::OK.into_response()
}

async fn read(body: Body) -> Option<axum::body::Bytes> {
    tokio::time::timeout(PATIENCE, to_bytes(body, LONGEST)).await.ok()?.ok()
}
