//! Reports of installed systems and installers.
//!
//! A phone-home call is stored by the instance service before it is answered. The other reports are lines in the log.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use runtime::Channel;
use tinwright::instance::v1::ReportPhoneHomeRequest;
use tonic::Status;

use super::{Http, HttpState, Source};
use crate::machine_view::MachineView;

/// Octets of the longest body; cloud-init's three host keys have 2 KiB.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Timeout of receiving a call, and of storing it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a report that are logged.
const MAX_LOGGED_CHARS: usize = 2048;

/// Receiver of phone-home calls.
#[async_trait]
pub trait PhoneHomeSink: Debug + Send + Sync + 'static {
    /// Stores a call, and returns once it is durable.
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
        // No password is accepted, so there is no key to encrypt one with.
        .route("/phone-home/key", get(async || StatusCode::NOT_FOUND))
        .route("/events", post(event))
        .route("/problem", post(worker_report))
        .route("/hardware-components", post(worker_report))
}

async fn phone_home(http: HttpState, source: Source, body: Body) -> Response {
    let Some(machine) = http.boots.at(*source, http.boots.clock.wall()) else {
        // An unknown client must not learn that it has no record.
        return if http.boots.index.is_synced() {
            StatusCode::OK.into_response()
        } else {
            later("not all machines are known yet")
        };
    };
    let fields = read(body).await.and_then(|body| runtime::phone_home::parse_fields(&body));
    let Some(mut fields) = fields else { return StatusCode::BAD_REQUEST.into_response() };
    let kind = runtime::phone_home::event_type(&fields);
    let hardware_id = machine.hardware.id.clone();
    tracing::info!(machine = machine.label(), hardware.id = hardware_id, kind, "phone home");
    // A machine without an instance sends its own id.
    let instance_id = fields.remove("instance_id").filter(|id| *id != hardware_id);
    let (instance_id, host_keys) =
        (instance_id.unwrap_or_default(), runtime::phone_home::host_keys(&fields));
    let call = ReportPhoneHomeRequest { hardware_id, instance_id, host_keys, kind };
    match tokio::time::timeout(CALL_TIMEOUT, http.home.report(call)).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(status)) if status.code() == tonic::Code::FailedPrecondition => {
            tracing::warn!(%status, "phone home as another instance: a copied image?");
            StatusCode::CONFLICT.into_response()
        }
        Ok(Err(status)) => later(&status.to_string()),
        Err(_) => later("timeout"),
    }
}

fn later(reason: &str) -> Response {
    tracing::warn!(reason, "phone home not stored, the caller retries");
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")]).into_response()
}

/// Takes an installer's event: `code`, `state`, `message`.
async fn event(http: HttpState, source: Source, body: Body) -> Response {
    let Some(body) = read(body).await.filter(|body| !body.is_empty()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match http.boots.at(*source, http.boots.clock.wall()) {
        Some(machine) => log_report(&machine, "event", &body),
        None => StatusCode::OK.into_response(),
    }
}

/// Takes what an installer found in the machine: a hardware problem, or its components. Only a machine with a running workflow
/// may report it.
async fn worker_report(http: HttpState, source: Source, uri: Uri, body: Body) -> Response {
    let machine = http.boots.at(*source, http.boots.clock.wall());
    match (machine.filter(|machine| machine.worker_wanted()), read(body).await) {
        (None, _) => StatusCode::NOT_FOUND.into_response(),
        (_, None) => StatusCode::BAD_REQUEST.into_response(),
        (Some(machine), Some(body)) => {
            log_report(&machine, uri.path().trim_start_matches('/'), &body)
        }
    }
}

/// Fields of a report that are logged. Others may hold secrets.
const LOGGED_FIELDS: [&str; 6] = ["code", "state", "message", "type", "problem", "components"];

fn log_report(machine: &MachineView, kind: &str, body: &[u8]) -> Response {
    let Some(fields) = runtime::phone_home::parse_fields(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let logged: Vec<_> = fields
        .iter()
        .filter(|(name, _)| LOGGED_FIELDS.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let report: String = logged.join(" ").chars().take(MAX_LOGGED_CHARS).collect();
    let id = &machine.hardware.id;
    tracing::info!(
        machine = machine.label(),
        hardware.id = id,
        kind,
        report,
        "report of a machine"
    );
    StatusCode::OK.into_response()
}

async fn read(body: Body) -> Option<Bytes> {
    tokio::time::timeout(CALL_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await.ok()?.ok()
}
