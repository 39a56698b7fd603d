//! Whole requests through layers and door, to services of which only the identity service knows anything.

use axum::body::{Body, Bytes};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use prost::Message as _;
use runtime::revocation::Revocations;
use runtime::{Caller, LocalServices, Role};
use serde_json::{Value, json};
use tinwright::identity::v1::{AuthenticateRequest, AuthenticateResponse, Credential};
use tonic::Status;
use tower::ServiceExt as _;

use super::*;
use crate::Backend;

const KEY: &str = "mk_live_3f9d2c7a51";
const STATUS: &str = "/v1/infrastructure/server/provision-status";

async fn service(request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if !path.ends_with("/Authenticate") {
        return Status::not_found("nothing").into_http();
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let asked = AuthenticateRequest::decode(&body[5..]).unwrap();
    if asked.fields.get("api_key").map(String::as_str) != Some(KEY) {
        return Status::unauthenticated("no such credential").into_http();
    }
    let credential = Credential { hubs: vec!["h1".into()], ..Credential::default() };
    let caller = "tinwright:operator?subject=credential:c1&tenant=acme".into();
    let answer = AuthenticateResponse { caller, credential: Some(credential) }.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(answer.len()).unwrap().to_be_bytes());
    frame.extend(answer);
    let end = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    let trailers = async move { Some(Ok(HeaderMap::from_iter([end]))) };
    let body = http_body_util::Full::<Bytes>::from(frame).with_trailers(trailers);
    let response = Response::builder().header(header::CONTENT_TYPE, "application/grpc");
    response.body(Body::new(body)).unwrap()
}

fn gateway(is_catalogue_public: bool) -> Router {
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    let services = LocalServices::of(Router::new().fallback(service));
    let backend = Backend::at_one(services.channel(door));
    let (revocations, settings) = (Revocations::default(), crate::GatewaySettings::default());
    let gateway = Gateway::new(backend, revocations, settings, &mut Registry::default());
    let clock = Clock::system();
    let ial = doors(&gateway, IalSettings { is_catalogue_public, has_rate_limits: true, clock });
    gateway.router(ial, Router::new())
}

/// Sends a request. Returns its envelope, of which the HTTP status is asserted.
async fn send(
    app: &Router,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
) -> (Value, HeaderMap) {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!(head.headers[header::CONTENT_TYPE], "application/json", "{path}");
    let envelope: Value = serde_json::from_slice(&body).unwrap();
    let keys: Vec<_> = envelope.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["data", "error"]);
    if head.status == StatusCode::OK {
        assert_eq!(envelope["error"], Value::Null);
    } else {
        assert_eq!(envelope["data"], Value::Null);
        assert_eq!(envelope["error"]["status"], head.status.as_u16());
    }
    (envelope, head.headers)
}

async fn post(app: &Router, path: &str, body: &Value) -> Value {
    send(app, "POST", path, "application/json; charset=utf-8", &body.to_string()).await.0
}

fn refusal(envelope: &Value) -> (String, String) {
    let text = |key: &str| envelope["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("source"))
}

fn wrapped(request: Value) -> Value {
    json!({"auth": {"api_key": KEY, "cycle": {"hub_name": "Acme", "hub_id": "h1"}}, "request": request})
}

fn code(code: &str, source: &str) -> (String, String) {
    (code.to_owned(), source.to_owned())
}

#[tokio::test]
async fn transport_faults_have_their_codes_and_always_an_envelope() {
    let app = gateway(true);
    for body in ["", "x", "[]", "{\"auth\""] {
        let (envelope, _) = send(&app, "POST", STATUS, "application/json", body).await;
        assert_eq!(refusal(&envelope), code("400.invalid-syntax", ""), "{body}");
    }
    let (envelope, _) = send(&app, "POST", STATUS, "text/plain", "{}").await;
    assert_eq!(refusal(&envelope).0, "415.invalid-content-type");
    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(MAX_BODY_BYTES));
    let (envelope, headers) = send(&app, "POST", STATUS, "application/json", &large).await;
    assert_eq!(refusal(&envelope).0, "422.max-exceeded");
    assert_eq!(headers[header::CONNECTION], "close");
    for path in ["/v1/nothing", "/v1", "/v1/", "//v1", "//v1/"] {
        let (envelope, _) = send(&app, "POST", path, "application/json", "{}").await;
        assert_eq!(refusal(&envelope).0, "404.uri", "{path}");
    }
    let (envelope, headers) = send(&app, "PUT", STATUS, "application/json", "{}").await;
    assert_eq!(
        (refusal(&envelope).0.as_str(), &headers[header::ALLOW]),
        ("404.uri", &HeaderValue::from_static("GET, POST"))
    );
}

