//! Uploads over HTTP: tus 1.0 and one `PUT`; and what time does to them.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use http::{Method, Request, StatusCode};
use sha2::{Digest as _, Sha256};
use tinwright::image::v1::{Image, ImageState};
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use super::site::{Answer, BUILDER, Site, content, operator, upload};

/// The version of the protocol, as each request of tus names it.
const VERSION: (&str, &str) = ("tus-resumable", "1.0.0");
/// The media type of a part.
const PART: (&str, &str) = ("content-type", "application/offset+octet-stream");
/// Delay after which an upload without a new byte fails.
const RETENTION: Duration = Duration::from_hours(24);

/// A site with an image of `acme` that is uploaded.
async fn site() -> (Site, Image) {
    let site = Site::new();
    let image = site.create(upload("acme", "debian")).await.unwrap();
    (site, image)
}

async fn send(
    site: &Site,
    method: Method,
    image: &Image,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let path = format!("/uploads/{}", image.id);
    site.send(Some(operator("acme")), method, &path, headers, body).await
}

/// Begins an upload with `length` bytes.
async fn create(site: &Site, image: &Image, length: u64) -> Answer {
    let length = length.to_string();
    send(site, Method::POST, image, &[VERSION, ("upload-length", &length)], "").await
}

/// Sends a part, with the SHA-256 of `summed`.
async fn patch(site: &Site, image: &Image, offset: u64, part: &str, summed: &str) -> Answer {
    let offset = offset.to_string();
    let sum = format!("sha256 {}", STANDARD.encode(Sha256::digest(summed)));
    let headers = [VERSION, PART, ("upload-offset", &offset), ("upload-checksum", &sum)];
    send(site, Method::PATCH, image, &headers, part).await
}

async fn head(site: &Site, image: &Image) -> Answer {
    send(site, Method::HEAD, image, &[VERSION], "").await
}

/// Returns the file of the upload of `image`.
fn file(site: &Site, image: &Image) -> Option<String> {
    std::fs::read_to_string(site.directory.path().join("uploads").join(&image.id)).ok()
}

#[tokio::test]
async fn an_upload_goes_on_after_its_durable_bytes_until_its_build_begins() {
    let (site, image) = site().await;
    let created = create(&site, &image, 6).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(created.header("location"), format!("/uploads/{}", image.id));
    assert_eq!(create(&site, &image, 6).await.status, StatusCode::CREATED, "repeated");
    assert_eq!(create(&site, &image, 7).await.status, StatusCode::CONFLICT);
    let first = patch(&site, &image, 0, "abc", "abc").await;
    assert_eq!((first.status, first.header("upload-offset")), (StatusCode::NO_CONTENT, "3"));
    let found = head(&site, &image).await;
    assert_eq!((found.header("upload-offset"), found.header("upload-length")), ("3", "6"));
    assert_ne!(found.header("upload-expires"), "");
    let conflict = patch(&site, &image, 0, "abc", "abc").await;
    // The rest of its body is read after the answer, which a reset would destroy.
    assert_eq!((conflict.status, conflict.header("connection")), (StatusCode::CONFLICT, "close"));
    assert_eq!(site.image(&image.id).await.state(), ImageState::Uploading);
    assert_eq!(patch(&site, &image, 3, "def", "def").await.status, StatusCode::NO_CONTENT);
    assert_eq!(site.image(&image.id).await.state(), ImageState::Processing);
    let late = patch(&site, &image, 6, "g", "g").await;
    assert_eq!(late.status, StatusCode::CONFLICT, "it is not being uploaded any more");
    assert_eq!(head(&site, &image).await.header("upload-offset"), "6");
}

/// Requests the upload of `image`, or a range of it, as a builder does.
async fn get(site: &Site, image: &Image, range: &str) -> Answer {
    let builder = Some(runtime::Role::Builder.into());
    let headers: &[_] = if range.is_empty() { &[] } else { &[("range", range)] };
    site.send(builder, Method::GET, &format!("/uploads/{}", image.id), headers, "").await
}

