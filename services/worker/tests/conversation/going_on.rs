//! An installation by a map that goes on after its worker was killed.

use std::num::NonZero;
use std::{fs, io::Write as _};

use sha2::{Digest as _, Sha256};
use stored_image::{Encoder, EncoderSettings};
use tempfile::NamedTempFile;
use tinwright::workflow::v1::ActionState;

use crate::files::Files;
use crate::machine::{Machine, assignment, until};
use crate::plane::ControlPlane;
use crate::work::image;

/// Size of the blocks of the map.
const BLOCK_BYTES: u32 = 1 << 20;

/// Returns the stored form of `raw`, and its map.
fn stored(raw: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let settings =
        EncoderSettings { level: 1, threads: NonZero::<usize>::MIN, block_bytes: BLOCK_BYTES };
    let mut stored = Vec::new();
    let mut encoder = Encoder::start(&mut stored, &settings).unwrap();
    encoder.write_all(raw).unwrap();
    let map = encoder.finish().unwrap().map.encode();
    (stored, map)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_worker_keeps_the_lease_and_writes_only_what_the_disk_lacks() {
    let plane = ControlPlane::serve([]).await;
    let (raw, disk) = (image(12), NamedTempFile::new().unwrap());
    disk.as_file().set_len(raw.len() as u64).unwrap();
    let (file, map) = stored(&raw);
    let sum = hex(&map);
    let files = Files::serve_with_map(plane.ca(), file, map).await;
    let (url, map_url) = (files.image_url(), files.map_url());
    let path = disk.path().display().to_string();
    let variables = [
        ("IMG_URL", url.as_str()),
        ("DEST_DISK", &path),
        ("IMG_MAP", &map_url),
        ("IMG_MAP_SHA256", &sum),
    ];
    plane.update(|state| state.queue.push_back(assignment("l1", "image2disk:v1", &variables)));
    let mut machine = Machine::boot(&plane, &files);
    let block = BLOCK_BYTES as usize;
    until(|| fs::read(&disk).unwrap()[..block] == raw[..block]).await;
    plane.until(|state| state.log("l1").contains("writing")).await;
    machine.kill().await;
    let before = plane.state().log("l1");

    machine.start();
    let state = plane.until(|state| state.polls.len() > 1).await;
    assert!(state.polls[1].0.running_lease_id.starts_with("l1-"));
    plane.until(|state| state.starts.len() > 1).await;
    files.open();
    let result = plane.result("l1").await;
    assert_eq!((result.state(), result.reason.as_str()), (ActionState::Success, ""));
    assert!(fs::read(&disk).unwrap() == raw);
    let log = plane.state().log("l1");
    let after = log.strip_prefix(before.as_str()).expect("the log goes on where it was");
    assert!(after.contains("blocks fetched") && !after.contains("equal 0"), "{after}");
    let polls = plane.until(|state| state.polls.len() > 2).await.polls;
    assert_eq!(polls[2].0.running_lease_id, "", "only once");
}
