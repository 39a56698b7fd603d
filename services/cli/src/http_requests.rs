//! Requests of plain HTTP, on the connection of the calls.

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use runtime::{Channel, retry};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};

/// Maximum length of an error text of the server, in bytes.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Sends `request`. A response without success is an error.
pub(crate) async fn send(
    channel: &Channel,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let mut channel = channel.clone();
    let response = async { channel.ready().await?.call(request).await }.await;
    let broken = |error| retry::describe_broken(Status::from_error(error));
    let response = response.map_err(broken)?;
    if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
}

/// Returns the status of a refused request. The server sends it in the headers; a proxy sends a
/// text only.
async fn refusal(response: Response<Body>) -> Status {
    let http = response.status();
    let is_error = |status: &Status| status.code() != Code::Ok;
    if let Some(status) = Status::from_header_map(response.headers()).filter(is_error) {
        return status;
    }
    let is_text = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|it| it.to_str().is_ok_and(|media_type| media_type.starts_with("text/plain")));
    let body = Limited::new(response.into_body(), MAX_TEXT_BYTES).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).trim().to_owned();
    let text = if is_text && !text.is_empty() { text } else { format!("HTTP {http}") };
    let code = match http {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Code::Unavailable,
        http if http.is_server_error() => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    Status::new(code, text)
}
