//! Whole requests through layers and door, to services of which only the identity service knows anything.

mod connections;
mod orders;

use axum::body::Body;
use http::{HeaderValue, StatusCode};
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
use crate::test_log::Log;

const KEY: &str = "mk_live_3f9d2c7a51";
/// The key of a credential that may only read.
const VIEWER_KEY: &str = "mk_live_7a51c4e02b";
const STATUS: &str = "/v1/infrastructure/server/provision-status";

async fn service(request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if !path.ends_with("/Authenticate") {
        return Status::not_found("nothing").into_http();
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let asked = AuthenticateRequest::decode(&body[5..]).unwrap();
    let (role, subject) = match asked.fields.get("api_key").map(String::as_str) {
        Some(KEY) => ("operator", "c1"),
        Some(VIEWER_KEY) => ("viewer", "c2"),
        _ => return Status::unauthenticated("no such credential").into_http(),
    };
    let credential = Credential { hubs: vec!["h1".into()], ..Credential::default() };
    let caller = format!("tinwright:{role}?subject=credential:{subject}&tenant=acme");
    reply(&AuthenticateResponse { caller, credential: Some(credential) })
}

/// Returns the response of a service with one message.
fn reply(message: &impl prost::Message) -> Response {
    let body = crate::test_body::of_message(message.encode_to_vec().into());
    let response = Response::builder().header(header::CONTENT_TYPE, "application/grpc");
    response.body(Body::new(body)).unwrap()
}

fn gateway(is_catalogue_public: bool) -> Router {
    gateway_at(is_catalogue_public, Clock::system())
}

fn gateway_at(is_catalogue_public: bool, clock: Clock) -> Router {
    gateway_of(Router::new().fallback(service), is_catalogue_public, clock)
}

fn gateway_of(services: Router, is_catalogue_public: bool, clock: Clock) -> Router {
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    let services = LocalServices::of(services);
    let backend = Backend::at_one(services.channel(door));
    let settings =
        crate::GatewaySettings { clock: clock.clone(), ..crate::GatewaySettings::default() };
    let revocations = Revocations::default();
    let gateway = Gateway::new(backend, revocations, settings, &mut Registry::default());
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
async fn a_check_of_credentials_is_no_error() {
    let app = gateway(false);
    let valid = post(&app, "/v1/auth/verify/", &wrapped(json!(null))).await;
    assert_eq!(valid, json!({"data": {"valid": true}, "error": null}));
    let invalid = post(&app, "/v1/auth/verify", &json!({"auth": {"api_key": "x"}})).await;
    assert_eq!(invalid, json!({"data": {"valid": false}, "error": null}));
    let listing = "/v1/infrastructure/provider/locations";
    let (envelope, _) = send(&app, "GET", listing, "application/json", "").await;
    assert_eq!(refusal(&envelope).0, "401.auth-invalid");
}

#[tokio::test]
async fn a_credential_that_may_not_order_is_not_valid() {
    let mut viewer = wrapped(json!(null));
    viewer["auth"]["api_key"] = VIEWER_KEY.into();
    let app = gateway(true);
    let checked = post(&app, "/v1/auth/verify", &viewer).await;
    assert_eq!(checked, json!({"data": {"valid": false}, "error": null}));
    // It reads as before.
    viewer["request"] = json!({"server_id": "srv-1", "location_id": "kir1"});
    assert_eq!(refusal(&post(&app, STATUS, &viewer).await).0, "404.infrastructure.server");
}

/// Asks for the status of so many machines at once. Returns the number of those that were not too
/// many.
async fn poll(app: &Router, machines: usize) -> usize {
    let body = wrapped(json!({"server_id": "srv-1", "location_id": "kir1"}));
    let answers = (0..machines).map(|_| post(app, STATUS, &body));
    let answers = futures_util::future::join_all(answers).await;
    let is_answered = |it: &&Value| refusal(it).0 == "404.infrastructure.server";
    let answered = answers.iter().filter(is_answered).count();
    let is_refused = |it: &&Value| refusal(it).0 == "429.rate-limiting";
    assert_eq!(answers.iter().filter(is_refused).count(), machines - answered);
    answered
}

#[tokio::test]
async fn hundreds_of_machines_are_polled_at_once_again_and_again_and_calls_are_limited() {
    let clock = Clock::manual(std::time::SystemTime::UNIX_EPOCH);
    let app = gateway_at(true, clock.clone());
    for round in 0..20 {
        assert_eq!(poll(&app, 400).await, 400, "round {round}");
        clock.advance(Duration::from_secs(5));
    }
    assert_eq!(poll(&app, 500).await, 400, "at once");
    clock.advance(Duration::from_secs(1));
    assert_eq!(poll(&app, 100).await, 80, "a second later");
    let (_, headers) =
        send(&app, "POST", STATUS, "application/json", &wrapped(json!({})).to_string()).await;
    assert_eq!(headers[header::RETRY_AFTER], "1");
}

#[tokio::test]
async fn the_log_names_the_client_of_a_right_key_whatever_is_answered() {
    let (log, _guard) = Log::begin();
    let app = gateway_at(true, Clock::manual(std::time::SystemTime::UNIX_EPOCH));
    let verified = post(&app, "/v1/auth/verify", &wrapped(json!(null))).await;
    assert_eq!(verified["data"], json!({"valid": true}));
    let mut other_hub = wrapped(json!({}));
    other_hub["auth"]["cycle"]["hub_id"] = "h2".into();
    assert_eq!(refusal(&post(&app, STATUS, &other_hub).await).0, "403.permissions");
    assert_eq!(poll(&app, 400).await, 398, "two calls were made before");
    let lines = log.answers();
    assert_eq!(lines.len(), 402);
    for line in lines {
        assert!(line.contains("caller=\"credential:c1\""), "{line}");
        assert!(!line.contains("strangers="), "{line}");
    }
}
