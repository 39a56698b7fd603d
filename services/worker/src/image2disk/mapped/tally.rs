//! Progress of an installation with a map, and how its blocks got their content.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::progress::{Meter, Phase, Report};

/// Counts blocks and bytes. Progress is the number of bytes of the image that the disk has.
#[derive(Debug)]
pub(super) struct Tally {
    meter: Meter,
    /// Bytes of the image.
    total: u64,
    counts: Counts,
}

/// Bytes that are done or downloaded, and numbers of blocks.
#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    downloaded: AtomicU64,
    fetched: AtomicU64,
    equal: AtomicU64,
    zero: AtomicU64,
}

/// The reason why the disk has the content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The block was downloaded.
    Fetched,
    /// The disk had the content before.
    Equal,
    /// The block has only zeroes.
    Zero,
}

impl Tally {
    /// Starts counting for an image of `total` bytes.
    pub(super) fn new(meter: Meter, total: u64) -> Self {
        Self { meter, total, counts: Counts::default() }
    }

    /// Counts a block of `bytes` bytes that the disk has.
    pub(super) fn count(&self, origin: Origin, bytes: u64) {
        let blocks = match origin {
            Origin::Fetched => &self.counts.fetched,
            Origin::Equal => &self.counts.equal,
            Origin::Zero => &self.counts.zero,
        };
        blocks.fetch_add(1, Ordering::Relaxed);
        self.counts.done.fetch_add(bytes, Ordering::Relaxed);
        self.report(Phase::Writing);
    }

    /// Counts downloaded bytes.
    pub(super) fn downloaded(&self, bytes: u64) {
        self.counts.downloaded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reports what is done so far.
    pub(super) fn report(&self, phase: Phase) {
        let done = self.counts.done.load(Ordering::Relaxed);
        self.meter.report(|| Report { phase, done, total: Some(self.total) });
    }
}

/// The line for the log.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { done, downloaded, fetched, equal, zero } = &self.counts;
        write!(f, "verified {} bytes from {} downloaded bytes: ", value(done), value(downloaded))?;
        write!(f, "blocks fetched {}, ", value(fetched))?;
        write!(f, "equal {}, zero {}", value(equal), value(zero))
    }
}
