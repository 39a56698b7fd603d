//! Boot HTTP: scripts, loaders, the files of a boot, and public files. The paths are in `docs/reference/boot-scripts.md`.
//!
//! A refusal is never a script; its body is empty, or one line for a client that something is not for: iPXE shows the status, and the firmware tries the next device. A
//! temporary refusal is 503 with Retry-After, and iPXE waits by itself. Paths of older servers are served beside our own, so
//! that URLs in records, images and foreign DHCP servers keep working.
//!
//! - `middleware`: the path of every request: its client, and its limits.
//! - `scripts`, `file`: responses.
//! - `images`: files of images, for the machines that may read them.
//! - `platform`: the private files of outside platforms.
//! - [`phone_home`]: reports of installed systems and installers.

mod file;
pub mod images;
mod middleware;
pub mod phone_home;
mod platform;
mod scripts;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Incoming;
use runtime::serve::App;
use tokio::sync::mpsc;

use self::images::ImageContent;
use self::middleware::{Limits, Middleware};
use self::phone_home::PhoneHomeSink;
use crate::Mac;
use crate::bootscripts::custom::ScriptReport;
use crate::bootscripts::{BootFile, BootRefusal, BootScripts};
use crate::environments::Environments;
use crate::iso::Images;
use crate::machine_view::MachineView;
use crate::metrics::Metrics;
use crate::tftp::{Directories, FileError, FileSource, RequestedFile};

/// Contents of boot HTTP, as handlers get them.
type HttpState = State<Arc<Http>>;
/// Address of a request's client: the peer, or the client of a trusted proxy.
type Source = Extension<IpAddr>;

/// Contents of boot HTTP.
#[derive(Debug)]
pub struct Http {
    /// Scripts and boots.
    pub boots: Arc<BootScripts>,
    /// iPXE's builds.
    pub loaders: Directories,
    /// Kernels and initramfs.
    pub osie: Environments,
    /// Public files; none where the site has none.
    pub files: Option<Directories>,
    /// Private files of outside platforms; none where the site has none.
    pub platform_files: Option<Directories>,
    /// Files of TFTP, served below `/tftp/`.
    pub tftp: Arc<dyn FileSource>,
    /// Images for virtual media; none where the site has none.
    pub images: Option<Arc<Images>>,
    /// The source of images; none where the site has none.
    pub content: Option<ImageContent>,
    /// Receiver of phone-home calls.
    pub home: Arc<dyn PhoneHomeSink>,
    /// Receiver of reports about scripts.
    pub scripts: mpsc::UnboundedSender<ScriptReport>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Body of the refusal of a client that something is not for.
const NOT_ALLOWED: &str = "not allowed\n";

impl Http {
    /// Returns the service. Each request needs its [`runtime::serve::ConnectionAddresses`].
    pub fn into_service(self) -> impl App {
        let (http, limits) = (Arc::new(self), Limits::default());
        let routes = routes().with_state(http.clone());
        let front = Arc::new(Middleware { http, limits, routes });
        tower::service_fn(move |request: Request<Incoming>| front.clone().respond(request))
    }

    /// Renders the refusal of the file or script `name` as iPXE understands it: 403 or 401 forbidden, 404 nothing to boot, 503 retry later. The client
    /// asks from `source`, for the machine with `mac` if it names one.
    fn refuse(
        &self,
        refusal: &BootRefusal,
        name: &str,
        source: IpAddr,
        mac: Option<Mac>,
    ) -> Response {
        let label = refusal.into();
        self.metrics.script(label);
        self.metrics.refused.get_or_create(&[("rule", label)]).inc();
        let machine = self.boots.identify(mac, Some(source), self.boots.clock.wall());
        let machine = machine.as_deref().map(MachineView::label);
        let mac = mac.map(tracing::field::display);
        if let BootRefusal::Broken(why) = refusal {
            tracing::error!(machine, %source, mac, name, reason = why, "boot script or file cannot be made");
        } else {
            tracing::info!(machine, %source, mac, name, reason = %refusal, "boot refused");
        }
        match refusal {
            BootRefusal::NotYours(_) | BootRefusal::Unseen => self.forbidden().into_response(),
            BootRefusal::Later { retry, .. } => {
                let retry = [(header::RETRY_AFTER, retry.as_secs().to_string())];
                (refusal.status(), retry).into_response()
            }
            BootRefusal::Nothing(_) | BootRefusal::Broken(_) => refusal.status().into_response(),
        }
    }

