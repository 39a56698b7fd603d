use std::time::SystemTime;

use axum::body::Body;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderValue, Method};
use prometheus_client::registry::Registry;
use runtime::{Clock, Role};
use tower::ServiceExt as _;

use super::access_log::is_plain_read;
use super::*;
use crate::errors::Problem;
use crate::test_log::Log;
use crate::{Client, Door};

fn refuse(refusal: &Refusal) -> Response {
    Problem::with_http(refusal.http_status(), refusal.status()).into_response()
}

/// The bytes of a body that is sent in several parts.
const LARGE_BYTES: usize = 1 << 20;

/// A stream of events that has not ended.
async fn events() -> impl axum::response::IntoResponse {
    let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, axum::Error>>());
    ([(header::CONTENT_TYPE, "text/event-stream")], body)
}

/// Finds the client of the request, and never responds.
async fn never_after_key(request: Request) -> Response {
    let client = Client { caller: Role::Viewer.into(), credential: None };
    client.identify(request.extensions());
    std::future::pending().await
}

/// An upload that has no end.
async fn upload(request: Request) {
    RequestPlace::give_back(request.extensions());
    std::future::pending().await
}

fn router(deadline: Duration) -> Router {
    router_at(deadline, Clock::system())
}

fn router_at(deadline: Duration, clock: Clock) -> Router {
    let settings = GatewaySettings { clock, ..GatewaySettings::default() };
    let shared = Arc::new(LayerState::new(settings, Metrics::new(&mut Registry::default())));
    let never = std::future::pending::<()>;
    let routes = Router::new()
        .route("/body", post(async |body: Bytes| body.len().to_string()))
        .route("/large", get(async || vec![0; LARGE_BYTES]))
        .route("/events", get(events))
        .route("/never", get(never))
        .route("/upload", get(upload))
        .route("/never-after-key", get(never_after_key));
    let door =
        Door { name: "test", prefix: "/t", router: routes, max_body_bytes: 10, deadline, refuse };
    let layers = DoorLayers {
        shared: shared.clone(),
        name: door.name,
        max_body_bytes: door.max_body_bytes,
        deadline: door.deadline,
        refuse: door.refuse,
    };
    let router = Router::new().nest(door.prefix, layers.around(door.router));
    outermost(shared, router.fallback(errors::no_such_path))
}

async fn answer(router: &Router, request: http::request::Builder, body: &'static str) -> Response {
    router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap()
}

#[tokio::test]
async fn every_response_has_the_id_of_its_request() {
    let router = router(Duration::from_secs(1));
    let own = Request::get("/nowhere").header(REQUEST_ID, "abc-1");
    let answered = answer(&router, own, "").await;
    assert_eq!(
        (answered.status().as_u16(), &answered.headers()[REQUEST_ID]),
        (404, &"abc-1".parse().unwrap())
    );
    for wrong in ["a b", "", "ä"] {
        let value = HeaderValue::from_bytes(wrong.as_bytes()).unwrap();
        let answered = answer(&router, Request::get("/t/x").header(REQUEST_ID, &value), "").await;
        assert_eq!(answered.headers()[REQUEST_ID].len(), 36, "{wrong}");
    }
}

