//! Requests and responses, without a connection.

mod contents;
mod endpoints;
mod guard;
mod phone_home;
mod session;

use std::sync::Mutex;

use axum::body::to_bytes;
use axum::http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::fixture::{Feed as _, USER_DATA, any_machine, node1, node2};
use crate::machine::TokenPolicy;

const NODE1: &str = "198.51.100.50";
const UNKNOWN: &str = "198.51.100.77";
const PROXY: &str = "192.0.2.1";
const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN: &str = "x-aws-ec2-metadata-token";

/// Stores phone-home calls, or fails to.
#[derive(Default)]
struct Reports {
    calls: Mutex<Vec<PhoneHomeCall>>,
    broken: bool,
}

#[async_trait::async_trait]
impl PhoneHome for Reports {
    async fn report(&self, call: PhoneHomeCall) -> Result<(), NotStored> {
        if self.broken {
            return Err(NotStored("the store is unavailable".into()));
        }
        self.calls.lock().unwrap().push(call);
        Ok(())
    }
}

struct Site {
    index: Arc<Index>,
    reports: Arc<Reports>,
    service: Arc<Service>,
}

/// A service with `machines`.
fn site_with(machines: Vec<Machine>, reports: Reports, config: Config) -> Site {
    let (index, reports) = (Arc::new(Index::default()), Arc::new(reports));
    index.replace(machines);
    let tokens = Tokens::new(&runtime::SiteKey::new([7; 32])).unwrap();
    let clock = Clock::system();
    let service = Arc::new(Service::new(index.clone(), tokens, reports.clone(), config, clock));
    Site { index, reports, service }
}

fn site() -> Site {
    site_with(vec![node1(), node2()], Reports::default(), Config::default())
}

fn site_of(tokens: TokenPolicy) -> Site {
    site_with(vec![Machine { tokens, ..node1() }], Reports::default(), Config::default())
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Asserts a refusal, which has no body.
    #[track_caller]
    fn refused(&self, status: u16) {
        assert_eq!((self.status, self.body.as_str()), (status, ""));
    }

    #[track_caller]
    fn assert_body(&self, body: &str) {
        assert_eq!((self.status, self.body.as_str()), (200, body));
    }
}

impl Site {
    async fn send(&self, peer: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send_body(peer, method, path, headers, "").await
    }

    async fn send_body(
        &self,
        peer: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.service.respond(peer, request).await;
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(NODE1, "GET", path, &[]).await
    }

    /// A token of 60 seconds for node1.
    async fn token(&self) -> String {
        let answer = self.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60")]).await;
        assert_eq!(answer.status, 200);
        answer.body
    }

    async fn get_with(&self, token: &str) -> Answer {
        self.send(NODE1, "GET", "/latest/meta-data/instance-id", &[(TOKEN, token)]).await
    }

    async fn call_home(&self, body: &str) -> Answer {
        self.send_body(NODE1, "POST", "/phone-home", &[], body).await
    }
}

#[tokio::test]
async fn a_machine_reads_its_own_metadata() {
    site().get("/latest/meta-data/instance-id").await.assert_body("i-0001");
    let answer = site().send("198.51.100.60", "GET", "/latest/meta-data/instance-id", &[]).await;
    answer.assert_body("0197f0a0-0000-7000-8000-000000000002");
}

#[tokio::test]
async fn an_unknown_address_and_a_wrong_path_get_the_same_response() {
    let site = site();
    let unknown = site.send(UNKNOWN, "GET", "/latest/meta-data/", &[]).await;
    let lost = site.get("/latest/nothing").await;
    unknown.refused(404);
    lost.refused(404);
    assert_eq!(unknown.headers, lost.headers);
}

#[tokio::test]
async fn before_the_first_snapshot_every_request_is_to_be_repeated() {
    let (tokens, reports) =
        (Tokens::new(&runtime::SiteKey::new([7; 32])).unwrap(), Arc::new(Reports::default()));
    let (config, clock) = (Config::default(), Clock::system());
    let service = Service::new(Arc::default(), tokens, reports.clone(), config, clock);
    let site = Site { index: Arc::default(), reports, service: Arc::new(service) };
    for (method, path) in
        [("GET", "/latest/"), ("PUT", "/latest/api/token"), ("POST", "/phone-home")]
    {
        let answer = site.send(NODE1, method, path, &[]).await;
        answer.refused(503);
        assert_eq!(answer.header("retry-after"), Some("1"), "{path}");
    }
}

