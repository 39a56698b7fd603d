//! Counters of a cache, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a cache since it was opened, and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Bytes that readers got and for which they caused no fetch.
    pub hit_bytes: u64,
    /// Bytes that the origin sent.
    pub origin_bytes: u64,
    /// Files that were removed to make room.
    pub evictions: u64,
    /// Operations on the disk that failed.
    pub disk_failures: u64,
    /// Bytes of the disk that ranges have, complete or not.
    pub stored_bytes: u64,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct ByteCounter(AtomicU64);

impl ByteCounter {
    /// Adds `number`.
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// Returns the sum.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