#[tokio::test]
async fn a_body_above_the_limit_of_its_door_is_refused_with_and_without_its_length() {
    let router = router(Duration::from_secs(1));
    let code = async |request, body| answer(&router, request, body).await.status().as_u16();
    assert_eq!(code(Request::post("/t/body"), "0123456789").await, 200);
    assert_eq!(code(Request::post("/t/body"), "0123456789a").await, 413);
    let named = Request::post("/t/body").header(header::CONTENT_LENGTH, "11");
    assert_eq!(code(named, "x").await, 413);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_does_not_come_is_refused_by_the_door() {
    let router = router(Duration::from_secs(10));
    let answered = answer(&router, Request::get("/t/never"), "").await;
    assert_eq!(answered.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(answered.headers()[header::CONTENT_TYPE], errors::PROBLEM_JSON);
}

#[tokio::test]
async fn an_address_has_a_rate_and_an_ipv6_network_counts_as_one() {
    // Time does not pass: on a busy host the requests could else be slower than the rate.
    let router = router_at(Duration::from_secs(1), Clock::manual(SystemTime::UNIX_EPOCH));
    let from = |remote: &str| {
        let remote = remote.parse().unwrap();
        let local = "127.0.0.1:1".parse().unwrap();
        Request::post("/t/body").extension(ConnectionAddresses { remote, local })
    };
    let mut refused = None;
    for n in 0..4000 {
        let remote = format!("[2001:db8::{n:x}]:1");
        let answered = answer(&router, from(&remote), "").await;
        if answered.status() != StatusCode::OK {
            refused = Some(answered);
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    assert_eq!(answer(&router, from("192.0.2.1:1"), "").await.status(), StatusCode::OK);
}

/// Returns a request from this address.
fn get_from(path: &str, remote: &str) -> http::request::Builder {
    let (remote, local) = (remote.parse().unwrap(), "127.0.0.1:1".parse().unwrap());
    Request::get(path).extension(ConnectionAddresses { remote, local })
}

/// Makes requests whose responses are not read, until one is refused. Returns the others, and the refused one.
async fn fill(router: &Router, path: &str, remotes: &[&str]) -> (Vec<Response>, Response) {
    let mut open = Vec::new();
    for remote in remotes.iter().cycle() {
        let answered = answer(router, get_from(path, remote), "").await;
        if answered.status() != StatusCode::OK {
            return (open, answered);
        }
        open.push(answered);
        assert!(open.len() <= MAX_REQUESTS + MAX_STREAMS, "{path} has no limit");
    }
    unreachable!("there are addresses")
}

async fn status(router: &Router, path: &str, remote: &str) -> u16 {
    answer(router, get_from(path, remote), "").await.status().as_u16()
}

#[tokio::test]
async fn a_source_has_a_part_of_the_places_until_its_responses_are_read_or_dropped() {
    let router = router(Duration::from_secs(1));
    // Two addresses of one network, which is one source.
    let own = ["[2001:db8::1]:1", "[2001:db8::2]:2"];
    let (mut open, refused) = fill(&router, "/t/large", &own).await;
    assert_eq!(open.len(), MAX_REQUESTS_PER_SOURCE);
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[header::CONTENT_TYPE], errors::PROBLEM_JSON);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    assert_eq!(status(&router, "/t/large", "[2001:db8:0:1::1]:1").await, 200);
    drop(open.pop());
    let (mut again, _) = fill(&router, "/t/large", &own).await;
    assert_eq!(again.len(), 1, "a dropped response frees its place");
    // A response of which something is left has its place, one that was read has none.
    let mut body = again.pop().unwrap().into_body();
    let mut read = 0;
    while read < LARGE_BYTES {
        assert_eq!(status(&router, "/t/large", own[0]).await, 429, "{read} bytes were read");
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        read += frame.into_data().unwrap().len();
    }
    assert!(http_body_util::BodyExt::frame(&mut body).await.is_none());
    assert_eq!(status(&router, "/t/large", own[0]).await, 200);
}

#[tokio::test]
async fn a_source_whose_bodies_do_not_come_keeps_no_other_out() {
    let router = router(Duration::from_secs(60));
    let body = || Body::from_stream(futures_util::stream::pending::<Result<Bytes, axum::Error>>());
    let slow = || {
        let mut request = get_from("/t/body", "192.0.2.1:1").body(body()).unwrap();
        *request.method_mut() = http::Method::POST;
        router.clone().oneshot(request)
    };
    let mut open: Vec<_> = (0..MAX_REQUESTS_PER_SOURCE).map(|_| Box::pin(slow())).collect();
    for request in &mut open {
        assert!(futures_util::poll!(request).is_pending());
    }
    assert_eq!(status(&router, "/t/large", "192.0.2.1:1").await, 429);
    assert_eq!(status(&router, "/t/large", "192.0.2.2:1").await, 200);
    drop(open);
    assert_eq!(status(&router, "/t/large", "192.0.2.1:1").await, 200);
}

#[tokio::test]
async fn the_places_of_all_sources_are_limited_and_those_that_are_not_read_are_not_kept() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH);
    let router = router_at(Duration::from_secs(1), clock.clone());
    let remotes: Vec<_> = (1..=16).map(|n| format!("192.0.2.{n}:1")).collect();
    let remotes: Vec<_> = remotes.iter().map(String::as_str).collect();
    let (open, refused) = fill(&router, "/t/large", &remotes).await;
    assert_eq!((open.len(), refused.status()), (MAX_REQUESTS, StatusCode::SERVICE_UNAVAILABLE));
    let other = "192.0.2.99:1";
    assert_eq!(status(&router, "/t/large", other).await, 503);
    clock.advance(SURE_TIME);
    assert_eq!(status(&router, "/t/large", other).await, 200);
    // A source gets no more places than before: those of its responses that lost theirs among all count among its own.
    let (more, refused) = fill(&router, "/t/large", &remotes[..1]).await;
    assert_eq!(more.len(), MAX_REQUESTS_PER_SOURCE - MAX_REQUESTS / remotes.len());
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(more);
    drop(open);
    assert_eq!(fill(&router, "/t/large", &remotes).await.0.len(), MAX_REQUESTS);
}

#[tokio::test]
async fn a_refusal_whose_body_was_not_read_announces_the_end_of_the_connection() {
    let router = router(Duration::from_secs(1));
    let post = || Request::post("/t/body").header(header::CONTENT_LENGTH, "11");
    let refused = answer(&router, post(), "eleven byte").await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(refused.headers()[header::CONNECTION], "close");
    let refused = answer(&router, post().version(http::Version::HTTP_2), "eleven byte").await;
    assert_eq!(refused.headers().get(header::CONNECTION), None);
}

#[tokio::test]
async fn a_body_of_http_2_that_is_too_large_is_read_before_the_refusal() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let end = async {
        let _is_awaited = sender.send(());
        Ok::<_, axum::Error>(Bytes::new())
    };
    let body = Body::from_stream(futures_util::stream::once(end));
    let request = Request::post("/t/body").version(http::Version::HTTP_2);
    let request = request.header(header::CONTENT_LENGTH, "11").body(body).unwrap();
    let refused = router(Duration::from_secs(1)).oneshot(request).await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(receiver.await, Ok(()));
}

