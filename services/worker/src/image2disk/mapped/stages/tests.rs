use std::io::Write as _;
use std::num::NonZero;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use stored_image::{CheckedMap, Encoder, EncoderSettings};
use tempfile::NamedTempFile;
use tokio::runtime::{Handle, Runtime};

use super::*;
use crate::disk::Disk;
use crate::download::{RangeSource, RetryPolicy};
use crate::image2disk::mapped::tally::Tally;
use crate::progress::{Meter, Progress, Report};

/// Size of a block.
const BLOCK: u32 = 64 << 10;

#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn report(&self, _: Report) {}
}

/// A file with three blocks, the second of zeroes, and the last of 700 bytes.
struct Site {
    file: NamedTempFile,
    target: MappedDisk,
    source: RangeSource,
    stop: CancellationToken,
    runtime: Runtime,
}

impl Site {
    fn new() -> Self {
        let file = NamedTempFile::new().unwrap();
        let url = "http://127.0.0.1:9/os".parse().unwrap();
        let meter = Meter::new(Arc::new(Silent), Duration::ZERO);
        let target = MappedDisk {
            disk: Disk::open(file.path(), false).unwrap(),
            map: map(),
            tally: Arc::new(Tally::new(meter, 0)),
        };
        let source = RangeSource::new(&[], url, RetryPolicy::default(), 0).unwrap();
        let (stop, runtime) = (CancellationToken::new(), Runtime::new().unwrap());
        Self { file, target, source, stop, runtime }
    }

    fn with<T>(&self, verify: bool, test: impl FnOnce(Stages<'_>) -> T) -> T {
        let (target, source, stop) = (&self.target, &self.source, &self.stop);
        let runtime: &Handle = self.runtime.handle();
        let file = StoredFile { target, source, url: "http://127.0.0.1:9/os", stop, runtime };
        test(Stages { target, file, verify, stop })
    }

    /// Writes the blocks 0 and 2 and zeroes the block 1, changes the byte at `at`, then reads back.
    fn read_back(&self, at: u64, verify: bool) -> Result<(), ActionError> {
        let (decoded_in, decoded) = sync_channel(2);
        let (empty, _empty_out) = sync_channel(2);
        let (written_in, written) = sync_channel(3);
        for (index, length) in [(0, BLOCK as usize), (2, 700)] {
            let mut content = Block::new();
            content.space(length).fill(7);
            decoded_in.send(DecodedBlock::new(index, content)).unwrap();
        }
        drop(decoded_in);
        self.with(verify, |stages| {
            stages.write(decoded, empty, written_in.clone())?;
            stages.zero(&[1], written_in)?;
            self.file.as_file().write_all_at(&[9], at).unwrap();
            let unflushed = stages.read_back(written)?;
            stages.verify_flushed(&unflushed)
        })
    }
}

fn map() -> CheckedMap {
    let settings = EncoderSettings { level: 1, threads: NonZero::<usize>::MIN, block_bytes: BLOCK };
    let mut encoder = Encoder::start(Vec::new(), &settings).unwrap();
    let data = |length: usize| vec![7; length];
    let raw = [data(BLOCK as usize), vec![0; BLOCK as usize], data(700)].concat();
    encoder.write_all(&raw).unwrap();
    encoder.finish().unwrap().map
}

#[test]
fn a_byte_that_changes_on_the_disk_is_found_and_its_block_named() {
    for (at, place) in [
        (1, "block 0: {}: verification failed: bytes 0 to 65536"),
        (70_000, "block 1: {}: verification failed: bytes 65536 to 131072"),
        (131_072 + 699, "block 2: {}: verification failed: bytes 131072 to 131772"),
    ] {
        let site = Site::new();
        let error = site.read_back(at, true).unwrap_err();
        let place = place.replace("{}", &site.file.path().display().to_string());
        let line = crate::error::one_line(&error);
        assert_eq!(line, format!("{place} differ from the data written"));
    }
}

#[test]
fn blocks_behind_the_page_cache_are_read_back_after_the_flush() {
    let site = Site::new();
    site.target.disk.write(0, &[7; BLOCK as usize]).unwrap();
    let fingerprint = fingerprint(&[7; BLOCK as usize]);
    let block = WrittenBlock { index: 0, fingerprint, origin: Origin::Fetched };
    site.with(true, |stages| stages.verify_flushed(&[block])).unwrap();
    site.file.as_file().write_all_at(&[9], 5).unwrap();
    let error = site.with(true, |stages| stages.verify_flushed(&[block])).unwrap_err();
    assert_eq!(error.to_string(), "block 0");
}

#[test]
fn without_verification_nothing_is_read_back() {
    Site::new().read_back(1, false).unwrap();
}

#[test]
fn after_a_cancellation_nothing_is_written() {
    let site = Site::new();
    site.stop.cancel();
    assert!(matches!(site.read_back(0, true), Err(ActionError::Cancelled)));
    assert_eq!(site.file.as_file().metadata().unwrap().len(), 0);
}

#[test]
fn the_cause_of_a_failure_is_reported_and_not_its_consequences() {
    let cause = || Err(ActionError::UnknownLength("http://a".into()));
    let consequences = || [Err(ActionError::Stopped), Err(ActionError::Cancelled), Ok(())];
    let ends = consequences().into_iter().chain([cause(), Err(ActionError::Cancelled)]);
    assert!(matches!(first_cause(ends), Err(ActionError::UnknownLength(_))));
    assert!(matches!(first_cause(consequences()), Err(ActionError::Cancelled)));
    assert!(first_cause([Ok(())]).is_ok());
}
