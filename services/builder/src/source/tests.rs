//! Tests of sources that a local server has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use disk_images::checksums::Sum;
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, StatusCode};
use runtime::LocalServices;
use tinwright::image::v1::{UploadSource, UrlSource};
use tokio::net::TcpListener;

use super::*;
use crate::scratch::Folder;

const CONTENT: &[u8] = b"the content of the source, in two parts";
/// Bytes of an answer that is cut.
const PART: usize = 11;
const BUILD: &str = "0198a1b2-0000-7000-8000-000000000001";
const ETAG_OF_CONTENT: &str = "\"1\"";

/// A server with one file.
#[derive(Clone, Default)]
struct Server {
    /// Number of answers that are cut in their middle.
    cuts: usize,
    /// Number of answers with 503.
    busy: usize,
    has_etag: bool,
    /// True if the file becomes another one after the first answer.
    changes: bool,
    requests: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Server {
    fn answer(&self, request: &Request) -> Response {
        let mut requests = self.requests.lock().unwrap();
        requests.push(request.headers().clone());
        let number = requests.len();
        if number <= self.busy {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let content = match self.changes && number > 1 {
            true => CONTENT.to_ascii_uppercase(),
            false => CONTENT.to_vec(),
        };
        let header = |name| request.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        let is_current = header(IF_RANGE).is_none_or(|it| it == ETAG_OF_CONTENT && !self.changes);
        let range = header(RANGE).filter(|_| is_current);
        let from = range.as_ref().map_or(0, |range| {
            range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap()
        });
        let rest = content[from..].to_vec();
        let length = rest.len();
        let body = match number <= self.busy + self.cuts {
            true => cut(&rest[..PART]),
            false => Body::from(rest),
        };
        let mut response = Response::builder().header("content-length", length);
        if range.is_some() {
            let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
            response = response.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, range);
        }
        if self.has_etag {
            response = response.header(ETAG, ETAG_OF_CONTENT);
        }
        response.body(body).unwrap()
    }

    fn router(self) -> Router {
        Router::new().fallback(move |request: Request| std::future::ready(self.answer(&request)))
    }

    /// Returns the ranges that were requested.
    fn ranges(&self) -> Vec<Option<String>> {
        let text = |headers: &HeaderMap| Some(headers.get(RANGE)?.to_str().unwrap().to_owned());
        self.requests.lock().unwrap().iter().map(text).collect()
    }
}

/// Returns a body that breaks after `bytes`.
fn cut(bytes: &[u8]) -> Body {
    let begin = Bytes::copy_from_slice(bytes);
    let end = async {
        // The server sends the beginning meanwhile.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut"))
    };
    Body::from_stream(stream::once(async { Ok(begin) }).chain(stream::once(end)))
}

fn timing() -> Timing {
    let retry_delays = (Duration::from_millis(1), Duration::from_millis(2));
    Timing { retry_delays, ..Timing::default() }
}

/// Serves at a port, and returns its URL.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn url_source(url: String, checksum: &str) -> ImageSource {
    let source = Some(Source::Url(UrlSource { url }));
    ImageSource { source, checksum: checksum.into(), ..ImageSource::default() }
}

fn upload_source() -> ImageSource {
    let source = Some(Source::Upload(UploadSource { file_name: "a.raw".into() }));
    ImageSource { source, ..ImageSource::default() }
}

