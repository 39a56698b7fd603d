//! Requests to the mirror, whose services are one that answers every call with an empty message.

use std::sync::Mutex;

use axum::body::Body;
use bytes::Bytes;
use prometheus_client::registry::Registry;
use runtime::revocation::Revocations;
use runtime::{Caller, LocalServices, Role};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{Backend, GatewaySettings};

const ID: &str = "0198c0de-0000-7000-8000-000000000001";

/// The mirror, and the last call that it made: path and message.
struct Site {
    router: Router,
    made: Arc<Mutex<Option<(String, Bytes)>>>,
}

fn site() -> Site {
    let made = Arc::new(Mutex::new(None));
    let seen = made.clone();
    let app = Router::new().fallback(async move |request: Request| {
        let path = request.uri().path().to_owned();
        let body = axum::body::to_bytes(request.into_body(), 1 << 24).await.unwrap();
        *seen.lock().unwrap() = Some((path, body.slice(5..)));
        let headers =
            [(header::CONTENT_TYPE, "application/grpc"), (header::TRAILER, "grpc-status")];
        (headers, Body::new(crate::test_body::of_message(Bytes::new()))).into_response()
    });
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    let backend = Backend::at_one(LocalServices::of(app).channel(door));
    let (revocations, registry) = (Revocations::default(), &mut Registry::default());
    let gateway = Gateway::new(backend, revocations, GatewaySettings::default(), registry);
    Site { router: gateway.router([door_of(&gateway)], Router::new()), made }
}

fn door_of(gateway: &Gateway) -> Door {
    super::door(gateway)
}

/// A request as a client sends it.
struct Sent<'a>(&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

const JSON: (&str, &str) = ("content-type", "application/json");