#[tokio::test]
async fn credentials_are_checked_before_the_document_is_read() {
    let app = gateway(true);
    let invalid = code("401.auth-invalid", "");
    for auth in [json!(null), json!({}), json!({"api_key": "another"}), json!({"client_id": "x"})] {
        let envelope = post(&app, STATUS, &json!({"auth": auth, "request": 7})).await;
        assert_eq!(refusal(&envelope), invalid);
        assert!(!envelope.to_string().contains("another"));
    }
    let wrong = json!({"auth": {"api_key": " "}, "request": 7});
    assert_eq!(
        refusal(&post(&app, STATUS, &wrong).await),
        code("422.invalid-argument", "/auth/api_key")
    );
    let missing = post(&app, STATUS, &wrapped(json!(null))).await;
    assert_eq!(refusal(&missing), code("422.missing-argument", "/request"));
    let typed = post(&app, STATUS, &wrapped(json!({"server_id": 7}))).await;
    assert_eq!(refusal(&typed), code("400.invalid-syntax", "/request/server_id"));
    let mut other = wrapped(json!({}));
    other["auth"]["cycle"]["hub_id"] = "h2".into();
    assert_eq!(refusal(&post(&app, STATUS, &other).await).0, "403.permissions");
}

#[tokio::test]
async fn the_routes_of_the_status_answer_alike() {
    let app = gateway(true);
    let body = wrapped(json!({"server_id": "srv-1", "location_id": "kir1"})).to_string();
    for path in ["provision-status", "provision-check"] {
        for method in ["GET", "POST"] {
            for prefix in ["/v1", "//v1"] {
                let path = format!("{prefix}/infrastructure/server/{path}");
                let (envelope, _) = send(&app, method, &path, "application/json", &body).await;
                let unknown = code("404.infrastructure.server", "/request/server_id");
                assert_eq!(refusal(&envelope), unknown, "{method} {path}");
            }
        }
    }
    let query = format!("{STATUS}?server_id=srv-1&location_id=kir1");
    let request =
        Request::builder().uri(query).header(header::AUTHORIZATION, format!("Bearer {KEY}"));
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    // The credential is for one hub, which a query cannot name.
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_check_of_credentials_is_no_error_and_calls_are_limited() {
    let app = gateway(false);
    let valid = post(&app, "/v1/auth/verify/", &wrapped(json!(null))).await;
    assert_eq!(valid, json!({"data": {"valid": true}, "error": null}));
    let invalid = post(&app, "/v1/auth/verify", &json!({"auth": {"api_key": "x"}})).await;
    assert_eq!(invalid, json!({"data": {"valid": false}, "error": null}));
    let listing = "/v1/infrastructure/provider/locations";
    let (envelope, _) = send(&app, "GET", listing, "application/json", "").await;
    assert_eq!(refusal(&envelope).0, "401.auth-invalid");
    let mut refused = 0;
    for _ in 0..60 {
        let envelope = post(&app, STATUS, &wrapped(json!(null))).await;
        refused += usize::from(refusal(&envelope).0 == "429.rate-limiting");
    }
    assert!(refused > 0);
}
