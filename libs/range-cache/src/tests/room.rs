//! The limit, and disks that are full or fail.

use std::sync::Arc;

use super::sim_disk::BLOCK;
use super::site::{RANGE, Site};
use crate::Freshness;
use crate::entry::DATA_SUFFIX;

/// Files of two ranges each.
const FILES: [&str; 4] = ["a-32", "b-32", "c-32", "d-32"];
/// Bytes of a file.
const BYTES: u64 = 2 * RANGE;

impl Site {
    /// Reads the whole of `name`, and returns the number of bytes that the origin sent for it.
    async fn sent_for(&self, name: &str) -> u64 {
        let before = self.origin.state().sent_bytes;
        assert_eq!(self.read_all(name).await, Ok(BYTES));
        self.idle().await;
        self.origin.state().sent_bytes - before
    }
}

#[tokio::test]
async fn the_file_that_was_opened_longest_ago_makes_room() {
    let site = Site::new(3 * BYTES);
    for name in ["a-32", "b-32", "c-32"] {
        assert_eq!(site.sent_for(name).await, BYTES);
    }
    assert_eq!(site.sent_for("a-32").await, 0);
    assert_eq!(site.sent_for("d-32").await, BYTES);
    assert_eq!(site.cache.usage().evictions, 1);
    // The order is that of the use also after a start.
    let site = site.restarted(3 * BYTES);
    for (name, sent) in [("b-32", BYTES), ("a-32", 0), ("d-32", 0), ("c-32", BYTES)] {
        assert_eq!(site.sent_for(name).await, sent, "{name}");
    }
    assert_eq!(site.disk.state().allocated(DATA_SUFFIX), 3 * BYTES);
}

#[tokio::test]
async fn open_files_are_not_removed_and_what_has_no_room_is_passed_on() {
    let site = Site::new(BYTES + RANGE);
    let open = site.cache.file("a-32", Arc::new(site.origin.clone())).await.unwrap();
    assert_eq!(site.sent_for("a-32").await, BYTES);
    assert_eq!(site.sent_for("b-32").await, BYTES);
    assert_eq!(site.sent_for("a-32").await, 0);
    // One range of it was stored.
    assert_eq!(site.sent_for("b-32").await, RANGE);
    assert_eq!((site.cache.usage().evictions, site.cache.usage().disk_failures), (0, 0));
    drop(open);
    assert_eq!(site.sent_for("c-32").await, BYTES);
    assert_eq!(site.cache.usage().evictions, 1);
    let tiny = Site::new(RANGE - BLOCK);
    assert_eq!((tiny.sent_for("a-32").await, tiny.sent_for("a-32").await), (BYTES, BYTES));
    assert_eq!(tiny.cache.usage().stored_bytes, 0);
}

#[tokio::test]
async fn a_lower_limit_counts_from_the_start_on() {
    let site = Site::new(u64::MAX);
    for name in FILES {
        site.sent_for(name).await;
    }
    let site = site.restarted(2 * BYTES + RANGE);
    assert_eq!(site.cache.usage().stored_bytes, 2 * BYTES);
    assert_eq!(site.disk.state().allocated(DATA_SUFFIX), 2 * BYTES);
    assert_eq!((site.sent_for("d-32").await, site.sent_for("c-32").await), (0, 0));
}

#[tokio::test]
async fn a_full_disk_is_no_error_and_unused_files_make_room() {
    // The space that is free may be others' a moment later.
    for is_free_space_ours in [true, false] {
        let site = Site::new(u64::MAX);
        assert_eq!(site.sent_for("a-32").await, BYTES);
        // A block for a record, and half a range.
        site.disk.state().capacity = BYTES + 2 * BLOCK + RANGE / 2;
        site.disk.state().is_free_space_ours = is_free_space_ours;
        assert_eq!(site.sent_for("b-32").await, BYTES);
        assert_eq!((site.cache.usage().disk_failures, site.cache.usage().evictions), (1, 1));
        assert_eq!(site.cache.usage().stored_bytes, site.disk.state().allocated(DATA_SUFFIX));
        assert_eq!(site.sent_for("b-32").await, RANGE);
        assert_eq!(site.sent_for("b-32").await, 0);
        assert_eq!(site.cache.usage().stored_bytes, site.disk.state().allocated(DATA_SUFFIX));
    }
}

#[tokio::test]
async fn a_disk_that_fails_is_no_error_and_is_used_again() {
    let site = Site::new(u64::MAX);
    site.disk.state().fail_percent = 100;
    assert_eq!((site.sent_for("a-32").await, site.sent_for("a-32").await), (BYTES, BYTES));
    site.disk.state().fail_percent = 0;
    assert_eq!((site.sent_for("a-32").await, site.sent_for("a-32").await), (BYTES, 0));
    site.disk.state().fail_percent = 100;
    assert_eq!(site.sent_for("a-32").await, BYTES);
    site.disk.state().fail_percent = 0;
    site.sent_for("a-32").await;
    assert_eq!(site.sent_for("a-32").await, 0);
    assert_eq!(site.read("a-32", 0..BYTES, Freshness::Refetched).await, Ok(BYTES));
}
