//! `/images/…`: files of images, as the image service sends them: of public ones to everybody, of
//! others to a machine with a live workflow that names the image.

mod cached;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Path;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use range_cache::Cache;
use runtime::Channel;
use runtime::neighbour::NeighbourCheck;
use tower::{Service as _, ServiceExt as _};

use self::cached::ImageOrigin;
use super::{Http, HttpState, Source};

/// Maximum length of the name of a file in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The value of Cache-Control in requests of a worker that found a wrong block.
const NO_CACHE: &str = "no-cache";
/// Delay after which a client repeats a request, in seconds.
const RETRY_SECONDS: &str = "5";
/// Headers of responses that are passed on.
const PASSED: [HeaderName; 5] = [
    header::ACCEPT_RANGES,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::ETAG,
];

/// Source of images.
#[derive(Clone, Debug)]
pub struct ImageContent {
    /// The image service.
    pub channel: Channel,
    /// The cache of a process away from it.
    pub cache: Option<Cache>,
}

pub(super) fn routes() -> Router<Arc<Http>> {
    Router::new().route("/images/{name}", get(image))
}

async fn image(
    http: HttpState,
    source: Source,
    Extension(neighbour): Extension<NeighbourCheck>,
    Path(name): Path<String>,
    request: Parts,
) -> Response {
    let Some(ImageContent { channel, cache }) = http.content.clone().filter(|_| is_name(&name))
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let digest = name.split('.').next().unwrap_or_default();
    let workflow =
        http.boots.workflow_with_image(digest, *source, neighbour, http.boots.clock.wall());
    let refetch = is_refetch(&request.headers) && workflow.is_some();
    if let Some(cache) = cache.filter(|_| cached::is_cached(&name)) {
        let origin = ImageOrigin { channel, workflow, refetch };
        return cached::respond(&cache, origin, &name, &request).await;
    }
    let wanted = Wanted {
        method: request.method,
        name: &name,
        workflow: workflow.as_deref(),
        range: request.headers.get(header::RANGE).cloned(),
        refetch,
    };
    match request_file(channel, wanted).await {
        Ok(response) if is_answer(response.status()) => passed_on(response),
        Ok(response) if response.status() == StatusCode::NOT_FOUND => {
            StatusCode::NOT_FOUND.into_response()
        }
        Ok(response) => {
            tracing::warn!(file = name, status = response.status().as_u16(), "image not served");
            later()
        }
        Err(error) => {
            tracing::warn!(error = &*error, file = name, "image service not reached");
            later()
        }
    }
}

/// A request to the image service.
struct Wanted<'a> {
    method: Method,
    /// Name of the file.
    name: &'a str,
    /// The workflow for whose machine it is.
    workflow: Option<&'a str>,
    range: Option<HeaderValue>,
    /// True if the machine found wrong bytes.
    refetch: bool,
}

/// True if the client wants no bytes of a cache. A worker that found a wrong block does; of anybody
/// else that would be a way to make servers read the file again and again.
fn is_refetch(headers: &HeaderMap) -> bool {
    headers.get(header::CACHE_CONTROL).is_some_and(|value| value == NO_CACHE)
}

/// Requests a file from the image service.
async fn request_file(
    mut channel: Channel,
    wanted: Wanted<'_>,
) -> Result<Response<tonic::body::Body>, tower::BoxError> {
    let query = wanted.workflow.map_or_else(String::new, |id| format!("?workflow={id}"));
    let uri = format!("/images/{}{query}", wanted.name);
    let mut sent = Request::builder().method(wanted.method).uri(uri);
    if let Some(range) = wanted.range {
        sent = sent.header(header::RANGE, range);
    }
    if wanted.refetch {
        sent = sent.header(header::CACHE_CONTROL, NO_CACHE);
    }
    let sent = sent.body(tonic::body::Body::empty())?;
    channel.ready().await?.call(sent).await
}

/// True if the status is one that a client of files understands.
fn is_answer(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE
}

fn passed_on(response: Response<tonic::body::Body>) -> Response {
    let (mut head, body) = response.into_parts();
    let mut headers = std::mem::take(&mut head.headers);
    let values = PASSED.into_iter().filter_map(|name| Some((headers.remove(&name)?, name)));
    let headers: HeaderMap = values.map(|(value, name)| (name, value)).collect();
    (head.status, headers, Body::new(body)).into_response()
}

fn later() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_SECONDS)]).into_response()
}

/// True if `name` has the form of a file's name: nothing else reaches the image service.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.';
    name.len() <= MAX_NAME_BYTES && name.bytes().all(is_allowed)
}
