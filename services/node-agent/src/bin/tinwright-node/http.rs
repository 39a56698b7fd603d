//! Requests of the ImageAPI, whatever listener they come from.

use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use imageapi::{ApiError, BASE_PATH, DecodeOptions, MAX_BODY_BYTES, Secrets};
use node_agent::Node;
use runtime::clock::Clock;
use tokio::time::timeout;

/// The node and the settings of one listener.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) node: Node,
    pub(crate) options: DecodeOptions,
    pub(crate) secrets: Secrets,
    /// The longest time for the body of a request. Zero: not limited.
    pub(crate) read_timeout: Duration,
    /// The longest time for the answer. Zero: not limited.
    pub(crate) write_timeout: Duration,
}

impl Api {
    /// Returns the service of all requests.
    pub(crate) fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }
}

/// Answers a request. A panic, too, is answered.
async fn answer(State(api): State<Api>, request: Request<Body>) -> Response<Body> {
    let started = Clock::system().monotonic();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = match tokio::spawn(respond(api, request)).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "a request failed: this is a defect of the program");
            internal("the request could not be processed").into()
        }
    };
    let elapsed = Clock::system().monotonic().saturating_duration_since(started);
    tracing::info!(%method, path = uri.path(), status = response.status().as_u16(), ?elapsed, "request");
    response.map(Body::from)
}

async fn respond(api: Api, request: Request<Body>) -> Response<Bytes> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    // A client whose base URL ends with a slash requests a second one.
    let once = path.strip_prefix('/').filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let Some(below) = once.strip_prefix(BASE_PATH) else {
        return match (path, &head.method) {
            ("/swagger.json", &Method::GET) => imageapi::description(),
            _ => ApiError::new(StatusCode::NOT_FOUND, format!("path {path} was not found")).into(),
        };
    };
    let body = match limited(api.read_timeout, read(body)).await {
        Some(Ok(body)) => body,
        Some(Err(error)) => return error.into(),
        None => {
            return ApiError::new(StatusCode::BAD_REQUEST, "the body did not arrive in time")
                .into();
        }
    };
    let request = imageapi::Request {
        method: &head.method,
        path: below,
        query: head.uri.query(),
        headers: &head.headers,
    };
    let call = match imageapi::decode(&request, &body, api.options) {
        Ok(call) => call,
        Err(error) => return error.into(),
    };
    match limited(api.write_timeout, api.node.call(None, call.message)).await {
        Some(result) => imageapi::encode(call.operation, result, api.secrets),
        None => internal("the time of the request is over").into(),
    }
}

/// Reads a body to its end: a client that is still sending would not see its answer. Of one that is too long, enough is returned for the
/// decoder to refuse it.
async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let unreadable = |error| {
            ApiError::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"))
        };
        let Ok(data) = frame.map_err(unreadable)?.into_data() else { continue };
        let room = (MAX_BODY_BYTES + 1).saturating_sub(kept.len());
        kept.extend_from_slice(&data[..data.len().min(room)]);
    }
    Ok(kept.freeze())
}

/// Returns the result of `work`, or none if that takes longer than `limit`. A limit of zero is none.
async fn limited<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    match limit.is_zero() {
        true => Some(work.await),
        false => timeout(limit, work).await.ok(),
    }
}

fn internal(cause: &str) -> ApiError {
    let message = format!("internal server error: {cause}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
