//! An upload by tuspy through the gateway, on a wire that is cut ten times. Its image is the same as of one request.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tinwright::image::v1::ImageState;
use tokio::task::spawn_blocking;

use super::edge_images::disk;
use super::gateway_uploads::Site;
use super::images::{create, settled, upload};
use super::process::soon;
use super::s3_gate::Gate;

const CUTS: usize = 10;
/// Bytes that pass the wire from one cut to the next. The disk has more than those of all cuts.
const BYTES_BETWEEN_CUTS: i64 = 2_000_000;

/// Returns the command that uploads `file` to `url`. Debian's Python has tuspy.
fn tuspy(url: &str, file: &Path, key: &str) -> Command {
    let script = "services/all-in-one/tests/processes/tus_client/upload.py";
    let mut command = Command::new("/usr/bin/python3");
    command.arg(setup::root().join(script)).arg(url).arg(file).env("API_KEY", key);
    command
}

/// Cuts the wire again and again, and mends it.
async fn cut(wire: &Gate) {
    for _ in 0..CUTS {
        wire.cut_after(BYTES_BETWEEN_CUTS);
        while !wire.is_cut() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        wire.mend();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_by_tuspy_that_is_cut_ten_times_is_the_image_of_one_request() {
    let site = Site::in_one_process().await;
    let mut images = site.site.images(None).await;
    let file = site.site.file("disk.raw", &disk());
    let whole = create(&mut images, "whole", upload("disk.raw"), "").await;
    assert_eq!(site.site.upload(&whole.id, &file), "201");
    let whole = settled(&mut images, &whole.id).await;
    assert_eq!(whole.state(), ImageState::Ready, "{}", whole.state_reason);

    let parts = create(&mut images, "parts", upload("disk.raw"), "").await;
    let wire = Gate::to(site.gateway).await;
    let url = format!("http://{}/uploads/{}", wire.address, parts.id);
    let mut client = tuspy(&url, &file, &site.key("operator", None));
    let client = spawn_blocking(move || client.output().unwrap());
    let ((), output) = soon(async { tokio::join!(cut(&wire), client) }).await;
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let offsets = String::from_utf8(output.stdout).unwrap();
    let offsets: Vec<u64> = offsets.lines().map(|line| line.parse().unwrap()).collect();
    assert!(offsets.is_sorted() && offsets.len() >= CUTS, "{offsets:?}");
    assert!(offsets.last() > Some(&(disk().len() as u64 / 2)), "it goes on: {offsets:?}");
    let parts = settled(&mut images, &parts.id).await;
    assert_eq!(parts.state(), ImageState::Ready, "{}", parts.state_reason);
    let content = |it: &tinwright::image::v1::Image| {
        (it.sha256.clone(), it.stored_sha256.clone(), it.map_sha256.clone())
    };
    assert_eq!(content(&parts), content(&whole));
    site.end();
}
