//! A disk, a stored image for it, and installations by its map.

use std::fs::File;
use std::io::Write as _;
use std::num::NonZero;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use sha2::{Digest, Sha256};
use stored_image::{CheckedMap, Encoder, EncoderSettings};
use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::image_server::{ImageServer, Served};
use crate::image2disk::{disk_image, hex};
use crate::{context, environment};

/// Size of the blocks of most tests.
pub(crate) const BLOCK: usize = 64 << 10;

/// A stored image.
pub(crate) struct Image {
    pub(crate) raw: Vec<u8>,
    pub(crate) stored: Vec<u8>,
    pub(crate) map: CheckedMap,
}

impl Image {
    /// Stores `raw` in blocks of `block_bytes` bytes.
    pub(crate) fn store(raw: Vec<u8>, block_bytes: usize) -> Self {
        let (threads, block_bytes) =
            (NonZero::new(2).unwrap(), u32::try_from(block_bytes).unwrap());
        let settings = EncoderSettings { level: 1, threads, block_bytes };
        let mut stored = Vec::new();
        let mut encoder = Encoder::start(&mut stored, &settings).unwrap();
        encoder.write_all(&raw).unwrap();
        let map = encoder.finish().unwrap().map;
        Self { raw, stored, map }
    }

    /// An image of 40 blocks: the blocks 8 to 15 and 30 are zero, and the last one is short.
    pub(crate) fn sparse() -> Self {
        let mut raw = disk_image(39 * BLOCK + 1536);
        raw[8 * BLOCK..16 * BLOCK].fill(0);
        raw[30 * BLOCK..31 * BLOCK].fill(0);
        Self::store(raw, BLOCK)
    }

    pub(crate) fn served(&self) -> Served {
        Served { stored: self.stored.clone(), map: self.map.encode(), ..Served::default() }
    }

    /// Returns the numbers of the blocks that differ on `disk`.
    pub(crate) fn differing(&self, disk: &[u8]) -> Vec<usize> {
        let range = |raw: &std::ops::Range<u64>| {
            usize::try_from(raw.start).unwrap()..usize::try_from(raw.end).unwrap()
        };
        let blocks = self.map.blocks().map(|block| (block.index, range(&block.raw)));
        let differs = |(_, raw): &(usize, std::ops::Range<usize>)| {
            disk.get(raw.clone()) != Some(&self.raw[raw.clone()])
        };
        blocks.filter(differs).map(|(index, _)| index).collect()
    }

    /// Returns the numbers of the blocks that are not zero.
    pub(crate) fn used(&self) -> Vec<usize> {
        let used = self.map.blocks().filter(|block| block.digest.is_some());
        used.map(|block| block.index).collect()
    }
}

/// A disk with old data, and a server with an image for it.
pub(crate) struct Site {
    pub(crate) image: Image,
    pub(crate) disk: LoopDisk,
    pub(crate) server: ImageServer,
}

impl Site {
    pub(crate) async fn new() -> Self {
        let image = Image::sparse();
        let server = ImageServer::serve(image.served()).await;
        Self { image, disk: LoopDisk::new(4 << 20), server }
    }
}

/// Installs the image of `server` on the disk at `path`. Returns the outcome and the log.
pub(crate) async fn installed(
    server: &ImageServer,
    path: &str,
    more: &[(&str, &str)],
) -> (ActionOutcome, String) {
    let installing = async {
        loop {
            let (outcome, log) = installed_once(server, path, more).await;
            // A program that another test starts has copies of all descriptors until it is
            // executed, also those of an installation before.
            let is_held = |reason: &str| reason.contains("in use: another program");
            if !matches!(&outcome, ActionOutcome::Failure(reason) if is_held(reason)) {
                return (outcome, log);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), installing).await.unwrap()
}

async fn installed_once(
    server: &ImageServer,
    path: &str,
    more: &[(&str, &str)],
) -> (ActionOutcome, String) {
    let (context, recorder) = context();
    let (url, map_url) = (server.url(), server.map_url());
    let sum = hex(Sha256::digest(&server.served.lock().unwrap().map));
    let place = [("IMG_URL", &*url), ("DEST_DISK", path), ("IMG_MAP", &map_url)];
    let variables = environment(&[&place[..], &[("IMG_MAP_SHA256", &sum)], more].concat());
    let outcome = worker::run(Builtin::Image2Disk, &variables, &context).await;
    let log = String::from_utf8(recorder.output.lock().unwrap().clone()).unwrap();
    (outcome, log)
}

/// Overwrites a part of `disk`.
pub(crate) fn change(disk: &LoopDisk, at: u64, bytes: &[u8]) {
    let device = File::options().write(true).open(&disk.path).unwrap();
    device.write_all_at(bytes, at).unwrap();
    device.sync_all().unwrap();
}
