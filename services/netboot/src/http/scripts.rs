//! Scripts over HTTP, at the paths of both generations of clients.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Http;
use super::rate_limit::Source;
use crate::Mac;
use crate::bootscripts::{BootRefusal, ScriptRequest};
use crate::ipxe;

pub(super) fn routes() -> Router<Arc<Http>> {
    Router::new()
        .route("/auto.ipxe", get(own_script))
        .route("/ipxe/script/auto.ipxe", get(own_script))
        .route("/{mac}/auto.ipxe", get(script))
        .route("/ipxe/script/{mac}/auto.ipxe", get(script))
        .route("/autoexec.ipxe", get(async |State(http): State<Arc<Http>>| autoexec(&http, None)))
        .route("/{mac}/autoexec.ipxe", get(own_autoexec))
        .route(
            "/ipxe/script/autoexec.ipxe",
            get(async |State(http): State<Arc<Http>>| autoexec(&http, None)),
        )
        .route("/ipxe/script/{mac}/autoexec.ipxe", get(own_autoexec))
        .route("/boot.ipxe", get(by_labels))
        .route("/ipxe", get(labelled))
}

async fn own_script(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    RawQuery(query): RawQuery,
) -> Response {
    http.script(request(None, source, query.as_deref()))
}

async fn script(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    Path(mac): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(mac) = mac.parse::<Mac>() else { return StatusCode::BAD_REQUEST.into_response() };
    http.script(request(Some(mac), source, query.as_deref()))
}

/// Matchbox's request: the other labels are claims of the client, and decide nothing.
async fn labelled(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    RawQuery(query): RawQuery,
) -> Response {
    let mac = match label(query.as_deref(), "mac").map(|mac| mac.parse::<Mac>()) {
        Some(Ok(mac)) => Some(mac),
        Some(Err(_)) => return StatusCode::BAD_REQUEST.into_response(),
        None => None,
    };
    http.script(request(mac, source, query.as_deref()))
}

fn request(mac: Option<Mac>, source: IpAddr, query: Option<&str>) -> ScriptRequest {
    ScriptRequest { uuid: label(query, "uuid"), ..ScriptRequest::new(mac, source) }
}

/// Returns the value of `name` in the query; of several the last.
fn label(query: Option<&str>, name: &str) -> Option<String> {
    let labels = form_urlencoded::parse(query?.as_bytes());
    labels.filter(|(label, _)| label == name).last().map(|(_, value)| value.into_owned())
}

async fn by_labels(State(http): State<Arc<Http>>) -> Response {
    rendered(ipxe::by_labels(&http.boots.site().base_url()))
}

async fn own_autoexec(State(http): State<Arc<Http>>, Path(mac): Path<String>) -> Response {
    match mac.parse::<Mac>() {
        Ok(mac) => autoexec(&http, Some(mac)),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// Serves the script that newer builds of iPXE fetch before DHCP.
pub(super) fn autoexec(http: &Http, mac: Option<Mac>) -> Response {
    http.boots.autoexec(mac).map_or_else(|refusal| http.refuse(&refusal, "autoexec"), text)
}

fn rendered(script: Result<String, ipxe::Error>) -> Response {
    script.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), text)
}

impl Http {
    /// Answers `request` if it is for a script at the path that machines are sent to, spelled as we spell it.
    pub(super) fn fast_path<B>(&self, request: &Request<B>, source: IpAddr) -> Option<Response> {
        let (mac, name) = request.uri().path().strip_prefix('/')?.split_once('/')?;
        if name != "auto.ipxe" || request.method() != Method::GET {
            return None;
        }
        let mac = mac.parse().ok()?;
        Some(self.script(self::request(Some(mac), source, request.uri().query())))
    }

    fn script(&self, request: ScriptRequest) -> Response {
        match self.boots.serve(&request, SystemTime::now()) {
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
    let status = refusal.status();
    match refusal {
        BootRefusal::NotYours(_) if by_401 => StatusCode::UNAUTHORIZED.into_response(),
        BootRefusal::Nothing(_) | BootRefusal::NotYours(_) | BootRefusal::Broken(_) => {
            status.into_response()
        }
        BootRefusal::Later { retry, why: _ } => {
            (status, [(header::RETRY_AFTER, retry.as_secs().to_string())]).into_response()
        }
    }
}

/// Renders a text that is valid for this client at this moment only.
pub(super) fn text(text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    no_store(answer)
}

/// Forbids caches to store a response.
pub(super) fn no_store(mut answer: Response) -> Response {
    let value = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, value);
    answer
}
