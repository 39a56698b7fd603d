//! Plain HTTP on the channel of the calls: uploads and blobs.

use http::{Request, Response, StatusCode};
use runtime::Channel;
use runtime::retry::describe_broken;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::ServiceExt as _;

/// Sends `request`. Returns the response, or the status of a channel without a server.
pub(crate) async fn send(
    channel: &Channel,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let sent = channel.clone().oneshot(request).await;
    let response = sent.map_err(|error| describe_broken(Status::from_error(error)))?;
    // Services of this process that stop answer all requests as calls: 200, and a code. Answers over
    // HTTP have a code, too, besides their own status.
    match code(&response) {
        Some(status) if response.status() == StatusCode::OK => Err(status),
        _ => Ok(response),
    }
}

/// True if the server may give another answer to the same request.
pub(crate) fn may_repeat(response: &Response<Body>) -> bool {
    let is_aborted = code(response).is_some_and(|status| status.code() == Code::Aborted);
    is_aborted || is_temporary(response.status())
}

/// Returns the error that `response` has besides its HTTP status.
fn code(response: &Response<Body>) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

/// True for the status of a server that may answer in another way later: overload, maintenance, and
/// errors of proxies.
pub(crate) fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504)
}
