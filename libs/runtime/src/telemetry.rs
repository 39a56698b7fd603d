//! Logs, metrics and health.

mod filter;
mod format;
mod limited_log;
mod machine_names;

use std::error::Error;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

pub use self::filter::{InvalidFilter, parse_filter};
pub use self::limited_log::{LimitedLog, beginning};
pub use self::machine_names::MachineNames;
use crate::process_metrics;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// Begins logging to standard error. `filter` is in `tracing`'s notation, such as `info,store=debug`. Levels have colours at a
/// terminal, unless the variable `NO_COLOR` is set (no-color.org). Returns the names of machines that lines for people show; none is known
/// yet.
pub fn init_logging(format: Format, filter: &str) -> anyhow::Result<MachineNames> {
    let filter = parse_filter(filter)?;
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = std::io::stderr().is_terminal() && !refused;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    let log = log.with_writer(std::io::stderr);
    let names = MachineNames::default();
    let lines = format::Lines { names: names.clone() };
    let started = match format {
        Format::Human => log.fmt_fields(format::Fields).event_format(lines).try_init(),
        // The list of all spans has the current one, too.
        Format::Json => log.json().with_current_span(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!(error))?;
    Ok(names)
}

/// Returns `error` as a field of a log line, which has its causes, too.
pub fn cause<E: Error + 'static>(error: &E) -> &(dyn Error + 'static) {
    error
}

/// The readiness of a process to take requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Not everything has been loaded yet.
    #[default]
    Starting,
    /// It takes requests.
    Ready,
    /// Its store does not answer.
    StoreUnreachable,
}

/// The metrics, liveness and readiness of a process, over HTTP.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    /// Without a prefix; [`register`](Self::register) adds ours.
    registry: Arc<Mutex<Registry>>,
    readiness: Arc<watch::Sender<Readiness>>,
    details: Details,
}

/// Returns the present problems of one kind, each in a line.
type Check = dyn Fn() -> Vec<String> + Send + Sync;

/// Checks for problems that do not keep a process from being ready.
#[derive(Clone, Default)]
struct Details(Arc<Mutex<Vec<Arc<Check>>>>);

impl Details {
    /// Returns the present problems.
    fn get(&self) -> Vec<String> {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        checks.iter().flat_map(|check| check()).collect()
    }
}

impl fmt::Debug for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Details").finish_non_exhaustive()
    }
}

impl Default for Diagnostics {
    fn default() -> Self {
        let mut registry = Registry::default();
        process_metrics::register(&mut registry);
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("tinwright_build", "Version of this program", build);
        let registry = Arc::new(Mutex::new(registry));
        Self { registry, readiness: Arc::default(), details: Details::default() }
    }
}

impl Diagnostics {
    /// Registers metrics of our own, whose names begin with `tinwright_`.
    pub fn register<T>(&self, metrics: impl FnOnce(&mut Registry) -> T) -> T {
        self.register_common(|registry| metrics(registry.sub_registry_with_prefix("tinwright")))
    }

    /// Registers metrics whose names other programs use as well.
    pub fn register_common<T>(&self, metrics: impl FnOnce(&mut Registry) -> T) -> T {
        metrics(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the reported readiness.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.readiness.send_replace(readiness);
    }

    /// Adds a check for problems, which `/readyz` names, one per line, when the process is ready nevertheless. It is made at each
    /// request, and must be fast.
    pub fn add_details(&self, check: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        let mut checks = self.details.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.push(Arc::new(check));
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

async fn readiness(State(diagnostics): State<Diagnostics>) -> (StatusCode, String) {
    match *diagnostics.readiness.borrow() {
        Readiness::Ready => {
            let lines = diagnostics.details.get().into_iter().map(|detail| format!("{detail}\n"));
            (StatusCode::OK, ["ready\n".to_owned()].into_iter().chain(lines).collect())
        }
        Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n".into()),
        Readiness::StoreUnreachable => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store is out of reach\n".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn readiness_is_reported_with_its_reason_and_taken_back() {
        let diagnostics = Diagnostics::default();
        let (ok, unavailable) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let starting = (unavailable, "starting\n".to_owned());
        assert_eq!(readiness(State(diagnostics.clone())).await, starting);
        for (set, reported) in [
            (Readiness::Ready, (ok, "ready\n")),
            (Readiness::StoreUnreachable, (unavailable, "the store is out of reach\n")),
            (Readiness::Ready, (ok, "ready\n")),
        ] {
            diagnostics.set_readiness(set);
            let reported = (reported.0, reported.1.to_owned());
            assert_eq!(readiness(State(diagnostics.clone())).await, reported);
        }
        let is_solved = Arc::new(AtomicBool::default());
        let solved = is_solved.clone();
        diagnostics.add_details(|| vec!["a contradiction".into()]);
        diagnostics.add_details(move || match solved.load(Ordering::Relaxed) {
            true => Vec::new(),
            false => vec!["a file is missing".into()],
        });
        let reported = (ok, "ready\na contradiction\na file is missing\n".to_owned());
        assert_eq!(readiness(State(diagnostics.clone())).await, reported);
        is_solved.store(true, Ordering::Relaxed);
        let reported = (ok, "ready\na contradiction\n".to_owned());
        assert_eq!(readiness(State(diagnostics)).await, reported);
    }
}
