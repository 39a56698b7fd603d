//! Tests with local registries.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Redirect, Response};
use disk_images::checksums::Sum;
use http::header::AUTHORIZATION;
use runtime::LocalServices;
use tinwright::image::v1::ImageSource;
use tinwright::image::v1::image_source::Source;
use tokio::net::TcpListener;

use super::*;
use crate::progress::Progress;
use crate::scratch::Folder;
use crate::settings::{Downloads, Timing};
use crate::source::{Fetcher, Wanted};

const LAYER: &[u8] = b"the content of the layer";
const BUILD: &str = "0198a1b2-0000-7000-8000-000000000001";
/// The login of anna with the password s3cret.
const BASIC: &str = "Basic YW5uYTpzM2NyZXQ=";

/// A server with files, which it gives to some requests. Clones share it.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    /// Texts by their paths.
    files: BTreeMap<String, String>,
    /// Redirects by their paths.
    redirects: BTreeMap<String, String>,
    /// The header that requests need, and the challenge to those without it.
    guard: Option<(String, String)>,
    /// Paths and headers for logins of the requests.
    requests: Vec<(String, Option<String>)>,
    /// Digest that the server says of every file.
    named_digest: Option<String>,
}

impl Server {
    /// Starts a server, and returns it with its address.
    async fn start(address: &str) -> (Self, String) {
        let server = Self::default();
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = server.clone();
        let answer = move |request: Request| std::future::ready(answering.answer(&request));
        let router = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, address)
    }

    /// A registry at 127.0.0.1 with the artifact `lab/disk:12`.
    async fn registry() -> (Self, String) {
        let (server, address) = Self::start("127.0.0.1").await;
        server.push("12", LAYER);
        (server, address)
    }

    /// Gives `tag` to an artifact with this layer. Returns the digest of its manifest.
    fn push(&self, tag: &str, layer: &[u8]) -> String {
        let descriptor = |media_type: &str, content: &[u8]| {
            let (digest, size) = (digest(content), content.len());
            format!(r#"{{"mediaType": "{media_type}", "digest": "{digest}", "size": {size}}}"#)
        };
        let config = descriptor("application/vnd.oci.empty.v1+json", b"{}");
        let only = descriptor("application/octet-stream", layer);
        let manifest = format!(r#"{{"schemaVersion": 2, "config": {config}, "layers": [{only}]}}"#);
        let name = digest(manifest.as_bytes());
        let text = String::from_utf8(layer.to_vec()).unwrap();
        self.change(|it| {
            it.files.insert(format!("/v2/lab/disk/blobs/{}", digest(layer)), text);
            for reference in [tag, &name] {
                it.files.insert(format!("/v2/lab/disk/manifests/{reference}"), manifest.clone());
            }
        });
        name
    }

    fn change<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn answer(&self, request: &Request) -> Response {
        let login = request.headers().get(AUTHORIZATION);
        let login = login.map(|login| login.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        self.change(|it| {
            it.requests.push((path.clone(), login.clone()));
            if let Some((wanted, challenge)) = &it.guard
                && login.as_ref() != Some(wanted)
            {
                let header = [(WWW_AUTHENTICATE, challenge.clone())];
                return (StatusCode::UNAUTHORIZED, header).into_response();
            }
            if let Some(to) = it.redirects.get(&path) {
                return Redirect::temporary(to).into_response();
            }
            let Some(text) = it.files.get(&path).cloned() else {
                return StatusCode::NOT_FOUND.into_response();
            };
            let mut answer = text.into_response();
            if let Some(named) = &it.named_digest {
                answer.headers_mut().insert(CONTENT_DIGEST, named.parse().unwrap());
            }
            answer
        })
    }

    /// Returns the headers for logins, one for each request.
    fn logins(&self) -> Vec<Option<String>> {
        self.change(|it| it.requests.iter().map(|(_, login)| login.clone()).collect())
    }
}

fn digest(content: &[u8]) -> String {
    let mut sum = Sum::sha256();
    sum.update(content);
    sum.finish().to_string()
}

fn blob(layer: &[u8]) -> String {
    format!("/v2/lab/disk/blobs/{}", digest(layer))
}

/// The artifact of the registry at `address`, for anna or nobody.
fn source(address: &str, password: &str) -> OciSource {
    OciSource {
        reference: format!("{address}/lab/disk:12"),
        plain_http: true,
        username: if password.is_empty() { String::new() } else { "anna".into() },
        password: password.into(),
        ..OciSource::default()
    }
}

fn fetcher() -> Fetcher {
    let retry_delays = (std::time::Duration::from_millis(1), std::time::Duration::from_millis(2));
    let timing = Timing { retry_delays, ..Timing::default() };
    let allow_networks = vec!["127.0.0.1/32".parse().unwrap()];
    let downloads = Downloads { allow_networks, ..Downloads::default() };
    let channel = LocalServices::of(Router::new()).channel(runtime::Role::Builder.into());
    Fetcher::new(channel, &downloads, timing).unwrap()
}

fn wanted(oci: OciSource) -> ImageSource {
    ImageSource { source: Some(Source::Oci(oci)), ..ImageSource::default() }
}

async fn pin(oci: &OciSource) -> Result<String, Failure> {
    Ok(fetcher().pin(&wanted(oci.clone())).await?.unwrap())
}

/// Fetches an artifact that is pinned, and returns its content.
async fn fetch(oci: OciSource) -> Result<Vec<u8>, Failure> {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let scratch = folder.create(BUILD.parse().unwrap(), 1).unwrap();
    let source = wanted(oci);
    let wanted = Wanted { image_id: "i", source: &source, max_bytes: 1000 };
    let fetched = fetcher().fetch(&wanted, &scratch, &Progress::new()).await?;
    Ok(std::fs::read(fetched.path).unwrap())
}

async fn pin_and_fetch(mut oci: OciSource) -> Result<Vec<u8>, Failure> {
    oci.pinned_reference = pin(&oci).await?;
    fetch(oci).await
}

#[tokio::test]
async fn a_tag_is_pinned_and_a_later_one_changes_nothing() {
    let (server, address) = Server::registry().await;
    let first = server.push("12", LAYER);
    let mut oci = source(&address, "");
    oci.pinned_reference = pin(&oci).await.unwrap();
    assert_eq!(oci.pinned_reference, format!("{address}/lab/disk:12@{first}"));
    server.push("12", b"another content");
    assert_eq!(fetch(oci.clone()).await.unwrap(), LAYER);
    // What is pinned is not asked for again.
    server.change(|it| it.requests.clear());
    assert_eq!(fetcher().pin(&wanted(oci)).await.unwrap(), None);
    assert!(server.logins().is_empty());
}

#[tokio::test]
async fn a_password_is_sent_when_the_registry_asks_for_it() {
    let (server, address) = Server::registry().await;
    server.change(|it| it.guard = Some((BASIC.into(), "Basic realm=\"a\"".into())));
    assert_eq!(pin_and_fetch(source(&address, "s3cret")).await.unwrap(), LAYER);
    let [none, basic] = [None, Some(BASIC.to_owned())];
    // Each of the two steps asks once without it.
    assert_eq!(server.logins(), [&none, &basic, &none, &basic, &basic].map(Clone::clone));
}

#[tokio::test]
async fn a_token_is_fetched_again_when_it_has_ended() {
    let (server, address) = Server::registry().await;
    let (tokens, realm) = Server::start("127.0.0.1").await;
    let challenge = format!(
        "Bearer realm=\"http://{realm}/token\",service=\"a b\",scope=\"repository:lab/disk:pull\""
    );
    let give = |token: &str| {
        tokens.change(|it| it.files.insert("/token".into(), format!(r#"{{"token":"{token}"}}"#)));
        server.change(|it| it.guard = Some((format!("Bearer {token}"), challenge.clone())));
    };
    tokens.change(|it| it.guard = Some((BASIC.into(), "Basic realm=\"a\"".into())));
    give("first");
    let fetcher = fetcher();
    let mut oci = source(&address, "s3cret");
    oci.pinned_reference = pin(&oci).await.unwrap();
    let artifact = Artifact::new(&fetcher.web, &oci).unwrap();
    let layer = artifact.layer(1000).await.unwrap();
    give("second");
    let answer = artifact.repository.get(&layer.remote, &HeaderMap::new()).await.unwrap();
    assert_eq!(fetcher.web.read(&layer.remote, answer).await.unwrap().as_bytes(), LAYER);
    // The password goes to the server of tokens only.
    let is_basic = |login: &Option<String>| login.as_deref() == Some(BASIC);
    assert!(tokens.logins().len() == 3 && tokens.logins().iter().all(is_basic));
    assert!(!server.logins().iter().any(is_basic));
    assert!(server.logins().contains(&Some("Bearer second".into())));
}

#[tokio::test]
async fn no_login_goes_to_a_server_that_the_registry_redirects_to() {
    let (server, address) = Server::registry().await;
    let (other, elsewhere) = Server::start("127.0.0.1").await;
    server.change(|it| {
        it.guard = Some((BASIC.into(), "Basic realm=\"a\"".into()));
        it.redirects.insert(blob(LAYER), format!("http://{elsewhere}/layer?signature=1"));
    });
    let text = String::from_utf8(LAYER.to_vec()).unwrap();
    other.change(|it| it.files.insert("/layer".into(), text));
    assert_eq!(pin_and_fetch(source(&address, "s3cret")).await.unwrap(), LAYER);
    assert_eq!(other.logins(), [None]);
    // Nor does one that it asks for.
    let challenge = format!("Bearer realm=\"http://{elsewhere}/token\"");
    other.change(|it| it.guard = Some((BASIC.into(), challenge)));
    let failure = pin_and_fetch(source(&address, "s3cret")).await.unwrap_err();
    assert!(failure.reason.contains("401 Unauthorized"), "{failure}");
    assert!(other.logins().iter().all(Option::is_none));
}

#[tokio::test]
async fn private_addresses_are_refused_for_layers_and_tokens() {
    let (server, address) = Server::registry().await;
    let (private, elsewhere) = Server::start("127.0.0.2").await;
    let to = format!("http://{elsewhere}/layer");
    server.change(|it| it.redirects.insert(blob(LAYER), to.clone()));
    let failure = pin_and_fetch(source(&address, "")).await.unwrap_err();
    let reason = format!(
        "source.oci: http://{address}{}: redirected to {to}: not a public address",
        blob(LAYER)
    );
    assert_eq!(failure, Failure::permanent(reason));
    let challenge = format!("Bearer realm=\"http://{elsewhere}/token\"");
    server.change(|it| it.guard = Some((BASIC.into(), challenge)));
    let failure = pin(&source(&address, "s3cret")).await.unwrap_err();
    let text = "http without TLS: only in networks that the settings allow";
    assert_eq!(failure.reason, format!("source.oci: http://{elsewhere}/token: {text}"));
    let failure = pin(&source(&elsewhere, "s3cret")).await.unwrap_err();
    assert!(failure.reason.ends_with(text), "{failure}");
    assert!(private.logins().is_empty());
}

#[tokio::test]
async fn a_manifest_with_another_digest_is_refused() {
    let (server, address) = Server::registry().await;
    let other = digest(b"other");
    let mut oci = source(&address, "");
    server.change(|it| it.named_digest = Some(other.clone()));
    let failure = pin(&oci).await.unwrap_err();
    let text = format!("digest: {other}: the manifest has {}", server.push("12", LAYER));
    assert!(failure.reason.ends_with(&text) && !failure.may_retry, "{failure}");
    server.change(|it| it.named_digest = None);
    let pinned = server.push("12", LAYER);
    let changed = server.push("13", b"another content");
    server.change(|it| {
        let path = |digest: &str| format!("/v2/lab/disk/manifests/{digest}");
        let text = it.files[&path(&changed)].clone();
        it.files.insert(path(&pinned), text)
    });
    oci.pinned_reference = format!("{address}/lab/disk:12@{pinned}");
    let failure = fetch(oci).await.unwrap_err();
    let text = format!("digest: {pinned}: the manifest has {changed}");
    assert!(failure.reason.ends_with(&text), "{failure}");
}

#[tokio::test]
async fn a_layer_with_another_digest_is_refused() {
    let (server, address) = Server::registry().await;
    server.change(|it| it.files.insert(blob(LAYER), "another content".into()));
    let failure = pin_and_fetch(source(&address, "")).await.unwrap_err();
    let text = format!("{}: the file has {}", digest(LAYER), digest(b"another content"));
    assert!(failure.reason.ends_with(&text) && !failure.may_retry, "{failure}");
}

#[tokio::test]
async fn refusals_of_a_registry_say_what_is_wrong() {
    let (server, address) = Server::registry().await;
    let url = format!("http://{address}/v2/lab/disk/manifests");
    let missing = OciSource { reference: format!("{address}/lab/disk:13"), ..source(&address, "") };
    let failure = pin(&missing).await.unwrap_err();
    let reason =
        format!("source.oci: {url}/13: the server answered 404 Not Found: not in the registry");
    assert_eq!(failure, Failure::permanent(reason));
    server.change(|it| it.guard = Some((BASIC.into(), "Basic realm=\"a\"".into())));
    for (password, problem) in
        [("", "a user and a password needed"), ("wr0ng", "wrong user or password")]
    {
        let failure = pin(&source(&address, password)).await.unwrap_err();
        let reason =
            format!("source.oci: {url}/12: the server answered 401 Unauthorized: {problem}");
        assert_eq!(failure, Failure::permanent(reason));
    }
}
