//! Damaged blocks and maps: they are named, and never written.

use sha2::{Digest, Sha256};
use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, OLD};
use crate::image_server::{ImageServer, Served};
use crate::image2disk::{disk_image, hex};
use crate::site::{BLOCK, Image, installed};
use crate::tables::partitioned;
use crate::{reason, run};

/// Number of the block that is damaged.
const DAMAGED: usize = 20;

/// Returns a server that changes a byte in the frame of a block of noise.
async fn damaging(image: &Image, is_damaged_at_source: bool) -> ImageServer {
    let stored = image.map.block(DAMAGED).unwrap().stored;
    let damaged = Some(usize::try_from(stored.start).unwrap() + 1000);
    ImageServer::serve(Served { damaged, is_damaged_at_source, ..image.served() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_a_cache_damaged_is_fetched_past_the_cache() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let server = damaging(&image, false).await;
    let (outcome, log) = installed(&server, &disk.path, &[]).await;
    assert_eq!(outcome, ActionOutcome::Success, "{log}");
    assert!(disk.content()[..image.raw.len()] == image.raw);
    let requests = server.take_requests();
    let uncached: Vec<_> = requests.into_iter().filter(|it| it.is_uncached).collect();
    let stored = image.map.block(DAMAGED).unwrap().stored;
    let frame = usize::try_from(stored.start).unwrap()..usize::try_from(stored.end).unwrap();
    assert!(matches!(uncached.as_slice(), [one] if one.range == Some(frame)), "{uncached:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_stays_damaged_is_named_and_not_written() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let server = damaging(&image, true).await;
    let reason = reason(installed(&server, &disk.path, &[]).await.0);
    let named = format!("fetched twice: block {DAMAGED} at raw byte {}: frame: ", DAMAGED * BLOCK);
    let beginning = format!("image2disk: GET {}: {named}", server.url());
    assert!(reason.starts_with(&beginning), "{reason}");
    assert!(server.take_requests().iter().any(|request| request.is_uncached));
    assert!(is_old(&disk, DAMAGED));
}

/// True if the block `index` of `disk` was not written.
fn is_old(disk: &LoopDisk, index: usize) -> bool {
    disk.content()[index * BLOCK..][..BLOCK].iter().all(|byte| *byte == OLD)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_another_image_is_named_with_both_digests() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let mut other = image.raw.clone();
    other[DAMAGED * BLOCK] ^= 1;
    let other = Image::store(other, BLOCK);
    let served = Served { stored: other.stored.clone(), ..image.served() };
    let server = ImageServer::serve(served).await;
    let (outcome, _) = installed(&server, &disk.path, &[]).await;
    let digests = [&image, &other].map(|it| it.map.block(DAMAGED).unwrap().digest.unwrap());
    let [expected, found] = digests;
    let named = format!("fetched twice: block {DAMAGED} at raw byte {}: ", DAMAGED * BLOCK);
    let digests = format!("sha256: expected {expected}: {found}");
    let sentence = format!("image2disk: GET {}: {named}{digests}", server.url());
    assert_eq!(reason(outcome), sentence);
    assert!(is_old(&disk, DAMAGED));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_first_block_leaves_the_disk_untouched() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let (damaged, is_damaged_at_source) = (Some(500), true);
    let served = Served { damaged, is_damaged_at_source, ..image.served() };
    let server = ImageServer::serve(served).await;
    let reason = reason(installed(&server, &disk.path, &[]).await.0);
    assert!(reason.contains("block 0 at raw byte 0: "), "{reason}");
    assert!(disk.is_untouched());
}

/// Returns the reason why an image is refused before the first write and request for it.
async fn refused(served: Served, disk: &LoopDisk, more: &[(&str, &str)]) -> (String, ImageServer) {
    let server = ImageServer::serve(served).await;
    let reason = reason(installed(&server, &disk.path, more).await.0);
    assert!(disk.is_untouched(), "{reason}");
    (reason, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_map_than_that_of_the_checksum_is_refused() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let (other, zero) = (hex(Sha256::digest(image.map.encode())), "0".repeat(64));
    let more = [("IMG_MAP_SHA256", &*zero)];
    let (reason, server) = refused(image.served(), &disk, &more).await;
    let mismatch = format!("the bytes downloaded have sha256:{other}, expected sha256:{zero}");
    let url = server.map_url();
    assert_eq!(reason, format!("image2disk: GET {url}: checksum mismatch: {mismatch}"));
    assert_eq!(server.take_requests(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_larger_than_the_disk_is_refused_also_with_force() {
    let (image, disk) = (Image::sparse(), LoopDisk::new(2 << 20));
    for more in [&[][..], &[("IMG_FORCE", "true"), ("IMG_ANY_CONTENT", "true")]] {
        let (reason, server) = refused(image.served(), &disk, more).await;
        let sizes = format!("holds 2097152 bytes, the image needs {}", image.raw.len());
        assert_eq!(reason, format!("image2disk: {}: too small: {sizes}", disk.path));
        assert_eq!(server.take_requests(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_maps_are_refused() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let map = image.map.encode();
    let large_blocks = Image::store(disk_image(5 << 20), 8 << 20);
    for (map, text) in [
        (b"<html>".to_vec(), ": map: "),
        (map[..map.len() / 2].to_vec(), ": map: "),
        // A further block.
        ([&map[..], &[0x32, 0]].concat(), ": map: blocks: expected 40 blocks: 41"),
        // Another size.
        ([&map[..], &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat(), ": map: blocks: "),
        // Many empty blocks.
        ([0x32, 0].repeat(8 << 20), ": map: blocks: the limit is "),
        (large_blocks.map.encode(), ": map: block_bytes: the limit is 4194304: 8388608"),
        (Image::store(Vec::new(), BLOCK).map.encode(), ": the image in this map is empty"),
    ] {
        let (reason, server) = refused(Served { map, ..image.served() }, &disk, &[]).await;
        let beginning = format!("image2disk: GET {}{text}", server.map_url());
        assert!(reason.starts_with(&beginning), "{reason}");
        assert_eq!(server.take_requests(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_over_the_limit_is_not_read_to_its_end() {
    let (image, disk) = (Image::sparse(), LoopDisk::new(4 << 20));
    let map = vec![0; (64 << 20) + 1];
    let (reason, server) = refused(Served { map, ..image.served() }, &disk, &[]).await;
    let limit = "map: size: the limit is 67108864 bytes";
    assert_eq!(reason, format!("image2disk: GET {}: {limit}", server.map_url()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_of_another_file_than_that_of_the_checksum_is_refused() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let (stored, zero) = (image.map.stored_sha256().to_string(), "0".repeat(64));
    let (reason, _) = refused(image.served(), &disk, &[("IMG_SHA256", &zero)]).await;
    let mismatch =
        format!("the bytes of the map's file have sha256:{stored}, expected sha256:{zero}");
    assert!(reason.ends_with(&format!("checksum mismatch: {mismatch}")), "{reason}");
    let server = ImageServer::serve(image.served()).await;
    let (outcome, _) = installed(&server, &disk.path, &[("IMG_CHECKSUM", &stored)]).await;
    assert_eq!(outcome, ActionOutcome::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_file_than_that_of_the_map_is_refused() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let mut stored = image.stored.clone();
    stored.push(0);
    let (reason, _) = refused(Served { stored, ..image.served() }, &disk, &[]).await;
    let lengths = (image.stored.len(), image.stored.len() + 1);
    let change = format!("was length {}, is length {}", lengths.0, lengths.1);
    assert!(reason.ends_with(&change), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_do_not_boot_are_refused_before_the_first_write() {
    let text = Image::store(b"not an image\n".repeat(100_000), BLOCK);
    let zeroes = Image::store([vec![0; BLOCK], disk_image(BLOCK)].concat(), BLOCK);
    let script = "label: gpt\\nfirst-lba: 40\\nstart=64,size=9000,type=U\\n";
    let large = Image::store(partitioned(9 << 10, 512, script)[..3 << 20].to_vec(), BLOCK);
    for (image, text) in
        [(text, "not a disk image: "), (zeroes, "only zeroes"), (large, "incomplete disk image")]
    {
        let disk = LoopDisk::new(4 << 20);
        let (reason, _) = refused(image.served(), &disk, &[]).await;
        assert!(reason.contains(text) && reason.contains("/images/os.raw.zst: "), "{reason}");
        let server = ImageServer::serve(image.served()).await;
        let any = [("IMG_ANY_CONTENT", "true")];
        assert_eq!(installed(&server, &disk.path, &any).await.0, ActionOutcome::Success);
    }
}

#[tokio::test]
async fn variables_that_contradict_a_map_are_refused() {
    let sum = "0".repeat(64);
    let place = [("IMG_URL", "http://127.0.0.1:9/a"), ("DEST_DISK", "/dev/null")];
    let map = ("IMG_MAP", "http://127.0.0.1:9/b");
    for (more, sentence) in [
        (&[map][..], "IMG_MAP_SHA256 is missing"),
        (&[("IMG_MAP_SHA256", &*sum)], "IMG_MAP is missing"),
        (
            &[map, ("IMG_MAP_SHA256", &*sum), ("COMPRESSED", "false")],
            "COMPRESSED is `false`, not `true`, which IMG_MAP requires",
        ),
    ] {
        let reason = reason(run(Builtin::Image2Disk, &[&place[..], more].concat()).await);
        assert_eq!(reason, format!("image2disk: {sentence}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_progress_the_download_fails() {
    let image = Image::sparse();
    let disk = LoopDisk::new(4 << 20);
    let cuts = [usize::MAX].into_iter().chain([0; 999]).collect();
    let server = ImageServer::serve(Served { cuts, ..image.served() }).await;
    let once = [("RETRY_ENABLED", "false")];
    let reason = reason(installed(&server, &disk.path, &once).await.0);
    assert!(reason.starts_with(&format!("image2disk: GET {}: ", server.url())), "{reason}");
}
