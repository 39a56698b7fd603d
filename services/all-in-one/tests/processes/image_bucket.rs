//! Images of two replicas over etcd, with their content in a bucket.

use std::time::Duration;

use tinwright::image::v1::ImageState;

use super::images::{Site, create, disk, settled, sha256, upload};
use super::moto::Moto;
use super::peer::Peer;
use super::process::{Place, arguments, soon};
use super::s3_bucket::SECRET;

/// Bytes that the first replica receives.
const FIRST_BYTES: usize = 1 << 20;

/// Sends a request of tus with `headers` and the `body`. Returns the HTTP status, and curl's error.
pub(super) fn tus(site: &Site, method: &str, id: &str, headers: &[&str], body: &[u8]) -> String {
    let mut command = site.curl(&format!("/uploads/{id}"));
    let common = ["Tus-Resumable: 1.0.0", "Content-Type: application/offset+octet-stream"];
    for header in common.iter().chain(headers) {
        command.args(["--header", header]);
    }
    command.args(["--request", method, "--output", "/dev/null", "--write-out", "%{http_code}"]);
    let body = site.file("body", body);
    let output = command.arg("--data-binary").arg(format!("@{}", body.display())).output();
    let output = output.unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_to_a_bucket_is_ended_by_another_replica_when_the_first_is_killed() {
    let etcd = Peer::start().await;
    let moto = Moto::start();
    let bucket = &moto.bucket;
    let mut over = arguments(&["--store", "etcd", "--etcd-endpoints", &etcd.url()]);
    let url = format!("http://{}", bucket.address);
    over.extend(arguments(&["--images-s3-url", &url, "--images-s3-bucket", &bucket.name]));
    over.extend(["--images-s3-credentials".into(), bucket.credentials().display().to_string()]);
    let first = Site::of(Place::new().start(&over).await);
    let second = Place::new().with_secrets_of(&first.server.place, &[]).start(&over).await;
    let second = Site::of(second);

    let disk = disk();
    let image = create(&mut first.images(None).await, "disk", upload("disk.raw"), "").await;
    let length = format!("Upload-Length: {}", disk.len());
    assert_eq!(tus(&first, "POST", &image.id, &[&length], b""), "201");
    let (begin, rest) = disk.split_at(FIRST_BYTES);
    assert_eq!(tus(&first, "PATCH", &image.id, &["Upload-Offset: 0"], begin), "204");
    let log = first.server.log();
    let left = first.server.kill();

    let offset = format!("Upload-Offset: {FIRST_BYTES}");
    assert_eq!(tus(&second, "PATCH", &image.id, &[&offset], rest), "204");
    let ready = settled(&mut second.images(None).await, &image.id).await;
    assert_eq!(ready.state(), ImageState::Ready, "{}{}", ready.state_reason, second.server.log());
    assert_eq!((ready.sha256, ready.source_sha256), (sha256(&disk), sha256(&disk)));
    // The bytes of the upload are removed after the image is ready.
    let removed = async {
        while bucket.keys().iter().any(|key| !key.starts_with("blobs/")) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon(removed).await;
    assert_eq!(bucket.keys().len(), 2);

    let first = Site::of(left.start(&over).await);
    assert_eq!(sha256(&first.blob(&ready.stored_sha256)), ready.stored_sha256);
    for log in [log, first.server.log(), second.server.log()] {
        assert!(!log.contains(SECRET), "{log}");
    }
}
