//! Images with a map: only what the disk lacks is downloaded.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use worker::progress::Phase;
use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, OLD};
use crate::image_server::{ImageServer, Request, Served, requested_blocks};
use crate::image2disk::{disk_image, hex};
use crate::site::{BLOCK, Image, Site, change, installed};
use crate::tables::{check_content, check_gpt, gpt_image};
use crate::{context, environment, reason};

fn sent(requests: &[Request]) -> usize {
    requests.iter().map(|request| request.sent).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_disk_has_the_image_and_nothing_else_changes() {
    for (raw, block_bytes) in [
        (Image::sparse().raw, BLOCK),
        (disk_image(9 << 20), 4 << 20),
        (disk_image((4 << 20) + 512), 4 << 20),
        (disk_image(3 * BLOCK + 4097), BLOCK),
        (disk_image(512), 4 << 20),
    ] {
        let (image, disk) = (Image::store(raw, block_bytes), LoopDisk::new(16 << 20));
        let server = ImageServer::serve(image.served()).await;
        let (outcome, log) = installed(&server, &disk.path, &[]).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        let content = disk.content();
        assert!(content[..image.raw.len()] == image.raw);
        assert!(content[image.raw.len()..].iter().all(|byte| *byte == OLD));
    }
}

#[tokio::test]
async fn an_installation_works_with_one_thread_for_connections() {
    let Site { image, disk, server } = Site::new().await;
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    assert!(disk.content()[..image.raw.len()] == image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_counts_blocks_and_downloaded_bytes() {
    let Site { image, disk, server } = Site::new().await;
    let (_, log) = installed(&server, &disk.path, &[]).await;
    let frames = image.map.blocks().filter(|block| block.digest.is_some());
    let bytes: u64 = frames.map(|block| block.stored.end - block.stored.start).sum();
    let line = format!(
        "verified {} bytes from {bytes} downloaded bytes: blocks fetched 31, equal 0, zero 9\n",
        image.raw.len()
    );
    assert_eq!(log, line);
    let (_, log) = installed(&server, &disk.path, &[]).await;
    assert!(
        log.ends_with("from 0 downloaded bytes: blocks fetched 0, equal 31, zero 9\n"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbouring_blocks_are_requested_together() {
    let (image, disk) = (Image::store(disk_image(40 << 20), 4 << 20), LoopDisk::new(40 << 20));
    let server = ImageServer::serve(image.served()).await;
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    let requests = server.take_requests();
    // The first block is checked before the others are requested. Three frames of noise have
    // 12 MiB, four have slightly more than 16.
    assert_eq!(requests.len(), 4, "{requests:?}");
    assert!(requests.iter().all(|request| request.sent <= 16 << 20));
    assert!(disk.content() == image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reinstallation_writes_and_downloads_nothing() {
    let Site { image: _, disk, server } = Site::new().await;
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    server.take_requests();
    let before = disk.sectors();
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    assert_eq!(server.take_requests(), []);
    assert_eq!(disk.sectors(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_partition_table_is_that_of_the_image() {
    for sector in [512, 4096] {
        let image = Image::store(gpt_image(sector, 1024), BLOCK);
        let server = ImageServer::serve(image.served()).await;
        let disk = LoopDisk::with_sectors(4 << 20, sector);
        let (outcome, log) = installed(&server, &disk.path, &[]).await;
        assert_eq!(outcome, ActionOutcome::Success, "{log}");
        assert!(log.contains("\nbackup GPT moved to the end of the disk, sector "), "{log}");
        server.take_requests();
        let (before, content) = (disk.sectors(), disk.content());
        let (outcome, log) = installed(&server, &disk.path, &[]).await;
        assert_eq!((outcome, log.lines().count()), (ActionOutcome::Success, 1), "{log}");
        assert_eq!(server.take_requests(), []);
        assert_eq!(disk.sectors(), before);
        assert!(disk.content() == content);
        assert_eq!(check_gpt(&disk.path, sector).len(), 1);
        check_content(&content, &image.raw, usize::try_from(sector).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_backup_is_made_anew_by_a_reinstallation() {
    let image = Image::store(gpt_image(512, 1024), BLOCK);
    let server = ImageServer::serve(image.served()).await;
    let disk = LoopDisk::new(4 << 20);
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    change(&disk, (4 << 20) - 512, &[0; 512]);
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    assert_eq!(check_gpt(&disk.path, 512).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changed_blocks_are_downloaded_and_written() {
    let Site { image, disk, server } = Site::new().await;
    assert_eq!(installed(&server, &disk.path, &[]).await.0, ActionOutcome::Success);
    server.take_requests();
    // Used blocks: neighbours, and the short last one; and a block of zeroes.
    for block in [4, 5, 11, 39] {
        change(&disk, block * BLOCK as u64 + 512, b"changed");
    }
    let before = disk.sectors().0;
    let (outcome, log) = installed(&server, &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(log.contains(": blocks fetched 3, equal 28, zero 9\n"), "{log}");
    assert!(disk.content()[..image.raw.len()] == image.raw);
    let requests = server.take_requests();
    assert_eq!((requests.len(), requested_blocks(&image.map, &requests)), (2, vec![4, 5, 39]));
    // The kernel counts zeroed sectors, too.
    assert!((disk.sectors().0 - before) * 512 <= 4 * BLOCK as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_equal_sample_everything_is_written() {
    // Old data in most blocks, but the content of the image in blocks that are not sampled.
    let Site { image, disk, server } = Site::new().await;
    let odd: Vec<_> = image.used().into_iter().skip(1).step_by(2).collect();
    for index in odd {
        let at = index * BLOCK;
        change(&disk, at as u64, &image.raw[at..image.raw.len().min(at + BLOCK)]);
    }
    let (outcome, log) = installed(&server, &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(log.contains(": blocks fetched 31, equal 0, zero 9\n"), "{log}");
    assert!(disk.content()[..image.raw.len()] == image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_download_goes_on_at_the_next_byte() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let cuts = [1000, 70_000, 500_000, 1].into();
    let server = ImageServer::serve(Served { cuts, ..image.served() }).await;
    let (outcome, log) = installed(&server, &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    assert!(disk.content()[..image.raw.len()] == image.raw);
    let frames = image.map.blocks().filter(|block| block.digest.is_some());
    let bytes: u64 = frames.map(|block| block.stored.end - block.stored.start).sum();
    // Frames of zeroes between others are requested, too, if they are short.
    let gaps = image.map.blocks().filter(|block| block.digest.is_none());
    let gaps: u64 = gaps.map(|block| block.stored.end - block.stored.start).sum();
    let requested = sent(&server.take_requests()) as u64;
    assert!((bytes..=bytes + gaps).contains(&requested), "{requested}, {bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_ranges_sends_the_file_once() {
    for (cuts, requests) in [(vec![], 1), (vec![900_000], 2)] {
        let image = Image::sparse();
        let disk = LoopDisk::new(4 << 20);
        // Blocks between two ranges.
        let equal = 4 * BLOCK..8 * BLOCK;
        change(&disk, equal.start as u64, &image.raw[equal]);
        let any = [("IMG_ANY_CONTENT", "true")];
        let served = Served { sends_whole_file: true, cuts: cuts.into(), ..image.served() };
        let server = ImageServer::serve(served).await;
        assert_eq!(installed(&server, &disk.path, &any).await.0, ActionOutcome::Success);
        assert!(disk.content()[..image.raw.len()] == image.raw);
        assert_eq!(server.take_requests().len(), requests);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_attempt_downloads_only_what_the_disk_lacks() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let gate = Arc::new(Semaphore::new(0));
    // The first response has the first block, which is requested alone.
    let cuts = [usize::MAX, 1_000_000].into();
    let served = Served { cuts, gate: Some(gate.clone()), ..image.served() };
    let server = ImageServer::serve(served).await;
    gate.add_permits(1);
    let opening = async {
        // The connection is cut once the disk has some of the blocks.
        while image.differing(&disk.content()).len() > 30 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gate.add_permits(1);
    };
    let once = [("RETRY_ENABLED", "false")];
    let attempt = async { tokio::join!(installed(&server, &disk.path, &once), opening) };
    let ((outcome, _), ()) = tokio::time::timeout(Duration::from_secs(60), attempt).await.unwrap();
    assert!(reason(outcome).contains(&server.url()));

    let zero = |index: &usize| image.map.block(*index).unwrap().digest.is_none();
    let missing = image.differing(&disk.content());
    let missing: Vec<_> = missing.into_iter().filter(|index| !zero(index)).collect();
    assert!(!missing.is_empty() && missing.len() <= 30);
    server.take_requests();
    let (outcome, log) = installed(&server, &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    let requests = server.take_requests();
    assert_eq!(requested_blocks(&image.map, &requests), missing);
    let frames = missing.iter().map(|index| image.map.block(*index).unwrap().stored);
    let bytes: u64 = frames.map(|stored| stored.end - stored.start).sum();
    assert!(log.contains(&format!(" from {bytes} downloaded bytes: ")), "{log}");
    assert!(disk.content()[..image.raw.len()] == image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_shorter_than_the_image_grows() {
    let image = Image::sparse();
    let server = ImageServer::serve(image.served()).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&image.raw[..2 * BLOCK], 0).unwrap();
    let path = file.path().to_str().unwrap();
    let (outcome, log) = installed(&server, path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    assert!(log.contains(": blocks fetched 29, equal 2, zero 9\n"), "{log}");
    assert!(std::fs::read(path).unwrap() == image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_completed_with_the_origin_of_the_boot_server() {
    let Site { image, disk, server } = Site::new().await;
    let (mut context, _) = context();
    context.boot_server = Some(format!("{}/v1/boot/TOKEN", server.origin).parse().unwrap());
    let sum = format!("sha256:{}", hex(Sha256::digest(image.map.encode())));
    let variables = environment(&[
        ("IMG_URL", "/images/os.raw.zst"),
        ("IMG_MAP", "/images/os.map"),
        ("IMG_MAP_SHA256", &sum),
        ("DEST_DISK", &disk.path),
    ]);
    let outcome = worker::run(Builtin::Image2Disk, &variables, &context).await;
    assert_eq!(outcome, ActionOutcome::Success);
    assert!(disk.content()[..image.raw.len()] == image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_counts_the_bytes_of_the_image() {
    let Site { image, disk, server } = Site::new().await;
    let (context, recorder) = context();
    let (url, map_url) = (server.url(), server.map_url());
    let sum = hex(Sha256::digest(image.map.encode()));
    let map = [("IMG_MAP", &*map_url), ("IMG_MAP_SHA256", &sum)];
    let place = [("IMG_URL", &*url), ("DEST_DISK", &disk.path)];
    let variables = environment(&[map, place].concat());
    let outcome = worker::run(Builtin::Image2Disk, &variables, &context).await;
    assert_eq!(outcome, ActionOutcome::Success);
    let reports = recorder.reports.lock().unwrap();
    assert!(reports.iter().all(|it| it.phase == Phase::Writing));
    assert!(reports.iter().all(|it| it.total == Some(image.raw.len() as u64)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_installation_ends_and_closes_the_disk() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let gate = Arc::new(Semaphore::new(0));
    let served = Served { cuts: [1000].into(), gate: Some(gate), ..image.served() };
    let server = ImageServer::serve(served).await;
    let (mut context, _) = context();
    context.retry_policy.stall_timeout = Duration::from_secs(3600);
    let (url, map_url) = (server.url(), server.map_url());
    let sum = hex(Sha256::digest(image.map.encode()));
    let map = [("IMG_MAP", &*map_url), ("IMG_MAP_SHA256", &sum)];
    let variables =
        environment(&[&map[..], &[("IMG_URL", &*url), ("DEST_DISK", &disk.path)]].concat());
    let stop = context.stop.clone();
    let running =
        tokio::spawn(async move { worker::run(Builtin::Image2Disk, &variables, &context).await });
    let requested = async {
        while server.take_requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), requested).await.unwrap();
    stop.cancel();
    assert_eq!(running.await.unwrap(), ActionOutcome::Cancelled);
    assert!(disk.is_untouched());
}
