//! A site with a bucket: several processes, and an S3 server that goes away.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use object_store::ObjectStoreExt as _;
use store::ScopedStore;
use store::records::Records;
use tinwright::image::v1::ImageState;

use super::contract::noise;
use super::gate::Gate;
use super::moto::{Certificate, Moto};
use super::s3_bucket::{S3Bucket, SECRET};
use super::site::{Answer, BUILDER, Site, content, digest, download, operator, stored, upload};
use crate::blobs::hex;
use crate::error::Error;
use crate::objects;
use crate::s3;
use crate::stored::UploadKind;
use crate::{ContentStore, S3Settings};

/// Delay after which what is unused or unfinished goes.
const RETENTION: Duration = Duration::from_hours(24);
/// Bytes of a part of an upload, and of an object.
const PART_BYTES: usize = 8 << 20;

/// Address of the server that has the buckets, in place of moto.
pub(super) const SERVER: &str = "IMAGE_TEST_S3";

/// A bucket behind a wire.
pub(super) struct TestBucket {
    pub(super) server: Server,
    pub(super) gate: Gate,
}

/// A bucket of its own, and its server unless that has others.
pub(super) enum Server {
    Moto(Moto),
    Other(S3Bucket),
}

impl Server {
    fn start() -> Self {
        let Ok(address) = std::env::var(SERVER) else { return Self::Moto(Moto::start()) };
        let name = format!("images-{}", uuid::Uuid::new_v4());
        let bucket = S3Bucket::of(address.parse().unwrap(), &name);
        bucket.create();
        Self::Other(bucket)
    }
}

impl Deref for Server {
    type Target = S3Bucket;

    fn deref(&self) -> &S3Bucket {
        match self {
            Self::Moto(moto) => &moto.bucket,
            Self::Other(bucket) => bucket,
        }
    }
}

impl TestBucket {
    pub(super) async fn start() -> Self {
        let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
        let gate = Gate::to(server.address).await;
        Self { server, gate }
    }

    /// Returns the settings of a site with it.
    pub(super) fn content(&self) -> ContentStore {
        ContentStore::S3(S3Settings {
            url: format!("http://{}", self.gate.address).parse().unwrap(),
            bucket: self.server.name.clone(),
            region: "us-east-1".into(),
            credentials: self.server.credentials(),
            ca: None,
        })
    }
}

/// Stores `bytes` as a builder does.
pub(super) async fn store(site: &Site, bytes: &[u8]) -> Result<String, Error> {
    let digest = hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref());
    let parts: Vec<_> = bytes.chunks(64 << 10).map(|it| Ok(Bytes::copy_from_slice(it))).collect();
    site.api.blobs.write(&digest, stream::iter(parts), u64::MAX).await.map(|()| digest)
}

/// Continues the upload of `image`, whose request ends with an error after `bytes` if it `breaks`.
async fn append(
    site: &Site,
    image: &str,
    offset: usize,
    bytes: &[u8],
    breaks: bool,
) -> Result<u64, Error> {
    let parts = bytes.chunks(64 << 10).map(|it| Ok(Bytes::copy_from_slice(it)));
    let end = breaks.then_some(Err(Error::Busy));
    let body = stream::iter(parts.chain(end).collect::<Vec<_>>());
    site.api.uploads.append(image, offset as u64, body, u64::MAX, None).await
}

/// Sends a request of tus.
async fn tus(site: &Site, method: Method, image: &str, header: (&str, &str), body: &str) -> Answer {
    let headers =
        [("tus-resumable", "1.0.0"), ("content-type", "application/offset+octet-stream"), header];
    let path = format!("/uploads/{image}");
    site.send(Some(operator("acme")), method, &path, &headers, body).await
}

#[tokio::test]
async fn an_upload_that_one_process_began_is_ended_by_another() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let image = site.create(upload("acme", "debian")).await.unwrap().id;
    let created = tus(&site, Method::POST, &image, ("upload-length", "6"), "").await;
    assert_eq!(created.status, StatusCode::CREATED);
    let first = tus(&site, Method::PATCH, &image, ("upload-offset", "0"), "abc").await;
    assert_eq!(first.header("upload-offset"), "3");
    let other = site.twin();
    drop(site);
    let found = tus(&other, Method::HEAD, &image, ("x", "x"), "").await;
    assert_eq!(found.header("upload-offset"), "3");
    let last = tus(&other, Method::PATCH, &image, ("upload-offset", "3"), "def").await;
    assert_eq!(last.status, StatusCode::NO_CONTENT);
    let build = other.lease(BUILDER).await;
    assert_eq!(build.image_id, image);
    let path = format!("/uploads/{image}");
    let builder = Some(runtime::Role::Builder.into());
    let read = other.send(builder, Method::GET, &path, &[], "").await;
    assert_eq!((read.header("content-length"), read.body.as_ref()), ("6", b"abcdef".as_slice()));
    other.store("disk").await;
    other.finish(&build, content("disk")).await.unwrap();
    assert_eq!(other.image(&image).await.state(), ImageState::Ready);
    let left = bucket.server.keys();
    assert!(left.len() == 2 && left.iter().all(|key| key.starts_with("blobs/")), "{left:?}");
}

