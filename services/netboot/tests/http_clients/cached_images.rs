//! Files of images through the cache of a process away from the image service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use netboot::ImageContent;
use range_cache::Cache;
use runtime::{Caller, LocalServices, Role};

use super::site::{MACHINE, OTHER, Site};

/// The file that the machine's workflow names.
const NAME: &str = "ab12.raw.zst";
/// Size of the file: two whole ranges of the cache and a part of one.
const FILE_BYTES: usize = 40 << 20;

/// The image service.
#[derive(Debug)]
struct Origin {
    file: Vec<u8>,
    /// The status of its responses, if it is not 200.
    status: AtomicU16,
    /// Bytes that were sent.
    sent: AtomicU64,
    /// Requests of machines that found wrong bytes.
    refetches: AtomicU64,
}

impl Origin {
    fn new() -> Arc<Self> {
        let file = (0..FILE_BYTES).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
        Arc::new(Self {
            file,
            status: AtomicU16::new(200),
            sent: AtomicU64::new(0),
            refetches: AtomicU64::new(0),
        })
    }

    /// A site that has the file from this service, through a cache in `directory`.
    async fn site(self: &Arc<Self>, directory: &std::path::Path) -> Site {
        let router = Router::new().route("/images/{name}", get(send)).with_state(self.clone());
        let netboot = Caller::new(Role::Service, "service:netboot").unwrap();
        let channel = LocalServices::of(router).channel(netboot);
        let cache = Some(Cache::open(directory, 1 << 30).await.unwrap());
        Site::with_content(Some(ImageContent { channel, cache }), |_| {}).await
    }

    fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn refetches(&self) -> u64 {
        self.refetches.load(Ordering::Relaxed)
    }
}

/// The workflow for whose machine the boot server asks.
#[derive(serde::Deserialize)]
struct Reader {
    workflow: Option<String>,
}

async fn send(
    State(origin): State<Arc<Origin>>,
    Path(name): Path<String>,
    Query(Reader { workflow }): Query<Reader>,
    headers: HeaderMap,
) -> Response {
    let status = StatusCode::from_u16(origin.status.load(Ordering::Relaxed)).unwrap();
    if status != StatusCode::OK {
        return status.into_response();
    }
    if name != NAME || workflow.as_deref() == Some("other") {
        return StatusCode::NOT_FOUND.into_response();
    }
    if headers.contains_key(header::CACHE_CONTROL) {
        origin.refetches.fetch_add(1, Ordering::Relaxed);
    }
    let Some(range) = headers.get(header::RANGE) else {
        // Only the size is asked for.
        return ([(header::CONTENT_LENGTH, FILE_BYTES)], ()).into_response();
    };
    let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
    let (first, last) = range.split_once('-').unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let part = origin.file[first..=last].to_vec();
    origin.sent.fetch_add(part.len() as u64, Ordering::Relaxed);
    let place = [(header::CONTENT_RANGE, format!("bytes {range}/{FILE_BYTES}"))];
    (StatusCode::PARTIAL_CONTENT, place, part).into_response()
}

fn path() -> String {
    format!("/images/{NAME}")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_machines_at_once_get_the_file_and_the_origin_sends_each_byte_once() {
    let (origin, directory) = (Origin::new(), tempfile::tempdir().unwrap());
    let site = origin.site(directory.path()).await;
    let path = path();
    let (one, two) =
        tokio::join!(site.curl(MACHINE, &[], &path), site.curl(OTHER, &["-r", "1000-"], &path));
    assert_eq!((one.status, two.status), (200, 206));
    assert!(one.body == origin.file && two.body == origin.file[1000..]);
    assert_eq!(origin.sent(), FILE_BYTES as u64);
    let head = site.curl(OTHER, &["-I"], &path).await;
    assert_eq!(head.header("content-length"), FILE_BYTES.to_string());
    assert_eq!(origin.sent(), FILE_BYTES as u64);
    let other = site.curl(OTHER, &["-H", "Cache-Control: no-cache", "-r", "0-9"], &path).await;
    assert_eq!((other.status, origin.sent()), (206, FILE_BYTES as u64), "only for its machine");
    assert_eq!(origin.refetches(), 0);
    let fresh = site.curl(MACHINE, &["-H", "Cache-Control: no-cache", "-r", "0-9"], &path).await;
    assert_eq!((fresh.status, fresh.body.as_slice()), (206, &origin.file[..10]));
    assert_eq!(origin.sent(), (FILE_BYTES + (16 << 20)) as u64, "its range is fetched anew");
    assert_eq!(origin.refetches(), 1, "the origin learns why");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_file_is_served_only_to_whom_the_origin_would_or_to_the_machine_while_it_is_away()
{
    let (origin, directory) = (Origin::new(), tempfile::tempdir().unwrap());
    let site = origin.site(directory.path()).await;
    let part = async |source: &str| {
        let part = site.curl(source, &["-r", "0-9"], &path()).await;
        (part.status, part.body)
    };
    let ten = origin.file[..10].to_vec();
    assert_eq!(part(OTHER).await, (206, ten.clone()));
    origin.set_status(404);
    assert_eq!(part(OTHER).await.0, 404, "it is not public any more");
    origin.set_status(503);
    assert_eq!(part(OTHER).await.0, 503);
    assert_eq!(part(MACHINE).await, (206, ten), "its live workflow names the image");
    let missing = site.curl(MACHINE, &[], "/images/cd34.raw.zst").await;
    assert_eq!(missing.status, 503, "nothing of it is stored");
}
