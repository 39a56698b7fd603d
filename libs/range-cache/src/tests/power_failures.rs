//! Starts after a power failure.

use std::ops::Range;
use std::sync::Arc;

use futures_util::StreamExt as _;
use tokio::sync::Semaphore;

use super::site::{RANGE, Site, turns};
use crate::Freshness;
use crate::disk::CacheDisk as _;
use crate::entry::{data_name, record_name};

const FILE: &str = "a-32";
/// Bytes of the file: two ranges.
const BYTES: u64 = 2 * RANGE;

#[tokio::test]
async fn a_failed_sync_is_reported_to_each_fetch_and_none_is_recorded() {
    let site = Site::new(u64::MAX);
    let gate = Arc::new(Semaphore::new(0));
    site.origin.state().gate = Some(gate.clone());
    let file = site.cache.file(FILE, Arc::new(site.origin.clone())).await.unwrap();
    let read = |range: Range<u64>| {
        let pieces = file.read(range, Freshness::Cached);
        tokio::spawn(pieces.for_each(async |piece| drop(piece.unwrap())))
    };
    let both = [read(0..RANGE), read(RANGE..BYTES)];
    turns(20).await;
    site.disk.state().failing_syncs = 1;
    gate.add_permits(10_000);
    for reader in both {
        reader.await.unwrap();
    }
    site.idle().await;
    assert_eq!(site.cache.usage().disk_failures, 2);
    site.disk.cut_power();
    let site = site.restarted(u64::MAX);
    assert_eq!(site.cache.usage().stored_bytes, 0);
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
}

#[tokio::test]
async fn a_range_that_is_being_replaced_is_not_served_after_a_power_failure() {
    let site = Site::new(u64::MAX);
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    site.idle().await;
    site.origin.state().gate = Some(Arc::new(Semaphore::new(2)));
    let reading = site.clone();
    let reader =
        tokio::spawn(async move { reading.read(FILE, 0..RANGE, Freshness::Refetched).await });
    turns(200).await;
    reader.abort();
    site.disk.cut_power();
    let site = site.restarted(u64::MAX);
    assert_eq!(site.cache.usage().stored_bytes, RANGE);
    site.origin.state().gate = None;
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
}

#[tokio::test]
async fn a_file_whose_record_is_torn_is_removed() {
    let site = Site::new(u64::MAX);
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    site.idle().await;
    site.disk.corrupt(&record_name(FILE));
    let site = site.restarted(u64::MAX);
    assert_eq!((site.cache.usage().stored_bytes, site.disk.all_names()), (0, Vec::new()));
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    assert_eq!(site.origin.times(FILE), (2, 2));
}

#[tokio::test]
async fn a_record_or_bytes_alone_are_removed_and_files_of_others_are_not() {
    let site = Site::new(u64::MAX);
    for name in [FILE, "b-32"] {
        assert_eq!(site.read_all(name).await, Ok(BYTES));
    }
    site.idle().await;
    site.disk.remove(&record_name(FILE)).unwrap();
    site.disk.remove(&data_name("b-32")).unwrap();
    for name in ["x.cache-ranges.new", "notes.txt"] {
        site.disk.open(name, true).unwrap();
    }
    let site = site.restarted(u64::MAX);
    assert_eq!(site.disk.all_names(), ["notes.txt"]);
    assert_eq!(site.cache.usage().stored_bytes, 0);
}