#[tokio::test]
async fn a_request_that_breaks_leaves_its_bytes_to_another_process() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let bytes = noise(2 * PART_BYTES + 1000);
    let cut = PART_BYTES + 17;
    assert!(append(&site, "i", 0, &bytes[..cut], true).await.is_err());
    let other = site.twin();
    assert_eq!(other.api.uploads.offset("i").await.unwrap(), cut as u64);
    let size = append(&other, "i", cut, &bytes[cut..], false).await.unwrap();
    assert_eq!(size, bytes.len() as u64);
    assert!(read(&site, "i").await == bytes);
}

#[tokio::test]
async fn a_killed_process_leaves_the_parts_of_its_request_to_another() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let bytes = noise(PART_BYTES + 1000);
    let parts: Vec<_> = bytes.chunks(64 << 10).map(|it| Ok(Bytes::copy_from_slice(it))).collect();
    let body = stream::iter(parts).chain(stream::pending());
    let other = site.twin();
    let arrived = async {
        while other.api.uploads.offset("i").await.unwrap() < PART_BYTES as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        ended = site.api.uploads.append("i", 0, body, u64::MAX, None) => panic!("{ended:?}"),
        arrived = tokio::time::timeout(Duration::from_secs(60), arrived) => arrived.unwrap(),
    }
    drop(site);
    assert_eq!(other.api.uploads.offset("i").await.unwrap(), PART_BYTES as u64);
    append(&other, "i", PART_BYTES, &bytes[PART_BYTES..], false).await.unwrap();
    assert!(read(&other, "i").await == bytes);
}

async fn read(site: &Site, image: &str) -> Vec<u8> {
    let size = site.api.uploads.offset(image).await.unwrap();
    let content = site.api.uploads.read(image, 0..size).await.unwrap();
    content.map(Result::unwrap).collect::<Vec<_>>().await.concat()
}

#[tokio::test]
async fn of_two_processes_that_write_at_once_one_goes_on() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let other = site.twin();
    append(&site, "i", 0, b"abc", false).await.unwrap();
    // The other process takes a whole request while the first one sends.
    let during = async {
        let size = append(&other, "i", 3, b"other", false).await.unwrap();
        assert_eq!(size, 8);
        Ok(Bytes::from_static(b"me"))
    };
    let body = Box::pin(stream::once(during));
    let late = site.api.uploads.append("i", 3, body, u64::MAX, None).await;
    assert!(matches!(late, Err(Error::UploadBusy(_))), "{late:?}");
    assert_eq!(read(&site, "i").await, b"abcother");
    let during = async {
        append(&other, "i", 8, b"!", false).await.unwrap();
        Ok(Bytes::from_static(b"new"))
    };
    let late = site.api.uploads.replace("i", Box::pin(stream::once(during)), u64::MAX).await;
    assert!(matches!(late, Err(Error::UploadBusy(_))), "{late:?}");
    assert_eq!(read(&other, "i").await, b"abcother!");
}

#[tokio::test]
async fn an_upload_goes_on_after_the_server_was_away() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let bytes = noise(3 * PART_BYTES);
    bucket.gate.cut_after((PART_BYTES + PART_BYTES / 2) as i64);
    let broken = append(&site, "i", 0, &bytes, false).await;
    assert!(matches!(broken, Err(Error::Objects(objects::Error::Store(_)))), "{broken:?}");
    assert!(bucket.gate.is_cut());
    let durable = site.api.uploads.offset("i").await.unwrap();
    assert_eq!(durable, PART_BYTES as u64, "the first part, and not what was on the wire");
    bucket.gate.mend();
    append(&site, "i", PART_BYTES, &bytes[PART_BYTES..], false).await.unwrap();
    assert!(read(&site, "i").await == bytes);
    site.api.uploads.remove("i").await.unwrap();
    assert_eq!(bucket.server.keys(), [""; 0]);
}

