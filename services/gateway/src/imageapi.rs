//! The ImageAPI 0.2.0 of nodes: `docs/gateway.md`.
//!
//! ```text
//! /imageapi/v1/…                       the node of the header Tinwright-Node, or the only one that there is
//! /nodes/{id or name}/imageapi/v1/…    that node
//! //…                                  the same: the base URL of the client ends with a slash
//!
//! request ─▶ node ─▶ client ─▶ libs/imageapi ─▶ CallNode as the client ─▶ libs/imageapi ─▶ response
//! ```
//!
//! - [`target`]: the node of a request, and the path below the base path. [`failure`]: the answers to calls that did not reach a node.

pub mod failure;
pub mod target;

use std::sync::Arc;
use std::time::Duration;

use ::imageapi::{
    ApiError, Call, DecodeOptions, MAX_BODY_BYTES, Secrets, decode, description, encode,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, StatusCode};
use tinwright::node::v1::CallNodeRequest;
use tonic::Status;

use self::failure::failed;
use self::target::NodeTarget;
use crate::{Door, Gateway, Refusal};
use runtime::unread_body::{close, finish, read};

/// The header that names the node.
pub const NODE: HeaderName = HeaderName::from_static("tinwright-node");
/// The header that makes a call safe to repeat.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest time until a response begins. The node service gives up after 28 s, and clients of the ImageAPI after 30 s.
const DEADLINE: Duration = Duration::from_secs(29);

/// The door at one of its paths.
struct ImageApi {
    gateway: Gateway,
    /// Finds the node of a request.
    target: fn(&Parts) -> Result<NodeTarget, ApiError>,
}

/// Serves the ImageAPI at `/imageapi/v1` and `/nodes`, and behind a second slash. Clients request
/// the second form if their base URL ends with a slash.
pub fn doors(gateway: &Gateway) -> [Door; 4] {
    let door = |prefix, target| Door {
        name: "imageapi",
        prefix,
        router: Router::new()
            .fallback(answer)
            .with_state(Arc::new(ImageApi { gateway: gateway.clone(), target })),
        max_body_bytes: MAX_BODY_BYTES,
        deadline: DEADLINE,
        refuse: |refusal| refused(refusal).map(Body::from),
    };
    [
        door(::imageapi::BASE_PATH, target::by_header),
        door("//imageapi/v1", target::by_header),
        door("/nodes", target::by_path),
        door("//nodes", target::by_path),
    ]
}

/// Returns the page with the description of the API. Clients are generated from it.
pub fn pages() -> Router {
    Router::new().route("/swagger.json", get(async || description().map(Body::from)))
}

fn refused(refusal: &Refusal) -> http::Response<Bytes> {
    if matches!(refusal, Refusal::TooLarge(_)) {
        return too_large().into();
    }
    failed(&refusal.status())
}

/// As the ImageAPI answers other bodies that it cannot read.
fn too_large() -> ApiError {
    let text = format!("the body has more than {MAX_BODY_BYTES} bytes");
    ApiError::new(StatusCode::BAD_REQUEST, text)
}

async fn answer(State(door): State<Arc<ImageApi>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    let response = door.respond(&parts, &mut body).await;
    let is_cut = matches!(&response, Err(Unanswered::Api(error)) if *error == too_large());
    let mut response = response.unwrap_or_else(Unanswered::into_response).map(Body::from);
    finish(body, parts.version, &mut response).await;
    if is_cut {
        // A part of it was read.
        close(parts.version, &mut response);
    }
    response
}

/// The reason for a missing response of a node.
enum Unanswered {
    /// The request is not one of the ImageAPI.
    Api(ApiError),
    /// The call was refused, or did not reach the node.
    Call(Status),
}

impl Unanswered {
    fn into_response(self) -> http::Response<Bytes> {
        match self {
            Self::Api(error) => error.into(),
            Self::Call(status) => failed(&status),
        }
    }
}

impl From<ApiError> for Unanswered {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<Status> for Unanswered {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

impl ImageApi {
    /// Answers a request. The body is taken when it is read.
    async fn respond(
        &self,
        parts: &Parts,
        body: &mut Option<Body>,
    ) -> Result<http::Response<Bytes>, Unanswered> {
        let target = (self.target)(parts)?;
        let client = self.gateway.client(parts).await?;
        let incomplete = |text| ApiError::new(StatusCode::BAD_REQUEST, text);
        let body = read(body, MAX_BODY_BYTES, too_large, incomplete).await?;
        let request = ::imageapi::Request {
            method: &parts.method,
            path: &target.path,
            query: parts.uri.query(),
            headers: &parts.headers,
        };
        let Call { operation, message } = decode(&request, &body, DecodeOptions::default())?;
        let nodes = client.channel(&self.gateway.backend.to("node"));
        let call_id = target::text(&parts.headers, &IDEMPOTENCY_KEY)?.unwrap_or_default();
        let call = CallNodeRequest { node_id: target.node, call: Some(message), call_id };
        let result = runtime::call(nodes, call).await?.result.unwrap_or_default();
        Ok(encode(operation, result, Secrets::Masked))
    }
}
