//! Boot HTTP: scripts, loaders, the files of a boot, and public files (netboot specification, section 6).
//!
//! A refusal has an empty body and never a script: iPXE shows the status, and the firmware goes on. What may be there later
//! is 503 with Retry-After, which iPXE waits for by itself. Paths of older servers are served beside our own, so that what
//! stands in records, images and other people's DHCP servers goes on working.
//!
//! - `front`: what every request passes; `asker`: whom one is from, and how much one may ask.
//! - `scripts`, `file`, `iso`: what is served.
//! - `home`: what installed systems and installers tell.

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
use crate::bootscripts::{BootFile, BootRefusal, BootScripts};
use crate::iso::Images;
use crate::metrics::Metrics;
use crate::tftp::{Directories, FileSource, RequestedFile};
use crate::timeline::BootStep;

/// What the listener serves from.
pub struct Http {
    /// Scripts and boots.
    pub boots: Arc<BootScripts>,
    /// iPXE's builds.
    pub loaders: Directories,
    /// Kernel and initramfs; none where the site has none.
    pub osie: Option<Directories>,
    /// Public files; none where the site has none.
    pub files: Option<Directories>,
    /// What TFTP serves: the same below `/tftp/`.
    pub tftp: Arc<dyn FileSource>,
    /// Images for virtual media; none where the site has none.
    pub images: Option<Arc<Images>>,
    /// Where calls home go.
    pub home: Arc<dyn PhoneHomeSink>,
    /// Told what other services have to know of scripts.
    pub scripts: mpsc::UnboundedSender<ScriptReport>,
    /// What is counted.
    pub metrics: Metrics,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("boots", &self.boots).finish_non_exhaustive()
    }
}

impl Http {
    /// As a service; whoever serves it says with [`runtime::serve::Peers`] who asks.
    pub fn front(self) -> BootHttp {
        let http = Arc::new(self);
        BootHttp::new(http.clone(), routes().with_state(http))
    }

    fn refuse(&self, refusal: &BootRefusal, asked: &str) -> Response {
        self.metrics.script(refusal.label());
        self.metrics.refused(refusal.label());
        match refusal {
            BootRefusal::Broken(why) => tracing::error!(asked, why, "boot broken"),
            BootRefusal::Nothing(_) | BootRefusal::NotYours(_) | BootRefusal::Later { .. } => {
                tracing::info!(asked, why = %refusal, "boot refused");
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
    // The MAC before the name is a hint for logs; a loader is nobody's secret.
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
    match http.boots.file(&token, &name, source, now) {
        Ok(BootFile::Text(text)) => scripts::written(text),
        Ok(BootFile::Note { hardware, what, report }) => {
            let said: String = query.unwrap_or_default().chars().take(256).collect();
            tracing::info!(hardware.id = hardware, what, ?said, "boot script");
            // Nobody takes it any more at the end only.
            report.map(|report| http.scripts.send(report));
            let what = match what.as_str() {
                "started" => Some(BootStep::Started),
                "failed" => Some(BootStep::Failed("the script gave up".into())),
                _ => None,
            };
            what.into_iter().for_each(|what| http.boots.record(None, Some(source), what, now));
            StatusCode::OK.into_response()
        }
        Ok(BootFile::Osie(name)) => {
            let answer = match &http.osie {
                Some(osie) => file::answer(osie, &name, file::BYTES, &method, &headers).await,
                None => StatusCode::NOT_FOUND.into_response(),
            };
            let status = answer.status();
            let missing = (!status.is_success()).then(|| status.to_string());
            http.boots.record_file(source, &name, missing.as_deref(), now);
            scripts::not_kept(answer)
        }
        Err(refusal) => {
            http.boots.record(
                None,
                Some(source),
                BootStep::Refused(format!("{name}: {refusal}")),
                now,
            );
            http.refuse(&refusal, &name)
        }
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

/// What TFTP would send, for U-Boot (netboot specification, section 6.1).
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
    /// What it is over HTTP (netboot specification, section 6.2, H7 and H8).
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::NotYours(_) => StatusCode::FORBIDDEN,
            Self::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// As a metric label.
    fn label(&self) -> &'static str {
        match self {
            Self::Nothing(_) => "nothing",
            Self::NotYours(_) => "not_yours",
            Self::Later { .. } => "later",
            Self::Broken(_) => "broken",
        }
    }
}