impl Site {
    async fn send(&self, Sent(method, path, headers, body): Sent<'_>) -> (u16, HeaderMap, Value) {
        let mut request = Request::builder().method(method).uri(format!("/api/v1/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let admin: Caller = Role::Admin.into();
        let request = request.extension(admin).body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (parts.status.as_u16(), parts.headers, json)
    }

    /// Sends a request that leads to a call, and returns the call's name and request.
    async fn call(&self, sent: Sent<'_>) -> (String, Value) {
        let (status, _, body) = self.send(sent).await;
        assert_eq!((status, body), (200, json!({})));
        let (path, bytes) = self.made.lock().unwrap().take().unwrap();
        let (service, name) = path[1..].split_once('/').unwrap();
        let pool = tinwright::json::pool().unwrap();
        let service = pool.get_service_by_name(service).unwrap();
        let method = service.methods().find(|it| it.name() == name).unwrap();
        let json = Transcoder::new(pool).json(&method.input(), &bytes).unwrap();
        (name.to_owned(), serde_json::from_slice(&json).unwrap())
    }

    /// Sends a request that is refused, and returns the error's text.
    async fn refusal(&self, sent: Sent<'_>) -> String {
        let (_, _, body) = self.send(sent).await;
        assert_eq!(*self.made.lock().unwrap(), None, "{body}");
        body["detail"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends a request that is refused, and returns the HTTP status, the code and the field. No call is made.
    async fn refused(&self, sent: Sent<'_>) -> (u16, String, String) {
        let (status, headers, body) = self.send(sent).await;
        assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(*self.made.lock().unwrap(), None, "{body}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (status, text(&body["code"]), text(&body["fields"][0]["field"]))
    }
}

fn made(name: &str, json: Value) -> (String, Value) {
    (name.to_owned(), json)
}

#[tokio::test]
async fn path_query_body_and_headers_are_the_fields_of_the_call() {
    let site = site();
    let get = site.call(Sent("GET", &format!("hardware/{ID}?view=VIEW_FULL"), &[], "")).await;
    assert_eq!(get, made("GetHardware", json!({"id": ID, "view": "VIEW_FULL"})));
    let by_mac = site.call(Sent("GET", "hardware?mac=02%3A00:00:00:00:01", &[], "")).await;
    assert_eq!(by_mac, made("GetHardware", json!({"mac": "02:00:00:00:00:01"})));
    let list = "hardware?page_size=5&labels[rack]=r1&labels%5Brow%5D=2";
    let list = site.call(Sent("GET", list, &[], "")).await;
    let labels = json!({"rack": "r1", "row": "2"});
    assert_eq!(list, made("ListHardware", json!({"page_size": 5, "labels": labels})));
    let events = "events?filter.noun=hardware&filter.start_time=2026-01-02T03:04:05Z";
    let events = site.call(Sent("GET", events, &[], "")).await;
    let filter = json!({"start_time": "2026-01-02T03:04:05Z", "noun": "hardware"});
    assert_eq!(events, made("ListEvents", json!({"filter": filter})));
    let create = Sent(
        "POST",
        "hardware",
        &[JSON, ("idempotency-key", "k1")],
        r#"{"name": "n", "extra": {"a": [1]}}"#,
    );
    let hardware = json!({"name": "n", "extra": {"a": [1]}});
    let created = json!({"hardware": hardware, "request_id": "k1"});
    assert_eq!(site.call(create).await, made("CreateHardware", created));
    let state = Sent(
        "POST",
        &format!("hardware/{ID}:setState"),
        &[JSON],
        r#"{"state": "STATE_MAINTENANCE"}"#,
    );
    let set = json!({"id": ID, "state": "STATE_MAINTENANCE"});
    assert_eq!(site.call(state).await, made("SetHardwareState", set));
    let delete = Sent("DELETE", &format!("hardware/{ID}"), &[("if-match", "\"7\"")], "");
    let deleted = json!({"id": ID, "revision": "7"});
    assert_eq!(site.call(delete).await, made("DeleteHardware", deleted));
}

#[tokio::test]
async fn an_update_is_of_the_masks_fields_or_else_of_those_in_the_body_that_can_be_updated() {
    let site = site();
    let path = format!("locations/{ID}");
    let update = async |query: &str, body: &str| {
        let path = format!("{path}{query}");
        let (name, request) = site.call(Sent("PATCH", &path, &[JSON], body)).await;
        assert_eq!((name.as_str(), &request["location"]["id"]), ("UpdateLocation", &json!(ID)));
        request["update_mask"].clone()
    };
    assert_eq!(update("?update_mask=boot_url,name", "{}").await, "bootUrl,name");
    assert_eq!(update("?update_mask=bootUrl", "{}").await, "bootUrl");
    let read = format!(
        r#"{{"id": "{ID}", "bootUrl": "http://a/", "create_time": "2026-01-02T03:04:05Z", "revision": "3"}}"#
    );
    assert_eq!(update("", &read).await, "bootUrl");
    let nothing = site.refused(Sent("PATCH", &path, &[JSON], r#"{"revision": "3"}"#)).await;
    assert_eq!(nothing, (400, "INVALID_ARGUMENT".into(), "update_mask".into()));
    let other = site.refused(Sent("PATCH", &path, &[JSON], r#"{"id": "x", "name": "a"}"#)).await;
    assert_eq!(other, (400, "INVALID_ARGUMENT".into(), "id".into()));
}

#[tokio::test]
async fn wrong_input_is_refused_before_a_call_and_the_field_is_named() {
    let site = site();
    let of_id = format!("hardware/{ID}");
    let set_state = format!("hardware/{ID}:setState");
    for (sent, status, field) in [
        (Sent("GET", "hardware?colour=red", &[], ""), 400, "colour"),
        (Sent("GET", "hardware?page_size=many", &[], ""), 400, "page_size"),
        (Sent("GET", "hardware?page_size=1&page_size=2", &[], ""), 400, "page_size"),
        (Sent("GET", "hardware?labels=x", &[], ""), 400, "labels"),
        (Sent("GET", "hardware?page_token[x]=1", &[], ""), 400, "page_token[x]"),
        (Sent("GET", "instances?show_deleted=yes", &[], ""), 400, "show_deleted"),
        (Sent("GET", "hardware?mac=a&address=b", &[], ""), 400, "address"),
        (Sent("GET", "hardware?view=VIEW_LARGE", &[], ""), 400, "view"),
        (Sent("POST", "hardware", &[JSON], ""), 400, "hardware"),
        (Sent("POST", "hardware", &[JSON], "[]"), 400, "hardware"),
        (Sent("POST", "hardware", &[JSON], "{"), 400, "body"),
        (Sent("POST", "hardware", &[JSON], r#"{"colour": 1}"#), 400, "colour"),
        (
            Sent("POST", "hardware", &[JSON], r#"{"interfaces": [{"mac": "a"}, {"colour": 1}]}"#),
            400,
            "interfaces[1].colour",
        ),
        (
            Sent("POST", "hardware", &[JSON], r#"{"interfaces": [{"mac": 1}]}"#),
            400,
            "interfaces[0].mac",
        ),
        (Sent("POST", &set_state, &[JSON], r#"{"id": "x"}"#), 400, "id"),
        (Sent("POST", &set_state, &[JSON], r#"{"state": "STATE_BROKEN"}"#), 400, "state"),
        (Sent("DELETE", &of_id, &[JSON], r#"{"revision": 1}"#), 400, "revision"),
        (Sent("DELETE", &of_id, &[("if-match", "7")], ""), 400, "If-Match"),
        (
            Sent("DELETE", &format!("{of_id}?revision=8"), &[("if-match", "\"7\"")], ""),
            400,
            "revision",
        ),
        (Sent("DELETE", &of_id, &[("idempotency-key", "k")], ""), 400, "Idempotency-Key"),
        (Sent("POST", "hardware", &[("content-type", "text/plain")], "{}"), 415, ""),
        (Sent("POST", "hardware", &[], "{}"), 415, ""),
        (Sent("GET", "hardware", &[("accept", "text/html")], ""), 406, ""),
        (Sent("GET", "boots", &[("accept", "text/event-stream")], ""), 406, ""),
    ] {
        let what = format!("{} {} {}", sent.0, sent.1, sent.3);
        let expected = (status, "INVALID_ARGUMENT".to_owned(), field.to_owned());
        assert_eq!(site.refused(sent).await, expected, "{what}");
    }
}

#[tokio::test]
async fn an_error_of_a_value_names_the_form_that_it_needs() {
    let site = site();
    let states = "STATE_ENROLLED, STATE_PROVISIONABLE, STATE_FAILED, STATE_MAINTENANCE";
    let wrong = site.refusal(Sent("GET", "hardware?state=provisional", &[], "")).await;
    assert!(wrong.starts_with(&format!("state: is not one of {states}, ")), "{wrong}");
    for (query, text) in [
        (
            "hardware?page_size=ten",
            "page_size: is not a whole number from -2147483648 to 2147483647",
        ),
        (
            "events?filter.start_time=today",
            "filter.start_time: is not a time (RFC 3339), such as 2026-01-02T03:04:05Z",
        ),
    ] {
        assert_eq!(site.refusal(Sent("GET", query, &[], "")).await, text);
    }
    for (body, text) in [
        (r#"{"name": 5}"#, "name: is not a text"),
        (r#"{"labels": "a"}"#, "labels: is not an object"),
        (r#"{"labels": {"a": 1}}"#, "labels.a: is not a text"),
        (r#"{"interfaces": {}}"#, "interfaces: is not a list"),
        (r#"{"interfaces": [5]}"#, "interfaces[0]: is not an object"),
        (
            r#"{"interfaces": [{"dhcp": {"lease_time": 600}}]}"#,
            "interfaces[0].dhcp.lease_time: is not a duration in seconds, such as 600s or 1.5s",
        ),
    ] {
        assert_eq!(site.refusal(Sent("POST", "hardware", &[JSON], body)).await, text, "{body}");
    }
}

#[tokio::test]
async fn the_short_words_of_files_are_read() {
    let site = site();
    let full = site.call(Sent("GET", &format!("hardware/{ID}?view=full"), &[], "")).await;
    assert_eq!(full, made("GetHardware", json!({"id": ID, "view": "VIEW_FULL"})));
    let path = format!("hardware/{ID}:setState");
    let set = site.call(Sent("POST", &path, &[JSON], r#"{"state": "Maintenance"}"#)).await;
    assert_eq!(set, made("SetHardwareState", json!({"id": ID, "state": "STATE_MAINTENANCE"})));
}

#[tokio::test]
async fn a_field_that_no_update_changes_and_a_misspelt_verb_name_the_right_call() {
    let site = site();
    let (path, body) = (format!("hardware/{ID}"), r#"{"state": "STATE_FAILED"}"#);
    assert_eq!(
        site.refusal(Sent("PATCH", &path, &[JSON], body)).await,
        "state: cannot be changed by an update: use POST /api/v1/hardware/{id}:setState"
    );
    let (path, body) = (format!("hardware/{ID}:setstate"), r#"{"state": "STATE_FAILED"}"#);
    assert_eq!(
        site.refusal(Sent("POST", &path, &[JSON], body)).await,
        "hardware has no verb :setstate: did you mean :setState?"
    );
    let path = format!("hardware/{ID}:grow");
    let wrong = site.refusal(Sent("POST", &path, &[JSON], "{}")).await;
    assert!(wrong.starts_with("hardware has no verb :grow; verbs: :"), "{wrong}");
}

#[test]
fn a_service_that_this_server_does_not_have_is_named() {
    let text = |status, package| with_service(status, package).message().to_owned();
    let none = || Status::unimplemented("");
    assert!(text(none(), "tinwright.netboot.v1").contains("--netboot-interface"));
    assert!(text(none(), "tinwright.metadata.v1").contains("--metadata-listen"));
    assert!(text(none(), "tinwright.power.v1").contains("tinwright.power.v1"));
    assert_eq!(text(Status::unimplemented("x"), "tinwright.netboot.v1"), "x");
    assert_eq!(text(Status::not_found(""), "tinwright.netboot.v1"), "");
}

#[tokio::test]
async fn a_wrong_path_is_not_found_and_a_wrong_method_is_told_the_others() {
    let site = site();
    for path in ["", "machines", "hardware/", "hardware/a/b", "hardware:grow"] {
        assert_eq!(site.refused(Sent("GET", path, &[], "")).await.0, 404, "{path}");
    }
    let (status, headers, _) = site.send(Sent("PUT", &format!("hardware/{ID}"), &[], "")).await;
    assert_eq!(
        (status, headers[header::ALLOW].to_str().unwrap()),
        (405, "DELETE, GET, HEAD, PATCH")
    );
    let large = format!(r#"{{"name": "{}"}}"#, "a".repeat(MAX_BODY_BYTES));
    assert_eq!(site.refused(Sent("POST", "hardware", &[JSON], &large)).await.0, 413);
}

#[tokio::test]
async fn without_a_client_there_is_no_call() {
    let site = site();
    let request = Request::get("/api/v1/hardware").body(Body::empty()).unwrap();
    let response = site.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    assert_eq!(*site.made.lock().unwrap(), None);
}

#[tokio::test]
async fn a_body_that_is_broken_off_is_not_too_large() {
    let too_large = || too_large_or(&Refusal::TooLarge(MAX_BODY_BYTES));
    let incomplete = |text| Problem::from(Status::invalid_argument(text));
    let code = async |body| {
        let read = read(&mut Some(body), MAX_BODY_BYTES, too_large, incomplete).await;
        read.map_err(|problem| problem.http.as_u16())
    };
    let part = Ok(Bytes::from_static(b"{"));
    let broken = Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
    let broken = Body::from_stream(futures_util::stream::iter([part, broken]));
    assert_eq!(code(broken).await, Err(400));
    assert_eq!(code(Body::from(vec![b' '; MAX_BODY_BYTES + 1])).await, Err(413));
    assert_eq!(code(Body::from("{}")).await, Ok("{}".into()));
}
