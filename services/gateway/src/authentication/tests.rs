use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use prost::Message as _;
use runtime::serve;
use tinwright::identity::v1::{AuthenticateResponse, Revocation};
use tinwright::in_process;
use tinwright::watch::FeedEvent;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;

const KEY: &str = "a key of sixteen bytes";

/// An identity service that knows one API key.
struct Site {
    authenticator: Authenticator,
    revocations: Revocations,
    clock: Clock,
    calls: Arc<AtomicUsize>,
}

fn site() -> Site {
    let (channel, pipes) = in_process::pair();
    let (calls, clock) = (Arc::new(AtomicUsize::new(0)), Clock::manual(SystemTime::now()));
    let counted = calls.clone();
    let end = clock.wall() + Duration::from_secs(60);
    let app = Router::new().fallback(async move |request: Request| {
        counted.fetch_add(1, Ordering::Relaxed);
        authenticate(request, end).await
    });
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    tokio::spawn(serve::in_process(pipes, door, app, CancellationToken::new()));
    let revocations = Revocations::default();
    let authenticator = Authenticator::new(channel, revocations.clone(), clock.clone());
    Site { authenticator, revocations, clock, calls }
}

async fn authenticate(request: Request, end: SystemTime) -> Response {
    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
    let asked = AuthenticateRequest::decode(&body[5..]).unwrap();
    if asked.fields.get(API_KEY_FIELD).map(String::as_str) != Some(KEY) {
        return Status::unauthenticated("no such credential").into_http();
    }
    let credential = Credential { expire_time: Some(end.into()), ..Credential::default() };
    let caller = "tinwright:viewer?subject=credential:c1&tenant=acme".into();
    let answer = AuthenticateResponse { caller, credential: Some(credential) }.encode_to_vec();
    let body = crate::test_body::of_message(answer.into());
    let response = Response::builder().header(header::CONTENT_TYPE, "application/grpc");
    response.body(axum::body::Body::new(body)).unwrap()
}

fn headers(of: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in of {
        headers.append(name, value.parse().unwrap());
    }
    headers
}

async fn by(site: &Site, of: &[(HeaderName, &str)]) -> Result<Option<String>, Code> {
    let source = Some([192, 0, 2, 1].into());
    let found = site.authenticator.by_request(&headers(of), None, source).await;
    found.map(|it| it.map(|it| it.caller.to_string())).map_err(|status| status.code())
}

#[tokio::test]
async fn a_key_in_either_header_names_the_client_and_a_wrong_one_is_not_no_one() {
    let site = site();
    let client = Ok(Some("tinwright:viewer?subject=credential:c1&tenant=acme".to_owned()));
    let bearer = format!("Bearer {KEY}");
    assert_eq!(by(&site, &[(API_KEY, KEY)]).await, client);
    assert_eq!(by(&site, &[(header::AUTHORIZATION, &bearer)]).await, client);
    assert_eq!(by(&site, &[]).await, Ok(None));
    for wrong in [
        vec![(API_KEY, "another key of some bytes")],
        vec![(API_KEY, "")],
        vec![(header::AUTHORIZATION, KEY)],
        vec![(header::AUTHORIZATION, "Basic YTpi")],
        vec![(API_KEY, KEY), (header::AUTHORIZATION, bearer.as_str())],
        vec![(API_KEY, KEY), (API_KEY, KEY)],
    ] {
        assert_eq!(by(&site, &wrong).await, Err(Code::Unauthenticated), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_certificate_names_people_only_and_a_key_has_precedence() {
    let site = site();
    let by = async |caller: &str, of: &[(HeaderName, &str)]| {
        let caller: Caller = caller.parse().unwrap();
        let found = site.authenticator.by_request(&headers(of), Some(&caller), None).await;
        found.map(|it| it.unwrap().caller.to_string()).map_err(|status| status.code())
    };
    let anna = "tinwright:operator?subject=person:anna";
    assert_eq!(by(anna, &[]).await.as_deref(), Ok(anna));
    let by_key = by(anna, &[(API_KEY, KEY)]).await.unwrap();
    assert!(by_key.starts_with("tinwright:viewer?"), "{by_key}");
    for process in ["tinwright:service", "tinwright:edge", "tinwright:door", "tinwright:builder"] {
        assert_eq!(by(process, &[]).await, Err(Code::PermissionDenied), "{process}");
    }
}

#[tokio::test]
async fn an_answer_is_used_again_until_it_is_revoked_or_has_ended() {
    let site = site();
    let calls = || site.calls.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    }
    assert_eq!(calls(), 1);
    site.clock.advance(REMEMBERED);
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    assert_eq!(calls(), 2);
    let revocation = Revocation { id: "credential:c1".into(), ..Revocation::default() };
    site.revocations.apply(FeedEvent::Put(revocation));
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    assert_eq!(calls(), 3, "the service decides again");
    site.revocations.apply(FeedEvent::Deleted("credential:c1".into()));
    site.clock.advance(Duration::from_secs(58));
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    assert_eq!(calls(), 4);
    site.clock.advance(Duration::from_secs(3));
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    assert_eq!(calls(), 5, "it has ended meanwhile");
}

#[tokio::test]
async fn an_address_may_not_guess_without_end() {
    let site = site();
    let mut last = Ok(None);
    for n in 0..40 {
        last = by(&site, &[(API_KEY, &format!("guess {n} of sixteen bytes"))]).await;
    }
    assert_eq!(last, Err(Code::ResourceExhausted));
    assert!(site.calls.load(Ordering::Relaxed) <= 31);
    site.clock.advance(Duration::from_secs(1));
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
}
