use axum::body::Body;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use bytes::Bytes;
use prometheus_client::registry::Registry;
use tower::ServiceExt as _;

use super::*;
use crate::Door;
use crate::errors::Problem;

fn refuse(refusal: &Refusal) -> Response {
    Problem::with_http(refusal.http_status(), refusal.status()).into_response()
}

fn router(deadline: Duration) -> Router {
    let shared = Arc::new(Shared::new(Settings::default(), Metrics::new(&mut Registry::default())));
    let never = std::future::pending::<()>;
    let routes = Router::new()
        .route("/body", post(async |body: Bytes| body.len().to_string()))
        .route("/never", get(never));
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
    let router = router(Duration::from_secs(1));
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
