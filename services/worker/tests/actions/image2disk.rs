//! Images: compressed or not, with and without disconnects and holes.

use std::fs;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use worker::progress::Phase;
use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, OLD};
use crate::file_server::{FileServer, Reply};
use crate::{context, environment, run};

/// Returns pseudo-random bytes, which do not compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    let mut bytes: Vec<u8> = next.take(length.div_ceil(8)).flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// Returns an image of pseudo-random bytes with a boot sector without partitions.
pub(crate) fn disk_image(length: usize) -> Vec<u8> {
    let mut image = noise(length);
    make_bootable(&mut image);
    image
}

/// Makes the first sector of `image` a boot sector: code that begins with a jump, no partitions, and the signature.
fn make_bootable(image: &mut [u8]) {
    image[..3].copy_from_slice(&[0xeb, 0x63, 0x90]);
    image[446..510].fill(0);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
}

/// Compresses `content` with `tool`.
pub(crate) fn packed(tool: &str, content: &[u8]) -> Vec<u8> {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, content).unwrap();
    let output =
        Command::new(tool).arg("-c").arg(file.path()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    output.stdout
}

pub(crate) fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_written_exactly_in_every_format() {
    let image = disk_image(9 << 20);
    for (tool, name) in [
        ("cat", "os.img"),
        ("gzip", "os"),
        ("xz", "os.img.gz"),
        ("zstd", "os.img?x=1"),
        ("bzip2", "o"),
    ] {
        let file = if tool == "cat" { image.clone() } else { packed(tool, &image) };
        let sum = format!("sha256:{}", hex(Sha256::digest(&file)));
        let server = FileServer::serve(name, file, []).await;
        let disk = LoopDisk::new(16 << 20);
        let variables =
            [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path), ("IMG_CHECKSUM", &sum)];
        assert_eq!(run(Builtin::Image2Disk, &variables).await, ActionOutcome::Success, "{tool}");
        let content = disk.content();
        assert!(content[..image.len()] == image, "{tool}");
        assert!(
            content[image.len()..].iter().all(|byte| *byte == OLD),
            "{tool}: wrote beyond the image"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zeroes_in_an_image_erase_the_old_data() {
    let mut image = vec![0; 12 << 20];
    make_bootable(&mut image);
    image[5 << 20] = 1;
    image.extend([0; 700]);
    let server = FileServer::serve("os.img", image.clone(), []).await;
    let disk = LoopDisk::new(16 << 20);
    let variables = [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
    assert_eq!(run(Builtin::Image2Disk, &variables).await, ActionOutcome::Success);
    assert!(disk.content()[..image.len()] == image);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_is_written_once_in_spite_of_disconnects() {
    let image = disk_image(10 << 20);
    let cuts = [100, 1 << 20, 3 << 20, 5, 2 << 20].map(Reply::cut);
    let server = FileServer::serve("os.img", image.clone(), cuts).await;
    let disk = LoopDisk::new(16 << 20);
    let (written, _) = disk.sectors();
    let variables = [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
    assert_eq!(run(Builtin::Image2Disk, &variables).await, ActionOutcome::Success);
    assert!(disk.content()[..image.len()] == image);
    assert_eq!(disk.sectors().0 - written, image.len() as u64 / 512);
    assert_eq!(server.ranges().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_force_an_image_is_truncated_to_the_disk() {
    let image = disk_image(6 << 20);
    let server = FileServer::serve("os.img", image.clone(), []).await;
    let disk = LoopDisk::new(5 << 20);
    let variables =
        [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path), ("IMG_FORCE", "true")];
    assert_eq!(run(Builtin::Image2Disk, &variables).await, ActionOutcome::Success);
    assert!(disk.content() == image[..5 << 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_any_content_a_compressed_file_is_written_as_it_is() {
    let file = packed("gzip", b"not unpacked");
    let server = FileServer::serve("os.img.gz", file.clone(), []).await;
    let disk = LoopDisk::new(1 << 20);
    let place = [("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
    let any = [("COMPRESSED", "false"), ("IMG_ANY_CONTENT", "true")];
    let variables = [place, any].concat();
    assert_eq!(run(Builtin::Image2Disk, &variables).await, ActionOutcome::Success);
    assert!(disk.content()[..file.len()] == file);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reports_downloaded_and_total_bytes() {
    let image = disk_image(1 << 20);
    let server = FileServer::serve("os.img", image.clone(), []).await;
    let disk = LoopDisk::new(1 << 20);
    let (context, recorder) = context();
    let variables = environment(&[("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)]);
    assert_eq!(
        worker::run(Builtin::Image2Disk, &variables, &context).await,
        ActionOutcome::Success
    );
    let first = recorder.reports.lock().unwrap()[0].clone();
    assert_eq!((first.phase, first.done, first.total), (Phase::Writing, 1 << 20, Some(1 << 20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_action_ends_and_closes_the_disk() {
    let stalled = Reply { stall: true, ..Reply::cut(5 << 20) };
    let server = FileServer::serve("os.img", disk_image(9 << 20), [stalled]).await;
    let disk = LoopDisk::new(16 << 20);
    let (mut context, _) = context();
    context.retry_policy.stall_timeout = std::time::Duration::from_secs(3600);
    let variables = environment(&[("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)]);
    let (stop, before) = (context.stop.clone(), disk.sectors());
    let running =
        tokio::spawn(async move { worker::run(Builtin::Image2Disk, &variables, &context).await });
    let begun = async {
        while disk.sectors() == before {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), begun).await.unwrap();
    stop.cancel();
    assert_eq!(running.await.unwrap(), ActionOutcome::Cancelled);
    // A program that another test starts has copies of all descriptors until it is executed.
    let closed = async {
        while !is_unused(&disk.path) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), closed).await.unwrap();
}

/// True if nobody has the disk `path` open for itself.
fn is_unused(path: &str) -> bool {
    let flags = OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).is_ok()
}

/// Returns random responses: with disconnects, short socket writes, and with or without ranges and validators.
fn random_replies() -> impl Strategy<Value = Vec<Reply>> {
    let etag = prop_oneof![Just(Some("\"one\"")), Just(None)];
    let cuts = prop::collection::vec((0..300_000_usize, 1..70_000_usize, any::<bool>()), 0..6);
    (cuts, etag).prop_map(|(cuts, etag)| {
        let reply =
            move |(send, piece, ranges)| Reply { send, piece, ranges, etag, ..Reply::default() };
        let last = Reply { etag, ..Reply::default() };
        cuts.into_iter().map(reply).chain([last]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn after_any_disconnects_the_disk_has_the_image(
        grains in prop::collection::vec(any::<bool>(), 1..9),
        rest in 1..70_000_usize,
        tool in prop::sample::select(vec!["cat", "gzip", "zstd"]),
        replies in random_replies(),
    ) {
        let holes = |(at, hole): (usize, &bool)| if *hole { vec![0; 65_536] } else { noise(65_536 + at)[at..].to_vec() };
        let mut image: Vec<u8> = grains.iter().enumerate().flat_map(holes).collect();
        image.extend(noise(rest));
        make_bootable(&mut image);
        let file = if tool == "cat" { image.clone() } else { packed(tool, &image) };
        let disk = LoopDisk::new(1 << 20);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let outcome = runtime.block_on(async {
            let server = FileServer::serve("os.img", file, replies).await;
            run(Builtin::Image2Disk, &[("IMG_URL", &server.url), ("DEST_DISK", &disk.path)]).await
        });
        prop_assert_eq!(outcome, ActionOutcome::Success);
        let content = disk.content();
        prop_assert!(content[..image.len()] == image[..]);
        prop_assert!(content[image.len()..].iter().all(|byte| *byte == OLD));
    }
}
