//! Scripts over HTTP, at the paths of both generations of clients.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Path;
use axum::http::{Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use runtime::neighbour::NeighbourCheck;

use super::{Http, HttpState, Source};
use crate::Mac;
use crate::bootscripts::ScriptRequest;
use crate::ipxe;
use crate::machine_view::MachineView;

pub(super) fn routes() -> Router<Arc<Http>> {
    let bases = ["", "/{mac}", "/ipxe/script", "/ipxe/script/{mac}"];
    let router = Router::new().route("/boot.ipxe", get(by_labels)).route("/ipxe", get(labelled));
    bases.into_iter().fold(router, |router, base| {
        let router = router.route(&format!("{base}/auto.ipxe"), get(script));
        router.route(&format!("{base}/autoexec.ipxe"), get(autoexec))
    })
}

async fn script(
    http: HttpState,
    source: Source,
    Extension(neighbour): Extension<NeighbourCheck>,
    mac: Option<Path<String>>,
    uri: Uri,
) -> Result<Response, StatusCode> {
    let mac = parse_mac(mac.map(|Path(mac)| mac))?;
    Ok(http.script(request(mac, (*source, neighbour), uri.query())))
}

/// Matchbox's request: the other labels are claims of the client, and decide nothing.
async fn labelled(
    http: HttpState,
    source: Source,
    Extension(neighbour): Extension<NeighbourCheck>,
    uri: Uri,
) -> Result<Response, StatusCode> {
    let mac = parse_mac(label(uri.query(), "mac"))?;
    Ok(http.script(request(mac, (*source, neighbour), uri.query())))
}

fn parse_mac(text: Option<String>) -> Result<Option<Mac>, StatusCode> {
    text.map(|text| text.parse()).transpose().map_err(|_| StatusCode::BAD_REQUEST)
}

/// Returns the request from the address `source`, which has the owner `neighbour`.
fn request(
    mac: Option<Mac>,
    (source, neighbour): (IpAddr, NeighbourCheck),
    query: Option<&str>,
) -> ScriptRequest {
    ScriptRequest { uuid: label(query, "uuid"), neighbour, ..ScriptRequest::new(mac, source) }
}

/// Returns the value of `name` in the query; of several the last.
pub(super) fn label(query: Option<&str>, name: &str) -> Option<String> {
    let labels = form_urlencoded::parse(query?.as_bytes());
    labels.filter(|(label, _)| label == name).last().map(|(_, value)| value.into_owned())
}

async fn by_labels(http: HttpState) -> Result<Response, StatusCode> {
    let script = ipxe::by_labels(&http.boots.site.base_url());
    script.map(text).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn autoexec(
    http: HttpState,
    source: Source,
    mac: Option<Path<String>>,
) -> Result<Response, StatusCode> {
    Ok(http.autoexec(parse_mac(mac.map(|Path(mac)| mac))?, *source))
}

impl Http {
    /// Serves the script that newer builds of iPXE fetch before DHCP.
    pub(super) fn autoexec(&self, mac: Option<Mac>, source: IpAddr) -> Response {
        match self.boots.autoexec(mac) {
            Ok(script) => text(script),
            Err(refusal) => self.refuse(&refusal, "autoexec", source, mac),
        }
    }

    /// Responds to `request` if it is for a script at the path that machines are sent to, spelled as we spell it.
    pub(super) fn fast_path<B>(
        &self,
        request: &Request<B>,
        source: (IpAddr, NeighbourCheck),
    ) -> Option<Response> {
        let (mac, name) = request.uri().path().strip_prefix('/')?.split_once('/')?;
        if name != "auto.ipxe" || request.method() != Method::GET {
            return None;
        }
        let mac = mac.parse().ok()?;
        Some(self.script(self::request(Some(mac), source, request.uri().query())))
    }

    fn script(&self, request: ScriptRequest) -> Response {
        let now = self.boots.clock.wall();
        match self.boots.serve(&request, now) {
            Ok(script) => {
                let kind = ipxe::kind_label(script.kind);
                self.metrics.script(kind);
                let mac = request.mac.map(tracing::field::display);
                let machine = self.boots.identify(request.mac, Some(request.source), now);
                let machine = machine.as_deref().map(MachineView::label);
                tracing::info!(machine, source = %request.source, mac, kind, "script served");
                text(script.text)
            }
            Err(refusal) => self.refuse(&refusal, "script", request.source, request.mac),
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
