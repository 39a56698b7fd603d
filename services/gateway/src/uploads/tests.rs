//! Uploads through the gateway to a service that keeps the requests that it gets.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use prometheus_client::registry::Registry;
use runtime::revocation::Revocations;
use runtime::{Caller, Channel, LocalServices, Role, forwarding};
use tonic::service::Interceptor as _;

use super::*;
use crate::{Backend, GatewaySettings};

const PATH: &str = "/uploads/0198c0de-0000-7000-8000-000000000001";

/// The requests that the service got, and the lengths of their bodies; none for broken ones.
type Got = Arc<Mutex<Vec<(Parts, Option<usize>)>>>;

/// Returns the gateway before the image service `app`.
fn gateway(app: Router) -> Router {
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    before(LocalServices::of(app).channel(door))
}

fn before(channel: Channel) -> Router {
    let backend = Backend::new([("image".to_owned(), channel)]);
    let (revocations, registry) = (Revocations::default(), &mut Registry::default());
    let gateway = Gateway::new(backend, revocations, GatewaySettings::default(), registry);
    gateway.router([door(&gateway)], Router::new())
}

/// Returns a gateway before a service that stores nothing, and what the service gets.
fn recording() -> (Router, Got) {
    let got = Got::default();
    let seen = got.clone();
    let app = Router::new().fallback(async move |request: Request| {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await;
        seen.lock().unwrap().push((parts, body.ok().map(|bytes| bytes.len())));
        (StatusCode::NO_CONTENT, [("upload-offset", "5"), ("set-cookie", "a=b")])
    });
    (gateway(app), got)
}

fn of_tenant(tenant: &str) -> Caller {
    let caller = Caller::new(Role::Operator, "person:anna").unwrap();
    caller.with_tenant(tenant.parse().unwrap()).unwrap()
}

fn request(method: Method, caller: &Caller, body: impl Into<Body>) -> Request {
    let request = Request::builder().method(method).uri(PATH).extension(caller.clone());
    request.body(body.into()).unwrap()
}

async fn send(router: &Router, request: Request) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_request_is_passed_on_as_that_of_its_client() {
    let (router, got) = recording();
    let anna = of_tenant("acme");
    let mut sent = request(Method::PATCH, &anna, "hello");
    sent.headers_mut().insert("tus-resumable", HeaderValue::from_static("1.0.0"));
    // tinwright:admin
    let forged = HeaderValue::from_static("dGlud3JpZ2h0OmFkbWlu");
    sent.headers_mut().insert(forwarding::KEY, forged);
    let answered = send(&router, sent).await;
    assert_eq!(answered.status(), StatusCode::NO_CONTENT);
    assert_eq!(answered.headers()["upload-offset"], "5");
    assert!(!answered.headers().contains_key("set-cookie"));
    let (parts, length) = got.lock().unwrap().pop().unwrap();
    assert_eq!((parts.method, parts.uri.path(), length), (Method::PATCH, PATH, Some(5)));
    let forward = forwarding::ForwardCaller::new(&anna).call(tonic::Request::new(()));
    let mut expected: HeaderMap = forward.unwrap().into_parts().0.into_headers();
    expected.insert("tus-resumable", HeaderValue::from_static("1.0.0"));
    assert_eq!(parts.headers, expected);
}

#[tokio::test]
async fn only_a_known_client_may_send_an_upload_to_an_image() {
    let (router, got) = recording();
    let anna = of_tenant("acme");
    let mut stranger = request(Method::PUT, &anna, "hello");
    stranger.extensions_mut().remove::<Caller>();
    let refused = send(&router, stranger).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()[header::CONNECTION], "close", "its body was not read");
    for path in ["/uploads", "/uploads/", "/uploads/x", "/uploads/..%2fblobs%2fx"] {
        let mut other = request(Method::PUT, &anna, "");
        *other.uri_mut() = path.parse().unwrap();
        assert_eq!(send(&router, other).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let read = send(&router, request(Method::GET, &anna, "")).await;
    assert_eq!(read.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(got.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_error_of_the_service_is_a_problem_and_without_a_service_there_is_no_image() {
    let anna = of_tenant("acme");
    let refused = Router::new().fallback(async || {
        let mut response = (StatusCode::LOCKED, "busy\n").into_response();
        Status::aborted("busy").add_header(response.headers_mut()).unwrap();
        response
    });
    let absent = Router::new().fallback(async || Status::unimplemented("").into_http::<Body>());
    let stopped = before(Channel::unconnected());
    for (router, expected) in [(gateway(refused), 423), (gateway(absent), 404), (stopped, 503)] {
        let answered = send(&router, request(Method::PUT, &anna, "hello")).await;
        assert_eq!(answered.status(), expected);
        assert_eq!(answered.headers()[header::CONTENT_TYPE], crate::errors::PROBLEM_JSON);
        assert_eq!(answered.headers()[header::CONNECTION], "close", "{expected}: left a body");
    }
}

/// Begins uploads of `caller` until one is refused. Returns the others, which do not end.
async fn fill(router: &Router, caller: &Caller) -> (Vec<impl Future + use<>>, Response) {
    let mut open = Vec::new();
    loop {
        let body = Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>());
        let mut upload = Box::pin(router.clone().oneshot(request(Method::PATCH, caller, body)));
        match futures_util::poll!(&mut upload) {
            std::task::Poll::Ready(refused) => return (open, refused.unwrap()),
            std::task::Poll::Pending => open.push(upload),
        }
        assert!(open.len() <= 64, "no limit");
    }
}

#[tokio::test]
async fn a_tenant_has_a_part_of_the_places_until_its_uploads_end() {
    let (router, _got) = recording();
    let (open, refused) = fill(&router, &of_tenant("acme")).await;
    assert_eq!((open.len(), refused.status()), (8, StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(refused.headers()[header::RETRY_AFTER], "10");
    let head = send(&router, request(Method::HEAD, &of_tenant("acme"), "")).await;
    assert_eq!(head.status(), StatusCode::NO_CONTENT, "others are no uploads");
    let mut all = vec![open];
    for n in 1..8 {
        all.push(fill(&router, &of_tenant(&format!("t{n}"))).await.0);
    }
    let (of_other, refused) = fill(&router, &of_tenant("other")).await;
    assert_eq!((of_other.len(), refused.status()), (0, StatusCode::TOO_MANY_REQUESTS));
    drop(all);
    assert_eq!(fill(&router, &of_tenant("other")).await.0.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_upload_takes_longer_than_the_deadline_and_breaks_off_when_nothing_arrives() {
    let (router, got) = recording();
    let anna = of_tenant("acme");
    let slow = stream::unfold(0, |part| async move {
        tokio::time::sleep(Duration::from_secs(59)).await;
        (part < 100).then_some((Ok::<_, axum::Error>(Bytes::from_static(b"12345")), part + 1))
    });
    let stored = send(&router, request(Method::PUT, &anna, Body::from_stream(slow))).await;
    assert_eq!(stored.status(), StatusCode::NO_CONTENT);
    assert_eq!(got.lock().unwrap().pop().unwrap().1, Some(500));
    let broken = stream::iter([Ok(Bytes::from_static(b"12345")), Err(axum::Error::new("gone"))]);
    send(&router, request(Method::PUT, &anna, Body::from_stream(broken))).await;
    assert_eq!(got.lock().unwrap().pop().unwrap().1, None, "it never looks complete");
    let idle = Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>());
    send(&router, request(Method::PUT, &anna, idle)).await;
    assert_eq!(got.lock().unwrap().pop().unwrap().1, None);
}
