//! Boot HTTP: scripts, loaders, the files of a boot, and public files (netboot specification, section 6).
//!
//! A refusal has an empty body and never a script: iPXE shows the status, and the firmware goes on. What may be there later
//! is 503 with Retry-After, which iPXE waits for by itself.

mod file;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use runtime::serve::Ends;

use crate::Mac;
use crate::boots::{BootFile, Boots, Refusal};
use crate::metrics::Metrics;
use crate::tftp::Directories;

/// What the listener serves from.
#[derive(Clone, Debug)]
pub struct Http {
    /// Scripts and boots.
    pub boots: Arc<Boots>,
    /// iPXE's builds.
    pub loaders: Directories,
    /// Kernel and initramfs; none where the site has none.
    pub osie: Option<Directories>,
    /// Public files; none where the site has none.
    pub files: Option<Directories>,
    /// What is counted.
    pub metrics: Metrics,
}

impl Http {
    /// As a router; whoever serves it says with [`Ends`] who asks.
    pub fn router(self) -> Router {
        Router::new()
            .route("/auto.ipxe", get(own_script))
            .route("/ipxe/script/auto.ipxe", get(own_script))
            .route("/{mac}/auto.ipxe", get(script))
            .route("/ipxe/script/{mac}/auto.ipxe", get(script))
            .route("/{mac}/autoexec.ipxe", get(|| async {}))
            .route("/ipxe/{*path}", get(loader))
            .route("/v1/boot/{token}/{file}", get(boot_file))
            .route("/files/{*path}", get(public_file))
            .with_state(self)
    }
}

async fn own_script(State(http): State<Http>, Extension(ends): Extension<Ends>) -> Response {
    http.script(None, ends.remote.ip())
}

async fn script(
    State(http): State<Http>,
    Extension(ends): Extension<Ends>,
    Path(mac): Path<String>,
) -> Response {
    match mac.parse::<Mac>() {
        Ok(mac) => http.script(Some(mac), ends.remote.ip()),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

async fn loader(
    State(http): State<Http>,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    // The MAC before the name is a hint for logs; a loader is nobody's secret.
    let name = match path.split_once('/') {
        Some((mac, name)) if mac.parse::<Mac>().is_ok() || mac == "binary" => name,
        Some(_) | None => &path,
    };
    let kind = if name.ends_with(".efi") { "application/efi" } else { file::BYTES };
    file::answer(&http.loaders, name, kind, &method, &headers).await
}

async fn boot_file(
    State(http): State<Http>,
    Extension(ends): Extension<Ends>,
    Path((token, name)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    match http.boots.file(&token, &name, ends.remote.ip(), SystemTime::now()) {
        Ok(BootFile::Text(text)) => written(text),
        Ok(BootFile::Note { hardware, what }) => {
            tracing::info!(hardware.id = hardware, what, "boot script");
            StatusCode::OK.into_response()
        }
        Ok(BootFile::Osie(name)) => match &http.osie {
            Some(osie) => file::answer(osie, &name, file::BYTES, &method, &headers).await,
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Err(refusal) => http.refuse(&refusal, ends.remote.ip(), &name),
    }
}

async fn public_file(
    State(http): State<Http>,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    match &http.files {
        Some(files) => file::answer(files, &path, file::BYTES, &method, &headers).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

impl Http {
    fn script(&self, mac: Option<Mac>, source: IpAddr) -> Response {
        match self.boots.script(mac, source, SystemTime::now()) {
            Ok(served) => {
                self.metrics.script(served.kind);
                tracing::info!(%source, kind = served.kind, "script served");
                written(served.text)
            }
            Err(refusal) => self.refuse(&refusal, source, "script"),
        }
    }

    fn refuse(&self, refusal: &Refusal, source: IpAddr, asked: &str) -> Response {
        self.metrics.script(refusal.label());
        match refusal {
            Refusal::Broken(why) => tracing::error!(%source, asked, why, "boot broken"),
            Refusal::Nothing(_) | Refusal::NotYours(_) | Refusal::Later(_) => {
                tracing::info!(%source, asked, why = %refusal, "boot refused");
            }
        }
        let status = refusal.status();
        match refusal {
            Refusal::Nothing(_) | Refusal::NotYours(_) | Refusal::Broken(_) => {
                status.into_response()
            }
            Refusal::Later(after) => {
                (status, [(header::RETRY_AFTER, after.as_secs().to_string())]).into_response()
            }
        }
    }
}

impl Refusal {
    /// What it is over HTTP (netboot specification, section 6.2, H7 and H8).
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::NotYours(_) => StatusCode::FORBIDDEN,
            Self::Later(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// As a metric label.
    fn label(&self) -> &'static str {
        match self {
            Self::Nothing(_) => "nothing",
            Self::NotYours(_) => "not_yours",
            Self::Later(_) => "later",
            Self::Broken(_) => "broken",
        }
    }
}

/// Text that is good for this asker and this moment only.
fn written(text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Body::from(text)).into_response()
}