/// Fetches `source`. Returns the content and its SHA-256.
async fn fetch(
    server: Server,
    source: &ImageSource,
    downloads: Downloads,
    max_bytes: u64,
) -> Result<(Vec<u8>, String), Failure> {
    let channel = LocalServices::of(server.router()).channel(runtime::Role::Builder.into());
    let allow_networks = vec!["127.0.0.1/32".parse().unwrap()];
    let downloads = Downloads { allow_networks, ..downloads };
    let fetcher = Fetcher::new(channel, &downloads, timing()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let scratch = folder.create(BUILD.parse().unwrap(), 1).unwrap();
    let wanted = Wanted { image_id: "i", source, max_bytes };
    let fetched = fetcher.fetch(&wanted, &scratch, &Progress::new()).await?;
    Ok((std::fs::read(&fetched.path).unwrap(), fetched.sha256))
}

async fn fetch_url(server: &Server, checksum: &str) -> Result<(Vec<u8>, String), Failure> {
    let url = serve(server.clone().router()).await;
    let source = url_source(format!("{url}/a.raw"), checksum);
    fetch(Server::default(), &source, Downloads::default(), 1000).await
}

fn sha256(bytes: &[u8]) -> String {
    let mut sum = Sum::sha256();
    sum.update(bytes);
    sum.finish().to_string()
}

/// The content, and its SHA-256 in hexadecimal digits.
fn whole() -> (Vec<u8>, String) {
    (CONTENT.to_vec(), sha256(CONTENT).trim_start_matches("sha256:").to_owned())
}

#[tokio::test]
async fn a_cut_download_with_a_checksum_goes_on() {
    let server = Server { cuts: 2, ..Server::default() };
    assert_eq!(fetch_url(&server, &sha256(CONTENT)).await.unwrap(), whole());
    let [first, second] = ["bytes=11-", "bytes=22-"].map(|it| Some(it.to_owned()));
    assert_eq!(server.ranges(), [None, first, second]);
}

#[tokio::test]
async fn a_cut_download_without_a_checksum_goes_on_only_with_a_strong_etag() {
    let server = Server { cuts: 1, ..Server::default() };
    assert_eq!(fetch_url(&server, "").await.unwrap(), whole());
    assert_eq!(server.ranges(), [None, None]);
    let server = Server { cuts: 1, has_etag: true, ..Server::default() };
    assert_eq!(fetch_url(&server, "").await.unwrap(), whole());
    assert_eq!(server.ranges(), [None, Some("bytes=11-".to_owned())]);
    assert_eq!(server.requests.lock().unwrap()[1][IF_RANGE], ETAG_OF_CONTENT);
}

#[tokio::test]
async fn parts_of_two_files_are_not_joined() {
    let server = Server { cuts: 1, has_etag: true, changes: true, ..Server::default() };
    let (content, _) = fetch_url(&server, "").await.unwrap();
    assert_eq!(content, CONTENT.to_ascii_uppercase());
    // Without an ETag, the checksum tells.
    let server = Server { cuts: 1, changes: true, ..Server::default() };
    let failure = fetch_url(&server, &sha256(CONTENT)).await.unwrap_err();
    assert!(failure.reason.starts_with("source.checksum: sha256:"), "{failure}");
}

#[tokio::test]
async fn a_server_that_stays_busy_is_given_up_and_an_upload_is_not() {
    let server = Server { busy: 100, ..Server::default() };
    let failure = fetch_url(&server, "").await.unwrap_err();
    assert!(failure.may_retry);
    assert!(failure.reason.ends_with("the server answered 503 Service Unavailable"), "{failure}");
    assert_eq!(server.ranges().len(), 6);
    let server = Server { busy: 20, cuts: 2, ..Server::default() };
    let fetched = fetch(server.clone(), &upload_source(), Downloads::default(), 1000).await;
    assert_eq!(fetched.unwrap(), whole());
    assert_eq!(server.ranges().last().unwrap().as_deref(), Some("bytes=22-"));
}

#[tokio::test]
async fn an_upload_that_is_gone_is_a_failure() {
    let router = Router::new().fallback(|| async {
        let mut response = StatusCode::NOT_FOUND.into_response();
        let status = tonic::Status::not_found("image i not found");
        status.add_header(response.headers_mut()).unwrap();
        response
    });
    let channel = LocalServices::of(router).channel(runtime::Role::Builder.into());
    let origin = Origin::Upload(Upload { channel: &channel, image_id: "i" });
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let scratch = folder.create(BUILD.parse().unwrap(), 1).unwrap();
    let target = Target::create(&scratch.path().join("a"), &scratch, None, 9).await.unwrap();
    let failure = transfer(&origin, target, &Progress::new(), &timing()).await.unwrap_err();
    let reason = "source.upload: the image service answered 404 Not Found";
    assert_eq!(failure, Failure::temporary(reason));
}

#[tokio::test]
async fn a_source_that_is_too_large_is_refused_at_its_head() {
    let server = Server::default();
    let refused = |bytes: usize| {
        Err(Failure::permanent(format!(
            "source: size: at least {} bytes: the limit is {bytes} bytes",
            CONTENT.len()
        )))
    };
    let max = CONTENT.len() - 1;
    let fetched = fetch(server, &upload_source(), Downloads::default(), max as u64).await;
    assert_eq!(fetched, refused(max));
    let fetched = fetch(Server::default(), &upload_source(), Downloads::default(), 39).await;
    assert_eq!(fetched.unwrap(), whole());
}

#[tokio::test]
async fn a_wrong_checksum_names_both() {
    let other = sha256(b"other");
    let failure = fetch_url(&Server::default(), &other).await.unwrap_err();
    let expected = format!("source.checksum: {other}: the file has {}", sha256(CONTENT));
    assert_eq!(failure, Failure::permanent(expected));
    let failure = fetch_url(&Server::default(), "md5:00").await.unwrap_err();
    assert!(failure.reason.starts_with("source.checksum: not sha256:"), "{failure}");
    assert!(failure.reason.ends_with(": \"md5:00\""), "{failure}");
}

#[tokio::test]
async fn a_published_image_comes_from_the_mirror_with_the_checksum_of_its_list() {
    let list = format!("{}  debian-12-generic-amd64.qcow2\n", "0".repeat(128));
    let wrong = Router::new()
        .route("/m/bookworm/latest/SHA512SUMS", axum::routing::get(|| async { list }))
        .fallback(|| async { CONTENT });
    let fetch = async |router: Router, architecture: &str| {
        let mirror = format!("{}/m/", serve(router).await).parse().unwrap();
        let base = "https://cloud.debian.org/images/cloud".to_owned();
        let mirrors = BTreeMap::from([(base, mirror)]);
        let (name, architecture) = ("debian-12".to_owned(), architecture.to_owned());
        let source = Some(Source::Published(PublishedSource { name, architecture }));
        let source = ImageSource { source, ..ImageSource::default() };
        let downloads = Downloads { mirrors, ..Downloads::default() };
        fetch(Server::default(), &source, downloads, 1000).await
    };
    let failure = fetch(wrong.clone(), "x86_64").await.unwrap_err();
    assert!(failure.reason.starts_with("source.checksum: sha512:000000"), "{failure}");
    let failure = fetch(wrong, "aarch64").await.unwrap_err();
    assert!(failure.reason.starts_with("source.published.architecture: "), "{failure}");
}

#[tokio::test]
async fn a_silent_server_is_asked_again() {
    let requests = Arc::new(Mutex::new(0));
    let router = Router::new().fallback(async move || {
        *requests.lock().unwrap() += 1;
        match *requests.lock().unwrap() {
            1 => Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>()),
            _ => Body::from(CONTENT),
        }
    });
    let channel = LocalServices::of(router).channel(runtime::Role::Builder.into());
    let upload = Upload { channel: &channel, image_id: "i" };
    let stall = Duration::from_millis(1);
    let mut answer = upload.get(&HeaderMap::new(), Duration::from_secs(60)).await.unwrap();
    assert_eq!(answer.next(stall).await.unwrap_err(), "no data for 0.001 s");
    let mut answer = upload.get(&HeaderMap::new(), Duration::from_secs(60)).await.unwrap();
    assert_eq!(answer.next(Duration::from_secs(60)).await.unwrap().unwrap(), CONTENT);
}
