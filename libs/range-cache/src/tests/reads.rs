//! Readers and fetches: who fetches, who waits, and what they get.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::sim_origin::{OriginFault, content, size};
use super::site::{RANGE, Site, turns};
use crate::origin::OriginError;
use crate::{CacheUsage, Freshness};

const FILE: &str = "a-75";
/// Bytes of the file.
const BYTES: u64 = 75 * 64;

#[tokio::test]
async fn two_machines_read_and_the_origin_sends_each_byte_once() {
    let site = Site::new(u64::MAX);
    let (one, two) = tokio::join!(site.read_all(FILE), site.read_all(FILE));
    assert_eq!((one, two, site.origin.times(FILE)), (Ok(BYTES), Ok(BYTES), (1, 1)));
    let usage = CacheUsage {
        hit_bytes: BYTES,
        origin_bytes: BYTES,
        stored_bytes: BYTES,
        ..CacheUsage::default()
    };
    assert_eq!(site.cache.usage(), usage);
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    assert_eq!(site.cache.usage(), CacheUsage { hit_bytes: 2 * BYTES, ..usage });
}

#[tokio::test(start_paused = true)]
async fn a_reader_gets_bytes_while_their_range_is_fetched() {
    let (site, start) = (Site::new(u64::MAX), Instant::now());
    site.origin.state().gate = Some(Arc::new(Semaphore::new(0)));
    let file = site.cache.file(FILE, Arc::new(site.origin.clone())).await.unwrap();
    let mut first = pin!(file.read(0..BYTES, Freshness::Cached));
    let mut second = pin!(file.read(0..BYTES, Freshness::Cached));
    // Pieces of at most 300 bytes: enough for a write, too few for the range.
    site.origin.send(3);
    for reader in [first.as_mut(), second.as_mut()] {
        let mut reader = reader;
        let bytes = reader.next().await.unwrap().unwrap();
        assert_eq!(bytes, content(FILE, 0..bytes.len() as u64));
    }
    assert!(site.origin.state().sent_bytes < RANGE);
    // The clock is simulated, and stands unless all tasks wait for it.
    assert_eq!(start.elapsed().as_secs(), 0);
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_no_fetch() {
    for others in [0, 1] {
        let site = Site::new(u64::MAX);
        site.origin.state().gate = Some(Arc::new(Semaphore::new(0)));
        let reader = |site: &Site| {
            let site = site.clone();
            tokio::spawn(async move { site.read(FILE, 0..RANGE, Freshness::Cached).await })
        };
        let gone = reader(&site);
        turns(20).await;
        let others: Vec<_> = (0..others).map(|_| reader(&site)).collect();
        site.origin.send(2);
        turns(20).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        site.origin.send(10_000);
        for other in others {
            assert_eq!(other.await.unwrap(), Ok(RANGE));
        }
        site.idle().await;
        assert_eq!(site.read(FILE, 0..RANGE, Freshness::Cached).await, Ok(RANGE));
        assert_eq!(site.origin.state().sent_bytes, RANGE);
    }
}

#[tokio::test]
async fn a_fetch_goes_on_where_the_connection_broke() {
    let site = Site::new(u64::MAX);
    site.origin.state().faults = (vec![OriginFault::Broken], 100);
    let (read, error) = site.read_all(FILE).await.unwrap_err();
    assert_eq!(error, OriginError::Unavailable("broken".into()));
    assert_eq!(read, site.origin.state().sent_bytes);
    site.origin.state().faults.1 = 0;
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    assert_eq!(site.origin.times(FILE), (1, 1));
}

#[tokio::test]
async fn a_response_of_another_length_is_an_error_and_is_not_stored() {
    for fault in [OriginFault::TooShort, OriginFault::TooLong, OriginFault::OtherSize] {
        let site = Site::new(u64::MAX);
        site.origin.state().faults = (vec![fault], 100);
        let (read, error) = site.read_all(FILE).await.unwrap_err();
        assert!(matches!(error, OriginError::WrongLength { .. }), "{error}");
        site.origin.state().faults.1 = 0;
        assert_eq!(site.read_all(FILE).await, Ok(BYTES));
        site.idle().await;
        let sent = site.origin.state().sent_bytes;
        assert!(sent >= BYTES + read, "{fault:?}: {sent}");
        assert_eq!(site.read_all(FILE).await, Ok(BYTES));
        assert_eq!(site.origin.state().sent_bytes, sent);
    }
}

#[tokio::test]
async fn a_file_with_another_size_than_at_the_origin_is_replaced() {
    let site = Site::new(u64::MAX);
    let created = site.cache.files.create(FILE, BYTES - 64).unwrap();
    drop(created);
    let (read, error) = site.read(FILE, 0..64, Freshness::Cached).await.unwrap_err();
    let expected = OriginError::WrongLength { expected: BYTES - 64, found: BYTES };
    assert_eq!((read, error), (0, expected));
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
}

#[tokio::test(start_paused = true)]
async fn a_silent_origin_is_unavailable() {
    let site = Site::new(u64::MAX);
    site.origin.state().faults = (vec![OriginFault::Silent], 100);
    let start = Instant::now();
    let (_, error) = site.read_all(FILE).await.unwrap_err();
    assert_eq!(error, OriginError::Unavailable("no bytes for 30 seconds".into()));
    // The clock is simulated.
    assert_eq!(start.elapsed().as_secs(), 30);
    site.origin.state().faults.1 = 0;
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    assert_eq!(site.origin.times(FILE), (1, 1));
}

#[tokio::test]
async fn wrong_bytes_on_disk_are_replaced_for_a_reader_that_found_them() {
    let site = Site::new(u64::MAX);
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    site.idle().await;
    site.disk.corrupt("a-75.cache-data");
    assert_ne!(site.bytes(FILE).await, content(FILE, 0..BYTES));
    // A byte of the second range is enough.
    assert_eq!(site.read(FILE, RANGE..RANGE + 1, Freshness::Refetched).await, Ok(1));
    site.idle().await;
    assert_eq!(site.read(FILE, RANGE..2 * RANGE, Freshness::Cached).await, Ok(RANGE));
    assert_eq!(site.origin.state().sent_bytes, BYTES + RANGE);
    assert_eq!(site.read(FILE, 0..BYTES, Freshness::Refetched).await, Ok(BYTES));
    site.idle().await;
    assert_eq!(site.read_all(FILE).await, Ok(BYTES));
    assert_eq!(site.origin.state().sent_bytes, BYTES + RANGE + BYTES);
}

#[tokio::test]
async fn names_and_ranges_that_do_not_exist_have_no_bytes() {
    let site = Site::new(u64::MAX);
    for name in ["none-1", "", ".a-1", "../a-1", "a/b-1", "lock/", &"a".repeat(201)] {
        assert_eq!(site.read(name, 0..1, Freshness::Cached).await, Err((0, OriginError::NotFound)));
    }
    let file = site.cache.file(FILE, Arc::new(site.origin.clone())).await.unwrap();
    assert_eq!(file.size(), size(FILE));
    for range in [BYTES..BYTES + 1, 7..7, u64::MAX - 1..u64::MAX] {
        assert!(pin!(file.read(range, Freshness::Cached)).next().await.is_none());
    }
    assert_eq!(site.read("empty-0", 0..9, Freshness::Cached).await, Ok(0));
}
