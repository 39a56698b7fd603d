//! Content over HTTP: `/blobs/<digest>`.

use std::time::Duration;

use http::{Method, StatusCode};
use runtime::Role;

use super::site::{Answer, Site, digest};

async fn get(site: &Site, digest: &str, range: &str) -> Answer {
    let builder = Some(Role::Builder.into());
    let headers: &[_] = if range.is_empty() { &[] } else { &[("range", range)] };
    site.send(builder, Method::GET, &format!("/blobs/{digest}"), headers, "").await
}

#[tokio::test]
async fn content_is_stored_under_its_digest_only() {
    let site = Site::new();
    let (blob, right) = ("0123456789", digest("0123456789"));
    let wrong = site.put_blob(&digest("other"), blob).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert_eq!(get(&site, &digest("other"), "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(site.objects(), Vec::<String>::new());
    assert_eq!(site.put_blob("x", blob).await.status, StatusCode::NOT_FOUND);
    for _ in 0..2 {
        assert_eq!(site.put_blob(&right, blob).await.status, StatusCode::NO_CONTENT);
        assert_eq!(site.objects().len(), 1);
    }
    let wrong = site.put_blob(&right, "wrong").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "also if the content is stored");
    let found = get(&site, &right, "").await;
    assert_eq!((found.status, found.body.as_ref()), (StatusCode::OK, blob.as_bytes()));
    assert_eq!(found.header("etag"), format!("\"{right}\""));
}

#[tokio::test]
async fn a_range_of_content_is_sent() {
    let site = Site::new();
    let digest = digest("0123456789");
    site.put_blob(&digest, "0123456789").await;
    let part = get(&site, &digest, "bytes=2-4").await;
    assert_eq!((part.status, part.body.as_ref()), (StatusCode::PARTIAL_CONTENT, &b"234"[..]));
    assert_eq!(part.header("content-range"), "bytes 2-4/10");
    let end = get(&site, &digest, "bytes=-3").await;
    assert_eq!(end.body.as_ref(), b"789");
    let beyond = get(&site, &digest, "bytes=10-").await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.header("content-range"), "bytes */10");
}

#[tokio::test]
async fn a_site_without_an_object_store_says_so() {
    let site = Site::without_store();
    let digest = digest("x");
    assert_eq!(site.put_blob(&digest, "x").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let found = get(&site, &digest, "").await;
    assert_eq!(found.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(String::from_utf8_lossy(&found.body).contains("images.s3_url"));
    site.pass(Duration::from_secs(1)).await;
}
