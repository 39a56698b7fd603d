//! Uploads of images at `/uploads/<image id>`: tus 1.0, and whole files by `PUT`. They are passed on to the image service.
//!
//! ```text
//! request ─▶ client ─▶ place ─▶ headers, body ─HTTP with the client's caller─▶ image service
//! ```
//!
//! The body of an upload has any length, and takes any time: it is cut after a minute without a
//! byte. `headers`: those that are passed on. `body`: a body that can be taken back.

mod body;
mod headers;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use runtime::unread_body;
use tinwright::{ImageId, status};
use tonic::{Code, Status};
use tower::{BoxError, ServiceExt as _};

use self::body::PassedBody;
use crate::errors::Problem;
use crate::layers::RequestPlace;
use crate::{Client, Door, Gateway};

/// The longest time until a response begins, without the time of an upload.
const DEADLINE: Duration = Duration::from_secs(30);
/// The time after which an upload above the limit may be repeated.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// The largest body of a response. The image service answers with a line of text at most.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The methods of uploads. Their files are not served.
const METHODS: [Method; 5] =
    [Method::HEAD, Method::OPTIONS, Method::PATCH, Method::POST, Method::PUT];

/// Returns the door at `/uploads`.
pub fn door(gateway: &Gateway) -> Door {
    Door {
        name: "uploads",
        prefix: "/uploads",
        router: Router::new().fallback(answer).with_state(gateway.clone()),
        max_body_bytes: usize::MAX,
        deadline: DEADLINE,
        refuse: |refusal| {
            Problem::with_http(refusal.http_status(), refusal.status()).into_response()
        },
    }
}

async fn answer(State(gateway): State<Gateway>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = PassedBody::new(body);
    let response = respond(&gateway, &parts, &body).await;
    let mut response = response.unwrap_or_else(Problem::into_response);
    unread_body::finish(body.take(), parts.version, &mut response).await;
    response
}

async fn respond(gateway: &Gateway, parts: &Parts, body: &PassedBody) -> Result<Response, Problem> {
    let client = gateway.client(parts).await?;
    let image = image(parts)?;
    let is_upload = matches!(parts.method, Method::PATCH | Method::PUT);
    // Until the response begins.
    let _place = match is_upload {
        true => Some(gateway.shared.upload_place(owner(&client)).ok_or_else(too_many)?),
        false => None,
    };
    if is_upload {
        RequestPlace::give_back(&parts.extensions);
    }
    let passed = http::Request::builder().method(&parts.method).uri(format!("/uploads/{image}"));
    let passed = passed.body(tonic::body::Body::new(body.clone()));
    let mut passed = passed.map_err(|_| no_image())?;
    *passed.headers_mut() = headers::of_request(&parts.headers);
    let answered = client.channel(&gateway.backend.to("image")).oneshot(passed).await;
    answer_of_service(answered.map_err(|error| unanswered(error, body))?.map(Body::new)).await
}

/// Returns the image of the request with these `parts`.
fn image(parts: &Parts) -> Result<ImageId, Problem> {
    let id: ImageId = parts.uri.path().trim_start_matches('/').parse().map_err(|_| no_image())?;
    if METHODS.contains(&parts.method) {
        return Ok(id);
    }
    let allowed = "HEAD, OPTIONS, PATCH, POST, PUT";
    let text = format!("this path has other methods: {allowed}");
    let mut problem =
        Problem::with_http(StatusCode::METHOD_NOT_ALLOWED, Status::unimplemented(text));
    problem.headers.push((header::ALLOW, HeaderValue::from_static(allowed)));
    Err(problem)
}

/// Returns the name by which the uploads of `client` are counted: its tenant, or its own.
fn owner(client: &Client) -> String {
    let subject = || client.caller.subject().to_string();
    client.caller.tenant().map_or_else(subject, |tenant| format!("tenant {tenant}"))
}

fn no_image() -> Problem {
    Status::not_found("no such image: the path is /uploads/ and the id of an image").into()
}

fn too_many() -> Problem {
    status::overloaded("too many concurrent uploads", RETRY_DELAY).into()
}

/// Returns the problem of a request that the image service did not answer.
fn unanswered(error: BoxError, body: &PassedBody) -> Problem {
    if body.is_broken() {
        return Status::invalid_argument("the body is not complete").into();
    }
    Status::from_error(error).into()
}

/// Returns the response to the client: an error as a problem document.
async fn answer_of_service(response: Response) -> Result<Response, Problem> {
    let (parts, body) = response.into_parts();
    let headers = headers::of_response(&parts.headers);
    let Some(status) = Status::from_header_map(&parts.headers) else {
        // Read before the body of the request is taken back: over HTTP/2, that resets the stream.
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|_| Status::unavailable("the image service broke off"))?;
        let mut response = (parts.status, body.to_bytes()).into_response();
        *response.headers_mut() = headers;
        return Ok(response);
    };
    if parts.status == StatusCode::OK {
        // A response of gRPC: no image service answered.
        let is_absent = status.code() == Code::Unimplemented;
        let absent = || Status::not_found("this server does not store images");
        return Err(if is_absent { absent() } else { status }.into());
    }
    let headers = headers.iter().filter(|(name, _)| **name != header::CONTENT_TYPE);
    let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
    Err(Problem { http: parts.status, status, headers })
}

#[cfg(test)]
mod tests;