#[tokio::test]
async fn a_server_that_goes_away_leaves_no_content_half_stored_and_no_image_unreadable() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let ready = site.import(download("", "ready"), "disk").await;
    let id = site.create(download("", "late")).await.unwrap().id;
    let build = site.lease(BUILDER).await;
    bucket.gate.cut_after((PART_BYTES + PART_BYTES / 2) as i64);
    let broken = store(&site, &noise(4 * PART_BYTES)).await;
    assert!(matches!(broken, Err(Error::Objects(objects::Error::Store(_)))), "{broken:?}");
    assert!(site.finish(&build, content("other")).await.is_err(), "nothing of it is stored");
    assert_eq!(site.image(&id).await.state(), ImageState::Processing);
    // The images stay as they are while nobody knows of their content.
    assert!(site.api.reconciler.check_damage().await.is_err());
    assert_eq!(site.image(&ready.id).await.state(), ImageState::Ready);
    assert_eq!(bucket.server.unfinished().len(), 1, "the parts that arrived");
    bucket.gate.mend();
    site.store("other").await;
    site.finish(&build, content("other")).await.unwrap();
    assert_eq!(site.image(&id).await.state(), ImageState::Ready);
    let path = format!("/blobs/{}", ready.stored_sha256);
    let builder = || Some(runtime::Role::Builder.into());
    let found = site.send(builder(), Method::GET, &path, &[], "").await;
    assert_eq!(found.body, stored("disk"));
    site.pass(RETENTION).await;
    site.api.reconciler.collect().await.unwrap();
    assert_eq!(bucket.server.unfinished(), [""; 0]);
    let left = bucket.server.keys();
    assert!(left.len() == 4 && left.iter().all(|key| key.starts_with("blobs/")), "{left:?}");
    let found = site.send(builder(), Method::GET, &path, &[], "").await;
    assert_eq!(found.body, stored("disk"));
    site.api.reconciler.check_damage().await.unwrap();
    assert_eq!(site.image(&ready.id).await.state(), ImageState::Ready);
}

#[tokio::test]
async fn content_is_stored_once_and_found_by_the_other_process() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    let other = site.twin();
    let bytes = noise(2 * PART_BYTES + 5);
    let found = store(&site, &bytes).await.unwrap();
    assert_eq!(store(&other, &bytes).await.unwrap(), found);
    assert_eq!(other.put_blob(&digest("small"), "small").await.status, StatusCode::NO_CONTENT);
    assert_eq!(bucket.server.keys().len(), 2);
    assert_eq!(bucket.server.unfinished(), [""; 0]);
    let range = ("range", "bytes=8388600-8388615");
    let builder = Some(runtime::Role::Builder.into());
    let path = format!("/blobs/{found}");
    let part = site.send(builder, Method::GET, &path, &[range], "").await;
    assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
    assert!(part.body == bytes[8_388_600..8_388_616]);
}

#[tokio::test]
async fn what_a_process_left_that_was_killed_is_swept() {
    let bucket = TestBucket::start().await;
    let site = Site::on(bucket.content());
    append(&site, "kept", 0, b"abc", false).await.unwrap();
    append(&site, "i", 0, b"abc", false).await.unwrap();
    // As if the process was killed after the commit that removes the upload.
    let uploads = Records::<UploadKind>::new(ScopedStore::new(site.store.clone(), "image"));
    let upload = uploads.require("i").await.unwrap();
    uploads.commit(uploads.to_delete(&upload)).await.unwrap();
    append(&site, "i", 0, b"new", false).await.unwrap();
    assert_eq!(bucket.server.keys().len(), 3);
    site.api.reconciler.collect().await.unwrap();
    assert_eq!(bucket.server.keys().len(), 2);
    for (image, bytes) in [("kept", b"abc"), ("i", b"new")] {
        assert_eq!(read(&site, image).await, bytes);
    }
}

#[tokio::test]
async fn a_server_with_a_private_authority_is_trusted_by_the_setting_only() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let certificate =
        Certificate { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() };
    let moto = Moto::with_tls(&certificate);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &certificate.certificate).unwrap();
    for (ca, is_trusted) in [(Some(ca), true), (None, false)] {
        let settings = S3Settings {
            url: format!("https://{}", moto.bucket.address).parse().unwrap(),
            bucket: moto.bucket.name.clone(),
            region: "us-east-1".into(),
            credentials: moto.bucket.credentials(),
            ca,
        };
        let bucket = s3::open(&settings).unwrap();
        let found = bucket.head(&"blobs/x".into()).await.unwrap_err();
        let is_answer = matches!(found, object_store::Error::NotFound { .. });
        assert_eq!(is_answer, is_trusted, "{found:?}");
        assert!(!format!("{found:?} {bucket:?}").contains(SECRET));
    }
}
