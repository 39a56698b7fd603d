//! Files of images, which the image service sends.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use netboot::ImageContent;
use range_cache::Cache;
use runtime::{Caller, Channel, LocalServices, Role};

use super::site::{OTHER, Site};

const CONTENT: &str = "0123456789";
const NAME: &str = "ab12.raw.zst";

/// A service with one image. It knows one range only.
async fn image(Path(name): Path<String>, headers: HeaderMap) -> Response {
    assert!(!name.contains('/') && !name.contains('%'), "{name}");
    if name == "broken.map" {
        return (StatusCode::INTERNAL_SERVER_ERROR, "a secret of the server").into_response();
    }
    if name != NAME {
        return StatusCode::NOT_FOUND.into_response();
    }
    let tag = [(header::ETAG, "\"ab12\""), (header::SERVER, "inner")];
    match headers.get(header::RANGE) {
        None => (tag, CONTENT).into_response(),
        Some(range) => {
            assert_eq!(range, "bytes=2-4");
            let part = [(header::CONTENT_RANGE, "bytes 2-4/10")];
            (StatusCode::PARTIAL_CONTENT, tag, part, &CONTENT[2..5]).into_response()
        }
    }
}

fn service() -> Channel {
    let router = Router::new().route("/images/{name}", get(image));
    let netboot = Caller::new(Role::Service, "service:netboot").unwrap();
    LocalServices::of(router).channel(netboot)
}

fn content(cache: Option<Cache>) -> ImageContent {
    ImageContent { channel: service(), cache }
}

#[tokio::test]
async fn a_file_of_an_image_and_a_range_of_it_are_passed_on() {
    let site = Site::with_content(Some(content(None)), |_| {}).await;
    let path = format!("/images/{NAME}");
    let whole = site.curl(OTHER, &[], &path).await;
    assert_eq!((whole.status, whole.text().as_str()), (200, CONTENT));
    assert_eq!((whole.header("etag").as_str(), whole.header("server").as_str()), ("\"ab12\"", ""));
    let part = site.curl(OTHER, &["--range", "2-4"], &path).await;
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), "bytes 2-4/10");
    let head = site.curl(OTHER, &["-I"], &path).await;
    assert_eq!((head.status, head.header("content-length").as_str()), (200, "10"));
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_found_and_a_failure_is_told_without_its_text() {
    let site = Site::with_content(Some(content(None)), |_| {}).await;
    for name in ["other.map", "x%2F..%2Fsecret", "AB12.raw.zst"] {
        assert_eq!(site.curl(OTHER, &[], &format!("/images/{name}")).await.status, 404, "{name}");
    }
    let broken = site.curl(OTHER, &[], "/images/broken.map").await;
    assert_eq!((broken.status, broken.text().as_str()), (503, ""));
    assert_eq!(broken.header("retry-after"), "5");
    let without = Site::start().await;
    assert_eq!(without.curl(OTHER, &[], &format!("/images/{NAME}")).await.status, 404);
}
