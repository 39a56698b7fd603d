use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use prost::Message as _;
use runtime::LocalServices;
use tinwright::identity::v1::{AuthenticateResponse, Revocation};
use tinwright::watch::FeedEvent;
use tonic::Code;

use super::*;

const KEY: &str = "a key of sixteen bytes";

/// An identity service that knows one API key.
struct Site {
    authenticator: Authenticator,
    revocations: Revocations,
    clock: Clock,
    calls: Arc<AtomicUsize>,
    /// True if the key is right no more.
    is_deleted: Arc<AtomicBool>,
}

fn site() -> Site {
    let (calls, clock) = (Arc::new(AtomicUsize::new(0)), Clock::manual(SystemTime::now()));
    let (counted, is_deleted) = (calls.clone(), Arc::new(AtomicBool::new(false)));
    let has_no_key = is_deleted.clone();
    let end = clock.wall() + Duration::from_secs(60);
    let app = Router::new().fallback(async move |request: Request| {
        counted.fetch_add(1, Ordering::Relaxed);
        authenticate(request, end, has_no_key.load(Ordering::Relaxed)).await
    });
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    let channel = LocalServices::of(app).channel(door);
    let revocations = Revocations::default();
    let authenticator = Authenticator::new(channel, revocations.clone(), clock.clone());
    Site { authenticator, revocations, clock, calls, is_deleted }
}

async fn authenticate(request: Request, end: SystemTime, is_deleted: bool) -> Response {
    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
    let asked = AuthenticateRequest::decode(&body[5..]).unwrap();
    if is_deleted || asked.fields.get(API_KEY_FIELD).map(String::as_str) != Some(KEY) {
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

#[tokio::test]
async fn guesses_at_the_same_time_are_limited_like_others() {
    let site = site();
    let keys: Vec<_> = (0..100).map(|n| format!("guess {n} of sixteen bytes")).collect();
    let guesses = keys.iter().map(async |key| by(&site, &[(API_KEY, key)]).await);
    let answers = futures_util::future::join_all(guesses).await;
    let is_refused = |answer: &&Result<_, _>| **answer == Err(Code::ResourceExhausted);
    assert_eq!(site.calls.load(Ordering::Relaxed), 30);
    assert_eq!(answers.iter().filter(is_refused).count(), 70);
}

/// Sends so many different wrong keys that no other is checked.
async fn guess(site: &Site, round: u32) {
    for n in 0..40 {
        let _refused = by(site, &[(API_KEY, &format!("guess {n} of round {round}"))]).await;
    }
    let next = by(site, &[(API_KEY, "a guess that is not checked")]).await;
    assert_eq!(next, Err(Code::ResourceExhausted));
}

#[tokio::test]
async fn guesses_from_the_address_of_a_client_do_not_keep_it_out() {
    let site = site();
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    guess(&site, 1).await;
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok(), "its answer is used again");
    site.clock.advance(REMEMBERED);
    guess(&site, 2).await;
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok(), "it is checked again");
    site.clock.advance(RIGHT_LIFETIME);
    guess(&site, 3).await;
    assert_eq!(by(&site, &[(API_KEY, KEY)]).await, Err(Code::ResourceExhausted));
}

#[tokio::test]
async fn a_wrong_key_that_is_repeated_is_one_guess_and_has_a_limit_of_its_own() {
    let site = site();
    let mut last = Ok(None);
    for _ in 0..100 {
        last = by(&site, &[(API_KEY, "a key that was deleted")]).await;
    }
    assert_eq!(last, Err(Code::ResourceExhausted));
    assert_eq!(site.calls.load(Ordering::Relaxed), 31);
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok(), "the address may send another key");
    assert_eq!(by(&site, &[(API_KEY, "another wrong key")]).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn a_key_that_is_right_no_more_is_limited_like_others() {
    let site = site();
    assert!(by(&site, &[(API_KEY, KEY)]).await.is_ok());
    site.is_deleted.store(true, Ordering::Relaxed);
    site.clock.advance(REMEMBERED);
    assert_eq!(by(&site, &[(API_KEY, KEY)]).await, Err(Code::Unauthenticated));
    let mut last = Ok(None);
    for _ in 0..40 {
        last = by(&site, &[(API_KEY, KEY)]).await;
    }
    assert_eq!(last, Err(Code::ResourceExhausted));
}
