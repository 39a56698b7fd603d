//! Scripts over HTTP, at the paths of both generations of clients.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::http::{Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{Http, HttpState, Source};
use crate::Mac;
use crate::bootscripts::{BootRefusal, ScriptRequest};
use crate::ipxe;

pub(super) fn routes() -> Router<Arc<Http>> {
    Router::new()
        .route("/auto.ipxe", get(script))
        .route("/ipxe/script/auto.ipxe", get(script))
        .route("/{mac}/auto.ipxe", get(script))
        .route("/ipxe/script/{mac}/auto.ipxe", get(script))
        .route("/autoexec.ipxe", get(autoexec))
        .route("/{mac}/autoexec.ipxe", get(autoexec))
        .route("/ipxe/script/autoexec.ipxe", get(autoexec))
        .route("/ipxe/script/{mac}/autoexec.ipxe", get(autoexec))
        .route("/boot.ipxe", get(by_labels))
        .route("/ipxe", get(labelled))
}

async fn script(
    http: HttpState,
    source: Source,
    mac: Option<Path<String>>,
    RawQuery(query): RawQuery,
) -> Result<Response, StatusCode> {
    let mac = parse_mac(mac.map(|Path(mac)| mac))?;
    Ok(http.script(request(mac, *source, query.as_deref())))
}

/// Matchbox's request: the other labels are claims of the client, and decide nothing.
async fn labelled(
    http: HttpState,
    source: Source,
    RawQuery(query): RawQuery,
) -> Result<Response, StatusCode> {
    let mac = parse_mac(label(query.as_deref(), "mac"))?;
    Ok(http.script(request(mac, *source, query.as_deref())))
}

fn parse_mac(text: Option<String>) -> Result<Option<Mac>, StatusCode> {
    text.map(|text| text.parse()).transpose().map_err(|_| StatusCode::BAD_REQUEST)
}

fn request(mac: Option<Mac>, source: IpAddr, query: Option<&str>) -> ScriptRequest {
    ScriptRequest { uuid: label(query, "uuid"), ..ScriptRequest::new(mac, source) }
}

/// Returns the value of `name` in the query; of several the last.
fn label(query: Option<&str>, name: &str) -> Option<String> {
    let labels = form_urlencoded::parse(query?.as_bytes());
    labels.filter(|(label, _)| label == name).last().map(|(_, value)| value.into_owned())
}

async fn by_labels(http: HttpState) -> Result<Response, StatusCode> {
    let script = ipxe::by_labels(&http.boots.site.base_url());
    script.map(text).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn autoexec(http: HttpState, mac: Option<Path<String>>) -> Result<Response, StatusCode> {
    Ok(http.autoexec(parse_mac(mac.map(|Path(mac)| mac))?))
}

impl Http {
    /// Serves the script that newer builds of iPXE fetch before DHCP.
    pub(super) fn autoexec(&self, mac: Option<Mac>) -> Response {
        self.boots.autoexec(mac).map_or_else(|refusal| self.refuse(&refusal, "autoexec"), text)
    }

    /// Responds to `request` if it is for a script at the path that machines are sent to, spelled as we spell it.
    pub(super) fn fast_path<B>(&self, request: &Request<B>, source: IpAddr) -> Option<Response> {
        let (mac, name) = request.uri().path().strip_prefix('/')?.split_once('/')?;
        if name != "auto.ipxe" || request.method() != Method::GET {
            return None;
        }
        let mac = mac.parse().ok()?;
        Some(self.script(self::request(Some(mac), source, request.uri().query())))
    }

    fn script(&self, request: ScriptRequest) -> Response {
        match self.boots.serve(&request, self.boots.clock.wall()) {
            Ok(script) => {
                let kind = ipxe::kind_label(script.kind);
                self.metrics.script(kind);
                let mac = request.mac.map(tracing::field::display);
                tracing::info!(source = %request.source, mac, kind, "script served");
                text(script.text)
            }
            Err(refusal) => self.refuse(&refusal, "script"),
        }
    }
}

/// Renders a refusal as iPXE understands it: 403 or 401 forbidden, 404 nothing to boot, 503 retry later.
pub(super) fn refused(refusal: &BootRefusal, by_401: bool) -> Response {
    match refusal {
        BootRefusal::NotYours(_) if by_401 => StatusCode::UNAUTHORIZED.into_response(),
        BootRefusal::Later { retry, .. } => {
            let retry = [(header::RETRY_AFTER, retry.as_secs().to_string())];
            (refusal.status(), retry).into_response()
        }
        BootRefusal::Nothing(_) | BootRefusal::NotYours(_) | BootRefusal::Broken(_) => {
            refusal.status().into_response()
        }
    }
}

/// Renders a text that is valid for this client at this moment only.
pub(super) fn text(text: String) -> Response {
    no_store(text.into_response())
}

/// Forbids caches to store a response.
pub(super) fn no_store(response: Response) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], response).into_response()
}
