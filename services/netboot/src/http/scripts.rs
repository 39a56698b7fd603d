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
    http.script(ScriptRequest { mac: None, source, uuid: label(query.as_deref(), "uuid") })
}

async fn script(
    State(http): State<Arc<Http>>,
    Source(source): Source,
    Path(mac): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(mac) = mac.parse::<Mac>() else { return StatusCode::BAD_REQUEST.into_response() };
    http.script(ScriptRequest { mac: Some(mac), source, uuid: label(query.as_deref(), "uuid") })
}

/// Matchbox's way: all labels but these are the client's own word, and decide nothing.
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
    http.script(ScriptRequest { mac, source, uuid: label(query.as_deref(), "uuid") })
}

/// What the query says of `name`; of several the last.
fn label(query: Option<&str>, name: &str) -> Option<String> {
    let labels = form_urlencoded::parse(query?.as_bytes());
    labels.filter(|(label, _)| label == name).last().map(|(_, value)| value.into_owned())
}

async fn by_labels(State(http): State<Arc<Http>>) -> Response {
    made(ipxe::by_labels(&http.boots.site().base_url()))
}

async fn own_autoexec(State(http): State<Arc<Http>>, Path(mac): Path<String>) -> Response {
    match mac.parse::<Mac>() {
        Ok(mac) => autoexec(&http, Some(mac)),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// What newer builds of iPXE look for before DHCP: nothing, and they go on; or the way to a script.
pub(super) fn autoexec(http: &Http, mac: Option<Mac>) -> Response {
    http.boots.autoexec(mac).map_or_else(|refusal| http.refuse(&refusal, "autoexec"), written)
}

fn made(script: Result<String, ipxe::Error>) -> Response {
    script.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), written)
}

impl Http {
    /// The answer to `request`, if it is for a script at the path that machines are sent to, written as we write it.
    pub(super) fn at_once<B>(&self, request: &Request<B>, source: IpAddr) -> Option<Response> {
        let (mac, name) = request.uri().path().strip_prefix('/')?.split_once('/')?;
        if name != "auto.ipxe" || request.method() != Method::GET {
            return None;
        }
        let (mac, uuid) = (mac.parse().ok()?, label(request.uri().query(), "uuid"));
        Some(self.script(ScriptRequest { mac: Some(mac), source, uuid }))
    }

    fn script(&self, asked: ScriptRequest) -> Response {
        match self.boots.script(&asked, SystemTime::now()) {
            Ok(served) => {
                self.metrics.script(served.kind);
                let mac = asked.mac.map(tracing::field::display);
                tracing::info!(source = %asked.source, mac, kind = served.kind, "script served");
                written(served.text)
            }
            Err(refusal) => self.refuse(&refusal, "script"),
        }
    }
}

/// A refusal as iPXE understands it (H7 and H8): 403 or 401 is for nobody, 404 never, 503 later.
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

/// Text that is good for this asker and this moment only.
pub(super) fn written(text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    not_kept(answer)
}

/// An answer that nobody on the way may keep.
pub(super) fn not_kept(mut answer: Response) -> Response {
    let never = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, never);
    answer
}