    /// Serves the file `name` of an environment, and records in the timeline and in the log if it cannot be served.
    async fn environment_file(
        &self,
        name: &str,
        source: IpAddr,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Response {
        let found = self.osie.find_file(name).await;
        let response = file::found(found, file::BYTES, headers);
        let status = response.status();
        let error = (!status.is_success()).then(|| status.to_string());
        self.boots.record_file(source, name, error.as_deref(), now);
        if error.is_some() {
            let machine = self.boots.at(source, now);
            let machine = machine.as_deref().map(MachineView::label);
            let directory = self.osie.path().display();
            let missing = status == StatusCode::NOT_FOUND;
            let build = self.osie.build_command(name).filter(|_| missing);
            tracing::warn!(machine, %source, file = name, status = status.as_u16(), %directory, build, "boot file not served");
        }
        response
    }

    /// Renders the refusal of a client that something is not for. It is the same for all: the log has the reason.
    fn forbidden(&self) -> (StatusCode, &'static str) {
        let by_401 = self.boots.site.serving.refuse_by_401;
        let status = if by_401 { StatusCode::UNAUTHORIZED } else { StatusCode::FORBIDDEN };
        (status, NOT_ALLOWED)
    }
}

fn routes() -> Router<Arc<Http>> {
    let health = || get(async || "OK\n");
    Router::new()
        .merge(scripts::routes())
        .merge(phone_home::routes())
        .merge(images::routes())
        .merge(platform::routes())
        .route("/ipxe/{*path}", get(loader))
        .route("/v1/boot/{token}/{file}", get(boot_file))
        .route("/files/{*path}", get(public_file))
        .route("/tftp/{*path}", get(tftp_file))
        .route("/iso/{mac}/{name}", get(file::image))
        .route("/healthz", health())
        .route("/healthcheck", health())
        .route("/_packet/healthcheck", health())
        .route("/version", get(async || concat!(env!("CARGO_PKG_VERSION"), "\n")))
}

async fn loader(http: HttpState, source: Source, path: Path<String>, request: Parts) -> Response {
    // The MAC before the name is a hint for logs; loaders are public.
    let path = path.strip_prefix("binary/").unwrap_or(&path);
    let (mac, name) = match RequestedFile::parse(path.as_bytes()) {
        Ok(RequestedFile::File { mac, path }) => (mac, path),
        Ok(RequestedFile::Autoexec(mac)) => return http.autoexec(mac, *source),
        Ok(RequestedFile::Script(_) | RequestedFile::Pxelinux(_)) | Err(_) => {
            return StatusCode::NOT_FOUND.into_response();
        }
    };
    let kind = if name.ends_with(".efi") { "application/efi" } else { file::BYTES };
    let response = file::respond(Some(&http.loaders), &name, kind, &request.headers).await;
    if request.method == Method::GET && response.status().is_success() {
        http.boots.record_loader(mac, *source, &name, http.boots.clock.wall());
    }
    response
}

async fn boot_file(
    http: HttpState,
    source: Source,
    Path((token, name)): Path<(String, String)>,
    request: Parts,
) -> Response {
    let now = http.boots.clock.wall();
    let (reply, effects) = http.boots.respond_file(&token, &name, *source, now);
    if let Some(report) = http.boots.apply(effects, now) {
        // The receiver is gone during shutdown only.
        let _shutdown = http.scripts.send(report);
    }
    match reply {
        Ok(BootFile::Text(text)) => scripts::text(text),
        Ok(BootFile::Status { hardware, status }) => {
            let query: String = request.uri.query().unwrap_or_default().chars().take(256).collect();
            let query = Some(query.as_str()).filter(|query| !query.is_empty());
            let machine = http.boots.at(*source, now);
            let machine = machine.as_deref().map(MachineView::label);
            tracing::info!(machine, hardware.id = %hardware, status = status.word(), query, "script status");
            StatusCode::OK.into_response()
        }
        Ok(BootFile::Osie(name)) => {
            let response = http.environment_file(&name, *source, &request.headers, now).await;
            scripts::no_store(response)
        }
        Err(refusal) => http.refuse(&refusal, &name, *source, None),
    }
}

async fn public_file(http: HttpState, path: Path<String>, headers: HeaderMap) -> Response {
    file::respond(http.files.as_ref(), &path, file::BYTES, &headers).await
}

/// Serves a file of TFTP, for U-Boot.
async fn tftp_file(
    http: HttpState,
    source: Source,
    path: Path<String>,
    request: Parts,
) -> Response {
    let (IpAddr::V4(source), Ok(file)) = (*source, RequestedFile::parse(path.as_bytes())) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match http.tftp.open(&file, source).await {
        Ok(file) => file::opened(file, file::BYTES, &request.headers),
        Err(FileError::TryLater) => {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")]).into_response()
        }
        Err(FileError::NotAllowed) => http.forbidden().into_response(),
        Err(FileError::Unreadable(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(FileError::NotFound | FileError::InvalidName(_) | FileError::UnknownMode) => {
            StatusCode::NOT_FOUND.into_response()
        }
    }
}

impl BootRefusal {
    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::NotYours(_) | Self::Unseen => StatusCode::FORBIDDEN,
            Self::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
