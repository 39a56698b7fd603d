//! Logs, metrics and health.

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// Begins logging to standard error. `filter` is in `tracing`'s notation, such as `info,store=debug`.
pub fn init_logging(format: Format, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(filter)?;
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    let log = log.with_writer(std::io::stderr);
    let started = match format {
        Format::Human => log.try_init(),
        Format::Json => log.json().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!(error))
}

/// The metrics, liveness and readiness of a process, over HTTP.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    registry: Arc<Mutex<Registry>>,
    ready: Arc<watch::Sender<bool>>,
}

impl Default for Diagnostics {
    fn default() -> Self {
        let registry = Arc::new(Mutex::new(Registry::with_prefix("tinwright")));
        Self { registry, ready: Arc::new(watch::Sender::new(false)) }
    }
}

impl Diagnostics {
    /// Registers metrics.
    pub fn register<T>(&self, metrics: impl FnOnce(&mut Registry) -> T) -> T {
        metrics(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports the process as ready.
    pub fn set_ready(&self) {
        self.ready.send_replace(true);
    }

    /// `/metrics` (OpenMetrics text), `/healthz` and `/readyz`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readiness))
            .with_state(self)
    }
}

async fn metrics(State(diagnostics): State<Diagnostics>) -> Response {
    let mut text = String::new();
    let registry = diagnostics.registry.lock().unwrap_or_else(PoisonError::into_inner);
    match encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn readiness(State(diagnostics): State<Diagnostics>) -> (StatusCode, &'static str) {
    if *diagnostics.ready.borrow() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}