#[tokio::test]
async fn a_builder_that_was_cut_off_gets_the_rest_of_an_upload() {
    let (site, image) = site().await;
    assert_eq!(send(&site, Method::PUT, &image, &[], "abcdef").await.status, StatusCode::CREATED);
    let whole = get(&site, &image, "").await;
    assert_eq!((whole.status, whole.body.as_ref()), (StatusCode::OK, &b"abcdef"[..]));
    assert_eq!((whole.header("content-length"), whole.header("accept-ranges")), ("6", "bytes"));
    for (range, place, rest) in
        [("bytes=2-", "bytes 2-5/6", "cdef"), ("bytes=0-2", "bytes 0-2/6", "abc")]
    {
        let part = get(&site, &image, range).await;
        assert_eq!(
            (part.status, part.body.as_ref()),
            (StatusCode::PARTIAL_CONTENT, rest.as_bytes())
        );
        assert_eq!(part.header("content-range"), place);
        assert_eq!(part.header("content-length"), rest.len().to_string());
    }
    let complete = get(&site, &image, "bytes=6-").await;
    assert_eq!(complete.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(complete.header("content-range"), "bytes */6");
}

#[tokio::test]
async fn a_part_with_another_checksum_is_not_stored() {
    let (site, image) = site().await;
    create(&site, &image, 6).await;
    assert_eq!(patch(&site, &image, 0, "abc", "abd").await.status.as_u16(), 460);
    assert_eq!(head(&site, &image).await.header("upload-offset"), "0");
    let headers = [VERSION, PART, ("upload-offset", "0"), ("upload-checksum", "md5 AAAA")];
    let unknown = send(&site, Method::PATCH, &image, &headers, "abc").await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_upload_is_not_longer_than_declared_or_allowed() {
    let (site, image) = site().await;
    let undeclared = patch(&site, &image, 0, "", "").await;
    assert_eq!(undeclared.status, StatusCode::CONFLICT);
    assert_eq!(site.image(&image.id).await.state(), ImageState::Uploading);
    assert_eq!(create(&site, &image, 1001).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(create(&site, &image, 0).await.status, StatusCode::BAD_REQUEST);
    create(&site, &image, 2).await;
    assert_eq!(patch(&site, &image, 0, "abc", "abc").await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let long = send(&site, Method::PUT, &image, &[], &"x".repeat(1001)).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    let length = [("content-length", "1001")];
    let long = send(&site, Method::PUT, &image, &length, &"x".repeat(1001)).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(site.image(&image.id).await.state(), ImageState::Uploading);
}

#[tokio::test]
async fn a_request_of_another_version_is_refused() {
    let (site, image) = site().await;
    for method in [Method::HEAD, Method::POST, Method::PATCH] {
        let refused = send(&site, method, &image, &[("tus-resumable", "0.2.2")], "").await;
        assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
        assert_eq!(refused.header("tus-version"), "1.0.0");
    }
    let options = send(&site, Method::OPTIONS, &image, &[], "").await;
    assert_eq!(options.header("tus-max-size"), "1000");
}

#[tokio::test]
async fn a_put_is_a_whole_upload_that_a_builder_reads() {
    let (site, image) = site().await;
    let stored = send(&site, Method::PUT, &image, &[], "the disk").await;
    assert_eq!(stored.status, StatusCode::CREATED);
    let leased = site.lease(BUILDER).await;
    assert_eq!(leased.image_id, image.id);
    let path = format!("/uploads/{}", image.id);
    let read = site.send(Some(runtime::Role::Builder.into()), Method::GET, &path, &[], "").await;
    assert_eq!(read.body.as_ref(), b"the disk");
    let again = send(&site, Method::PUT, &image, &[], "the disk").await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    site.store("disk").await;
    site.finish(&leased, content("disk")).await.unwrap();
    assert_eq!(file(&site, &image), None);
    assert_eq!(head(&site, &image).await.status, StatusCode::GONE);
}

#[tokio::test]
async fn images_of_others_are_not_uploaded() {
    let (site, image) = site().await;
    let public = Image { public: true, ..upload("acme", "centos") };
    let public = site.create(public).await.unwrap();
    for (image, expected) in [(&image, StatusCode::NOT_FOUND), (&public, StatusCode::FORBIDDEN)] {
        let path = format!("/uploads/{}", image.id);
        for method in [Method::HEAD, Method::POST, Method::PATCH, Method::PUT] {
            let headers = [VERSION, PART, ("upload-length", "3"), ("upload-offset", "0")];
            let caller = Some(operator("other"));
            let refused = site.send(caller, method.clone(), &path, &headers, "abc").await;
            assert_eq!(refused.status, expected, "{method}");
        }
    }
    assert_eq!(file(&site, &image), None);
}

#[tokio::test]
async fn an_upload_without_a_new_byte_fails_after_a_day() {
    let (site, image) = site().await;
    create(&site, &image, 6).await;
    patch(&site, &image, 0, "abc", "abc").await;
    site.pass(RETENTION - Duration::from_mins(10)).await;
    assert_eq!(site.image(&image.id).await.state(), ImageState::Uploading);
    site.pass(Duration::from_mins(20)).await;
    let failed = site.image(&image.id).await;
    assert_eq!((failed.state(), failed.stored_bytes), (ImageState::Failed, 0));
    assert_eq!(failed.state_reason, "the upload got no byte for 24 hours");
    assert_eq!(file(&site, &image), None);
}

#[tokio::test]
async fn the_build_of_a_complete_upload_begins_after_a_crash() {
    let (site, image) = site().await;
    create(&site, &image, 6).await;
    let path = site.directory.path().join("uploads").join(&image.id);
    std::fs::write(&path, "abc").unwrap();
    site.pass(Duration::ZERO).await;
    assert_eq!(site.image(&image.id).await.state(), ImageState::Uploading);
    std::fs::write(&path, "abcdef").unwrap();
    site.pass(Duration::ZERO).await;
    assert_eq!(site.image(&image.id).await.state(), ImageState::Processing);
}

#[tokio::test]
async fn a_build_does_not_begin_while_a_request_writes() {
    let (site, image) = site().await;
    create(&site, &image, 6).await;
    patch(&site, &image, 0, "abc", "abc").await;
    let path = site.directory.path().join("uploads").join(&image.id);
    let turn = site.api.uploads.turn(&image.id).unwrap();
    let busy = patch(&site, &image, 3, "def", "def").await;
    assert_eq!(busy.status, StatusCode::LOCKED);
    std::fs::write(&path, "abcdef").unwrap();
    site.pass(Duration::ZERO).await;
    assert_eq!(site.image(&image.id).await.state(), ImageState::Uploading);
    drop(turn);
    site.pass(Duration::ZERO).await;
    assert_eq!(site.image(&image.id).await.state(), ImageState::Processing);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_what_arrived_to_one_writer() {
    let (site, image) = site().await;
    assert_eq!(create(&site, &image, 6).await.status, StatusCode::CREATED);
    let (parts, received) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let next =
        |mut received: mpsc::Receiver<_>| async move { Some((received.recv().await?, received)) };
    let headers = [VERSION, PART, ("upload-offset", "0")];
    let mut request = Request::patch(format!("/uploads/{}", image.id));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut request = request.body(Body::from_stream(stream::unfold(received, next))).unwrap();
    request.extensions_mut().insert(operator("acme"));
    let response = tokio::spawn(site.http.clone().oneshot(request));
    parts.send(Ok(Bytes::from_static(b"abc"))).await.unwrap();
    let arrived = async {
        while file(&site, &image).is_none_or(|text| text != "abc") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), arrived).await.unwrap();
    response.abort();
    assert!(response.await.unwrap_err().is_cancelled());
    assert_eq!(patch(&site, &image, 3, "def", "def").await.status, StatusCode::LOCKED);
    drop(parts);
    let goes_on = async {
        while patch(&site, &image, 3, "def", "def").await.status != StatusCode::NO_CONTENT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), goes_on).await.unwrap();
    assert_eq!(file(&site, &image).as_deref(), Some("abcdef"));
}

#[tokio::test]
async fn an_upload_beyond_the_quota_is_refused_and_not_stored() {
    let (site, image) = site().await;
    let mut other = site.create(upload("acme", "large")).await.unwrap();
    // As if it was declared when uploads could be larger.
    site.api.imports.declare(&other.id, 1 << 40, false).await.unwrap();
    other = site.image(&other.id).await;
    assert_eq!(other.stored_bytes, 1 << 40);
    assert_eq!(create(&site, &image, 6).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let refused = send(&site, Method::PUT, &image, &[], "abc").await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(file(&site, &image), None);
    site.delete("acme", &other.id).await.unwrap();
    assert_eq!(send(&site, Method::PUT, &image, &[], "abc").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn files_that_no_image_needs_are_removed() {
    let (site, image) = site().await;
    send(&site, Method::PUT, &image, &[], "abc").await;
    let uploads = site.directory.path().join("uploads");
    for name in ["5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10", "x"] {
        std::fs::write(uploads.join(name), "abc").unwrap();
    }
    site.pass(Duration::ZERO).await;
    let left: Vec<_> =
        std::fs::read_dir(&uploads).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, [image.id.as_str()]);
    site.delete("acme", &image.id).await.unwrap();
    assert_eq!(file(&site, &image), None);
}
