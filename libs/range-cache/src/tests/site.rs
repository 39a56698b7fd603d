//! A cache between a simulated disk and a simulated origin.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;

use super::random::Random;
use super::sim_disk::SimDisk;
use super::sim_origin::{SimOrigin, content, size};
use crate::files::{CacheLimits, MAX_FETCHES};
use crate::origin::OriginError;
use crate::{Cache, Freshness};

/// Bytes of a range: 16 blocks.
pub(crate) const RANGE: u64 = 1024;
/// Turns after which all jobs have ended.
const MAX_TURNS: usize = 10_000;

/// A cache with its disk and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) disk: SimDisk,
    pub(crate) origin: SimOrigin,
    pub(crate) cache: Cache,
}

impl Site {
    /// Returns a site with an empty cache of at most `max_bytes`.
    pub(crate) fn new(max_bytes: u64) -> Self {
        let (disk, origin) = (SimDisk::new(Random(1)), SimOrigin::new(Random(2)));
        let cache = open(&disk, max_bytes);
        Self { disk, origin, cache }
    }

    /// Returns the site after a start with what is on its disk.
    pub(crate) fn restarted(&self, max_bytes: u64) -> Self {
        Self { cache: open(&self.disk, max_bytes), ..self.clone() }
    }

    /// Reads `range` of `name`, and compares it. Returns the number of bytes before the error.
    pub(crate) async fn read(
        &self,
        name: &str,
        range: Range<u64>,
        freshness: Freshness,
    ) -> Result<u64, (u64, OriginError)> {
        let origin = Arc::new(self.origin.clone());
        let file = self.cache.file(name, origin).await.map_err(|error| (0, error))?;
        let mut bytes = pin!(file.read(range.clone(), freshness));
        let mut at = range.start;
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|error| (at - range.start, error))?;
            let end = at + piece.len() as u64;
            assert_eq!(piece, content(name, at..end), "{name} at {at}");
            at = end;
        }
        assert_eq!(at, range.end.min(size(name)), "{name}");
        Ok(at - range.start)
    }

    /// Reads the whole file `name`.
    pub(crate) async fn read_all(&self, name: &str) -> Result<u64, (u64, OriginError)> {
        self.read(name, 0..size(name), Freshness::Cached).await
    }

    /// Returns the whole file `name` as it is sent, right or wrong.
    pub(crate) async fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.cache.file(name, Arc::new(self.origin.clone())).await.unwrap();
        let pieces = file.read(0..u64::MAX, Freshness::Cached);
        let pieces: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        pieces.concat()
    }

    /// Waits until no fetch runs.
    pub(crate) async fn idle(&self) {
        turns(10).await;
        let all = u32::try_from(MAX_FETCHES).unwrap();
        drop(self.cache.files.fetches.acquire_many(all).await.unwrap());
        for _ in 0..MAX_TURNS {
            if self.disk.state().jobs == 0 {
                return;
            }
            turns(1).await;
        }
        panic!("jobs do not end");
    }
}

/// Opens the cache that is on `disk`.
pub(crate) fn open(disk: &SimDisk, max_bytes: u64) -> Cache {
    let limits = CacheLimits { max_bytes, range_bytes: RANGE, piece_bytes: 200 };
    Cache::restore(Arc::new(disk.clone()), limits).unwrap()
}

/// Runs other tasks for a while.
pub(crate) async fn turns(turns: u64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}
