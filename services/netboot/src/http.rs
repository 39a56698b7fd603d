//! Boot HTTP: scripts, loaders, the files of a boot, and public files. The paths are in `docs/reference/boot-scripts.md`.
//!
//! A refusal has an empty body and is never a script: iPXE shows the status, and the firmware tries the next device. A
//! temporary refusal is 503 with Retry-After, and iPXE waits by itself. Paths of older servers are served beside our own, so
//! that URLs in records, images and foreign DHCP servers keep working.
//!
//! - `middleware`: the path of every request; `rate_limit`: its client, and its limits.
//! - `scripts`, `file`, `iso`: responses.
//! - [`phone_home`]: reports of installed systems and installers.

mod file;
mod iso;
mod middleware;
pub mod phone_home;
mod rate_limit;
mod scripts;

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tftp::file_name::without_trace_context;
use tokio::sync::mpsc;

pub use self::middleware::BootHttp;
use self::phone_home::PhoneHomeSink;
use self::rate_limit::Source;
use crate::Mac;
use crate::bootscripts::custom::ScriptReport;
use crate::bootscripts::{BootFile, BootRefusal, BootScripts, FileRequest};
use crate::iso::Images;
use crate::metrics::Metrics;
use crate::tftp::{Directories, FileSource, RequestedFile};

/// Contents of boot HTTP.
pub struct Http {
    /// Scripts and boots.
    pub boots: Arc<BootScripts>,
    /// iPXE's builds.
    pub loaders: Directories,
    /// Kernel and initramfs; none where the site has none.
    pub osie: Option<Directories>,
    /// Public files; none where the site has none.
    pub files: Option<Directories>,
    /// Files of TFTP, served below `/tftp/`.
    pub tftp: Arc<dyn FileSource>,
    /// Images for virtual media; none where the site has none.
    pub images: Option<Arc<Images>>,
    /// Receiver of phone-home calls.
    pub home: Arc<dyn PhoneHomeSink>,
    /// Receiver of reports about scripts.
    pub scripts: mpsc::UnboundedSender<ScriptReport>,
    /// Metrics.
    pub metrics: Metrics,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("boots", &self.boots).finish_non_exhaustive()
    }
}

impl Http {
    /// Returns the service. Each request needs its [`runtime::serve::Peers`].
    pub fn into_service(self) -> BootHttp {
        let http = Arc::new(self);
        BootHttp::new(http.clone(), routes().with_state(http))
    }

    fn refuse(&self, refusal: &BootRefusal, name: &str) -> Response {
        self.metrics.script(refusal.label());
        self.metrics.refused(refusal.label());
        match refusal {
            BootRefusal::Broken(why) => {
                tracing::error!(name, reason = why, "boot script or file cannot be made")
            }
            BootRefusal::Nothing(_) | BootRefusal::NotYours(_) | BootRefusal::Later { .. } => {
                tracing::info!(name, reason = %refusal, "boot refused");
            }
        }
        scripts::refused(refusal, self.boots.site().serving.refuse_by_401)
    }
}

fn routes() -> Router<Arc<Http>> {
    let health = || get(async || "OK\n");
    Router::new()
        .merge(scripts::routes())
        .merge(phone_home::routes())
        .route("/ipxe/{*path}", get(loader))
        .route("/v1/boot/{token}/{file}", get(boot_file))
        .route("/files/{*path}", get(public_file))
        .route("/tftp/{*path}", get(tftp_file))
        .route("/iso/{mac}/{name}", get(iso::image))
        .route("/healthz", health())
        .route("/healthcheck", health())
        .route("/_packet/healthcheck", health())
        .route("/version", get(async || concat!(env!("CARGO_PKG_VERSION"), "\n")))
}

async fn loader(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    // The MAC before the name is a hint for logs; loaders are public.
    let (mac, name) = match path.split_once('/') {
        Some(("binary", name)) => (None, name),
        Some((first, name)) => match first.parse::<Mac>() {
            Ok(mac) => (Some(mac), name),
            Err(_) => (None, &*path),
        },
        None => (None, &*path),
    };
    let name = without_trace_context(name);
    if name == "autoexec.ipxe" {
        return scripts::autoexec(&http, mac);
    }
    let kind = if name.ends_with(".efi") { "application/efi" } else { file::BYTES };
    let answer = file::answer(&http.loaders, name, kind, &method, &headers).await;
    if method == Method::GET && answer.status().is_success() {
        http.boots.record_loader(mac, source, name, SystemTime::now());
    }
    answer
}

async fn boot_file(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    Path((token, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let now = SystemTime::now();
    let request = FileRequest { token: &token, name: &name, source };
    let (reply, effects) = http.boots.respond_file(&request, now);
    if let Some(report) = http.boots.apply(effects, now) {
        // The receiver is gone during shutdown only.
        let _shutdown = http.scripts.send(report);
    }
    match reply {
        Ok(BootFile::Text(text)) => scripts::text(text),
        Ok(BootFile::Status { hardware, status }) => {
            let query: String = query.unwrap_or_default().chars().take(256).collect();
            tracing::info!(hardware.id = %hardware, ?status, ?query, "script status");
            StatusCode::OK.into_response()
        }
        Ok(BootFile::Osie(name)) => {
            let answer = match &http.osie {
                Some(osie) => file::answer(osie, &name, file::BYTES, &method, &headers).await,
                None => StatusCode::NOT_FOUND.into_response(),
            };
            let status = answer.status();
            let error = (!status.is_success()).then(|| status.to_string());
            http.boots.record_file(source, &name, error.as_deref(), now);
            scripts::no_store(answer)
        }
        Err(refusal) => http.refuse(&refusal, &name),
    }
}

async fn public_file(
    State(http): State<Arc<Http>>,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    match &http.files {
        Some(files) => file::answer(files, &path, file::BYTES, &method, &headers).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Serves a file of TFTP, for U-Boot.
async fn tftp_file(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let (std::net::IpAddr::V4(source), Ok(file)) = (source, RequestedFile::parse(path.as_bytes()))
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if file == RequestedFile::Refused {
        return StatusCode::NOT_FOUND.into_response();
    }
    match http.tftp.open(&file, source).await {
        Ok(file) => file::opened(file, file::BYTES, &method, &headers).await,
        Err(refusal) => {
            let by_401 = http.boots.site().serving.refuse_by_401;
            scripts::refused(&refusal.into(), by_401)
        }
    }
}

impl BootRefusal {
    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::NotYours(_) => StatusCode::FORBIDDEN,
            Self::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the metric label.
    fn label(&self) -> &'static str {
        match self {
            Self::Nothing(_) => "nothing",
            Self::NotYours(_) => "not_yours",
            Self::Later { .. } => "later",
            Self::Broken(_) => "broken",
        }
    }
}
