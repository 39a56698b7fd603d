//! A cache in a directory of the host.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::random::Random;
use super::sim_disk::SimDisk;
use super::sim_origin::SimOrigin;
use super::site::Site;
use crate::disk::{CacheDisk as _, LockedDirectory};
use crate::files::CacheLimits;
use crate::{Cache, Freshness};

/// Bytes of a range: blocks of the file system.
const RANGE: u64 = 64 * 1024;
/// Files of four ranges.
const FILES: [&str; 2] = ["a-4096", "b-4096"];
/// Bytes of a file.
const BYTES: u64 = 4 * RANGE;

/// Opens the cache in `directory`, with an origin that has sent nothing.
fn site(directory: &Path, max_bytes: u64) -> Site {
    let limits = CacheLimits { max_bytes, range_bytes: RANGE, piece_bytes: 10_000 };
    let disk = Arc::new(LockedDirectory::open(directory).unwrap());
    let cache = Cache::restore(disk, limits).unwrap();
    Site { disk: SimDisk::new(Random(1)), origin: SimOrigin::new(Random(2)), cache }
}

/// Ends the cache. Jobs that have answered may have it for a moment.
async fn close(site: Site) {
    let files = Arc::downgrade(&site.cache.files);
    drop(site);
    for _ in 0..10_000 {
        if files.strong_count() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the cache stays open");
}

/// Returns the bytes that the files with bytes in `directory` have on disk.
fn allocated(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let files = files.filter(|file| file.file_name().to_str().unwrap().ends_with("-data"));
    files.map(|file| 512 * file.metadata().unwrap().blocks()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_are_stored_and_found_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/cache");
    let first = site(&path, u64::MAX);
    let read = |range| first.read("a-4096", range, Freshness::Cached);
    let all = tokio::join!(read(0..BYTES), read(0..BYTES), read(RANGE..RANGE + 9));
    assert_eq!(all, (Ok(BYTES), Ok(BYTES), Ok(9)));
    assert_eq!(first.read("b-4096", BYTES - 1..BYTES, Freshness::Refetched).await, Ok(1));
    first.idle().await;
    assert_eq!(first.origin.state().sent_bytes, BYTES + RANGE);
    let second = LockedDirectory::open(&path).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    close(first).await;
    let site = site(&path, u64::MAX);
    assert_eq!(site.cache.usage().stored_bytes, BYTES + RANGE);
    assert_eq!(
        (site.read_all("a-4096").await, site.read_all("b-4096").await),
        (Ok(BYTES), Ok(BYTES))
    );
    assert_eq!((site.origin.times("a-4096"), site.origin.state().sent_bytes), ((0, 0), 3 * RANGE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_files_of_a_directory_stay_within_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path(), BYTES + RANGE);
    for name in FILES.into_iter().cycle().take(6) {
        assert_eq!(site.read_all(name).await, Ok(BYTES));
        site.idle().await;
        assert!(allocated(directory.path()) <= BYTES + RANGE);
    }
    let usage = site.cache.usage();
    assert!(usage.evictions > 0 && usage.disk_failures == 0, "{usage:?}");
}

#[tokio::test]
async fn space_of_ranges_that_are_not_recorded_is_released_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let first = site(directory.path(), u64::MAX);
    assert_eq!(first.read("a-4096", 0..1, Freshness::Cached).await, Ok(1));
    first.idle().await;
    close(first).await;
    let disk = LockedDirectory::open(directory.path()).unwrap();
    let data = disk.open("a-4096.cache-data", false).unwrap();
    data.allocate(RANGE..BYTES).unwrap();
    drop((data, disk));
    assert_eq!(allocated(directory.path()), BYTES);
    let site = site(directory.path(), u64::MAX);
    assert_eq!((allocated(directory.path()), site.cache.usage().stored_bytes), (RANGE, RANGE));
    fs::write(directory.path().join("a-4096.cache-data"), "short").unwrap();
    close(site).await;
    assert_eq!(self::site(directory.path(), u64::MAX).cache.usage().stored_bytes, 0);
}