#[tokio::test]
async fn each_route_has_its_methods() {
    let site = site();
    for (method, path, allowed) in [
        ("POST", "/latest/meta-data/", "GET, HEAD"),
        ("OPTIONS", "/latest/meta-data/", "GET, HEAD"),
        ("PUT", "/latest/user-data", "GET, HEAD"),
        ("GET", "/latest/api/token", "PUT"),
        ("GET", "/latest/meta-data/phone-home", "POST"),
    ] {
        let answer = site.send(NODE1, method, path, &[]).await;
        answer.refused(405);
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
}

#[tokio::test]
async fn responses_have_a_type_and_forbid_caching() {
    let text = site().get("/latest/meta-data/hostname").await;
    text.assert_body("node1.lab");
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("server", "tinwright"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(text.header(name), Some(value));
    }
    let bytes = site().get("/latest/user-data").await;
    bytes.assert_body(USER_DATA);
    assert_eq!(bytes.header("content-type"), Some("application/octet-stream"));
}

/// Follows every listing below `path`, as a client does. At the top, names without a final slash are directories too.
async fn crawl(site: &Site, path: String) -> usize {
    let (bare, slashed) = (path.trim_end_matches('/'), format!("{}/", path.trim_end_matches('/')));
    let body = site.get(&slashed).await;
    assert_eq!(body.status, 200, "{path}");
    if !bare.is_empty() {
        assert_eq!(site.get(bare).await.body, body.body, "{bare}");
    }
    let at_the_top = bare.split('/').count() <= 3 && !bare.ends_with("user-data");
    if !(path.ends_with('/') || at_the_top) || bare.ends_with("public-keys") {
        return 1;
    }
    let mut found = 1;
    for name in body.body.lines() {
        found += Box::pin(crawl(site, format!("{slashed}{name}"))).await;
    }
    found
}

#[tokio::test]
async fn every_listed_name_exists_under_every_version() {
    let versions = site().get("/").await.body;
    assert_eq!(versions.lines().count(), 29);
    for version in versions.lines() {
        // Each on a service of its own: a crawl of all versions exceeds the rate limit.
        let found = crawl(&site(), format!("/{version}")).await;
        assert!(found > 60, "{version}: {found}");
    }
}

#[tokio::test]
async fn a_document_that_the_client_has_is_not_sent_again() {
    let site = site();
    let path = "/latest/user-data";
    let tag = site.get(path).await.header("etag").unwrap().to_owned();
    for known in [tag.clone(), format!("\"x\", W/{tag}"), "*".to_owned()] {
        let answer = site.send(NODE1, "GET", path, &[("if-none-match", &known)]).await;
        answer.refused(304);
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
    }
    site.send(NODE1, "GET", path, &[("if-none-match", "\"x\"")]).await.assert_body(USER_DATA);
}

#[tokio::test]
async fn secrets_are_refused_to_forwarded_requests() {
    let forwarded = [("x-forwarded-for", "203.0.113.9")];
    let site = site();
    for path in ["/latest/user-data", "/latest/meta-data/public-keys/0/openssh-key"] {
        site.send(NODE1, "GET", path, &forwarded).await.refused(403);
    }
    site.send(NODE1, "GET", "/latest/meta-data/instance-id", &forwarded)
        .await
        .assert_body("i-0001");
    let config = Config { refuse_forwarded: false, ..Config::default() };
    let lax = site_with(vec![node1()], Reports::default(), config);
    lax.send(NODE1, "GET", "/latest/user-data", &forwarded).await.assert_body(USER_DATA);
}

#[tokio::test]
async fn a_trusted_proxys_header_names_the_client() {
    let trusted_proxies = TrustedProxies::new([format!("{PROXY}/32").parse().unwrap()]).unwrap();
    let config = Config { trusted_proxies, ..Config::default() };
    let site = site_with(vec![node1()], Reports::default(), config);
    let path = "/latest/user-data";
    site.send(PROXY, "GET", path, &[("x-forwarded-for", NODE1)]).await.assert_body(USER_DATA);
    site.send(PROXY, "GET", path, &[("x-forwarded-for", UNKNOWN)]).await.refused(404);
    site.send(PROXY, "GET", path, &[("x-forwarded-for", "?")]).await.refused(400);
    site.send(UNKNOWN, "GET", path, &[("x-forwarded-for", NODE1)]).await.refused(404);
}

#[tokio::test]
async fn only_an_allowed_host_is_accepted() {
    let allowed_hosts = vec!["169.254.169.254".to_owned(), "metadata.lab".to_owned()];
    let config = Config { allowed_hosts, ..Config::default() };
    let site = site_with(vec![node1()], Reports::default(), config);
    for host in ["169.254.169.254", "169.254.169.254:80", "Metadata.LAB:50061"] {
        let answer = site.send(NODE1, "GET", "/latest/meta-data/mac", &[("host", host)]).await;
        answer.assert_body("52:54:00:00:00:01");
    }
    site.send(NODE1, "GET", "/latest/", &[("host", "rebound.example")]).await.refused(403);
    site.send(NODE1, "GET", "/latest/", &[]).await.refused(403);
}

#[tokio::test]
async fn an_unknown_caller_is_rate_limited() {
    let site = site();
    for _ in 0..30 {
        site.send(UNKNOWN, "GET", "/latest/", &[]).await.refused(404);
    }
    site.send(UNKNOWN, "GET", "/latest/", &[]).await.refused(429);
}

proptest! {
    #[test]
    fn no_request_is_an_internal_error(
        machine in any_machine(),
        method in prop::sample::select(&["GET", "HEAD", "PUT", "POST", "DELETE"][..]),
        path in "/[ -~]{0,40}",
        header in "[ -~]{0,20}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        let source = machine.addresses().next().unwrap_or(UNKNOWN.parse().unwrap());
        let site = site_with(vec![machine], Reports::default(), Config::default());
        let mut request = Request::builder().method(method).uri(uri);
        for name in [TTL, TOKEN, "forwarded", "host", "if-none-match"] {
            request = request.header(name, &header);
        }
        let request = request.body(Body::from(header)).unwrap();
        let answer = site.service.respond(SocketAddr::new(source, 1), request);
        let status = runtime.block_on(answer).status();
        prop_assert!(status != StatusCode::INTERNAL_SERVER_ERROR);
    }
}
