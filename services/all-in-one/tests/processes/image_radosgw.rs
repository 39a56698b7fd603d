//! Images of a server with their content in a bucket of radosgw, which checks signatures, and behind a wire that breaks.

use std::process::Command;
use std::time::Duration;

use tinwright::image::v1::image_source::Source;
use tinwright::image::v1::{Image, ImageState, UrlSource};

use super::image_bucket::tus;
use super::images::{Site, create, serve, settled, sha256, upload};
use super::process::{Place, arguments, soon};
use super::radosgw::Radosgw;
use super::s3_bucket::{S3Bucket, SECRET};
use super::s3_gate::Gate;

/// Size of the disks: three parts of an upload, and of the stored content.
const DISK_BYTES: usize = 24 << 20;
/// Bytes to radosgw after which the wire breaks: in the second part.
const CUT_BYTES: i64 = 12 << 20;
/// Bytes of a part.
const PART_BYTES: usize = 8 << 20;

/// Returns a disk with a boot sector that cannot be compressed.
fn disk(seed: u64) -> Vec<u8> {
    let word = |n: u64| (n ^ (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    let words = (1..=DISK_BYTES as u64 / 8).map(|n| word(word(n)).to_le_bytes());
    let mut disk = words.collect::<Vec<_>>().concat();
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

/// Waits until the wire has broken and a request has failed because of it. Then it is whole again.
async fn mend_after_a_failure(site: &Site, gate: &Gate, failures: usize) {
    let failed = async {
        while !gate.is_cut() || count_failures(site) == failures {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(failed).await;
    gate.mend();
}

fn count_failures(site: &Site) -> usize {
    site.server.log().matches("object store failed").count()
}

/// Waits until the image is ready with the bytes of `disk`.
async fn check_ready(site: &Site, image: &Image, disk: &[u8]) {
    let ready = settled(&mut site.images(None).await, &image.id).await;
    assert_eq!(ready.state(), ImageState::Ready, "{}{}", ready.state_reason, site.server.log());
    assert_eq!(ready.sha256, sha256(disk));
    let stored = site.file("stored.zst", &site.blob(&ready.stored_sha256));
    let output = Command::new("zstd").arg("-dcq").arg(stored).output().unwrap();
    assert!(output.stdout == disk, "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo rack test --long"]
async fn an_upload_and_an_import_end_although_radosgw_was_away() {
    let radosgw = tokio::task::spawn_blocking(Radosgw::start).await.unwrap();
    let bucket = S3Bucket::of(radosgw.address, "images");
    bucket.create();
    let gate = Gate::to(radosgw.address).await;
    let mut with_bucket = arguments(&["--images-allow-networks", "127.0.0.0/8"]);
    let url = format!("http://{}", gate.address);
    with_bucket.extend(arguments(&["--images-s3-url", &url, "--images-s3-bucket", "images"]));
    with_bucket
        .extend(["--images-s3-credentials".into(), bucket.credentials().display().to_string()]);
    let site = Site::of(Place::new().start(&with_bucket).await);

    let uploaded = disk(1);
    let image = create(&mut site.images(None).await, "uploaded", upload("disk.raw"), "").await;
    let length = format!("Upload-Length: {DISK_BYTES}");
    assert_eq!(tus(&site, "POST", &image.id, &[&length], b""), "201");
    gate.cut_after(CUT_BYTES);
    assert_eq!(tus(&site, "PATCH", &image.id, &["Upload-Offset: 0"], &uploaded), "503");
    mend_after_a_failure(&site, &gate, 0).await;
    let offset = format!("Upload-Offset: {PART_BYTES}");
    assert_eq!(tus(&site, "PATCH", &image.id, &[&offset], &uploaded[PART_BYTES..]), "204");
    check_ready(&site, &image, &uploaded).await;

    let imported = disk(2);
    let (address, _served) = serve(site.file("disk.raw", &imported).parent().unwrap()).await;
    let failures = count_failures(&site);
    gate.cut_after(CUT_BYTES);
    let source = Source::Url(UrlSource { url: format!("http://{address}/disk.raw") });
    let image = create(&mut site.images(None).await, "imported", source, "").await;
    mend_after_a_failure(&site, &gate, failures).await;
    check_ready(&site, &image, &imported).await;
    let is_blob = |key: &String| key.starts_with("blobs/");
    assert_eq!(bucket.keys().into_iter().filter(is_blob).count(), 4);
    assert!(!site.server.log().contains(SECRET));
}