#[test]
fn reads_that_succeed_are_plain() {
    assert!(is_plain_read(&Method::GET, StatusCode::OK));
    assert!(is_plain_read(&Method::HEAD, StatusCode::NOT_MODIFIED));
    assert!(!is_plain_read(&Method::GET, StatusCode::NOT_FOUND));
    assert!(!is_plain_read(&Method::POST, StatusCode::OK));
}

#[tokio::test]
async fn streams_of_events_have_places_of_their_own() {
    let router = router(Duration::from_secs(1));
    let own = ["192.0.2.1:1"];
    let (open, refused) = fill(&router, "/t/events", &own).await;
    assert_eq!((open.len(), refused.status().as_u16()), (MAX_STREAMS_PER_SOURCE, 429));
    let (requests, _) = fill(&router, "/t/large", &own).await;
    assert_eq!(requests.len(), MAX_REQUESTS_PER_SOURCE, "streams hold no place of requests");
    assert_eq!(status(&router, "/t/events", "192.0.2.2:1").await, 200);
    drop((open, requests));
    assert_eq!(status(&router, "/t/events", "192.0.2.1:1").await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_place_was_given_back_has_no_deadline_and_leaves_the_place_to_others() {
    let router = router(Duration::from_secs(1));
    let upload = || Box::pin(answer(&router, get_from("/t/upload", "192.0.2.1:1"), ""));
    let mut open: Vec<_> = (0..2 * MAX_REQUESTS_PER_SOURCE).map(|_| upload()).collect();
    for request in &mut open {
        assert!(futures_util::poll!(request).is_pending());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for request in &mut open {
        assert!(futures_util::poll!(request).is_pending());
    }
    assert_eq!(status(&router, "/t/large", "192.0.2.1:1").await, 200);
}

#[tokio::test]
async fn a_response_is_the_same_with_a_place() {
    let router = router(Duration::from_secs(1));
    let answered = answer(&router, get_from("/t/large", "192.0.2.1:1"), "").await;
    let hint = http_body::Body::size_hint(answered.body());
    assert_eq!(hint.exact(), Some(LARGE_BYTES as u64));
    let body = axum::body::to_bytes(answered.into_body(), usize::MAX).await.unwrap();
    assert_eq!(body.len(), LARGE_BYTES);
    let posted = answer(&router, Request::post("/t/body"), "0123").await;
    let body = axum::body::to_bytes(posted.into_body(), usize::MAX).await.unwrap();
    assert_eq!(&body[..], b"4");
}

#[tokio::test]
async fn failures_of_strangers_are_one_line_a_second_with_the_beginning_of_the_path() {
    let (log, _guard) = Log::begin();
    let clock = Clock::manual(SystemTime::now());
    let router = router_at(Duration::from_secs(1), clock.clone());
    let path = format!("/{}", "a".repeat(60_000));
    for _ in 0..10 {
        assert_eq!(answer(&router, Request::get(&path), "").await.status(), StatusCode::NOT_FOUND);
    }
    clock.advance(Duration::from_secs(1));
    answer(&router, Request::get("/b"), "").await;
    let lines = log.answers();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].len() < 600 && lines[0].contains("strangers=1"), "{}", lines[0]);
    assert!(lines[1].contains("strangers=10"), "{}", lines[1]);
}

#[tokio::test]
async fn a_success_of_a_stranger_is_not_among_the_failures() {
    let (log, _guard) = Log::begin();
    let router = router(Duration::from_secs(1));
    assert_eq!(answer(&router, Request::post("/t/body"), "0123").await.status(), StatusCode::OK);
    assert_eq!(log.answers(), [""; 0]);
    answer(&router, Request::post("/t/nothing"), "").await;
    let lines = log.answers();
    assert!(lines.len() == 1 && lines[0].contains("strangers=1"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_key_was_accepted_is_no_stranger_when_the_layers_answer() {
    let (log, _guard) = Log::begin();
    let router = router(Duration::from_secs(10));
    let answered = answer(&router, Request::get("/t/never-after-key"), "").await;
    assert_eq!(answered.status(), StatusCode::GATEWAY_TIMEOUT);
    let lines = log.answers();
    assert!(lines.len() == 1 && lines[0].contains("caller=\"person:viewer\""), "{lines:?}");
    assert!(!lines[0].contains("strangers="), "{lines:?}");
}
