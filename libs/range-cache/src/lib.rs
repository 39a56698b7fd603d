//! A bounded cache on disk of immutable files, which are fetched from their origin by ranges.
//!
//! The content of a name never changes. A range of 16 MiB is fetched by the first reader that needs
//! it, and once: readers that come while the fetch runs share it, and each gets bytes as soon as
//! they are written. A fetch is a task of its own, which ends no earlier if its readers go away.
//!
//! On disk each file is a sparse file of its bytes and a record of the ranges that it has:
//!
//! - A range is recorded after its bytes are durable, and the record is replaced by a rename. A
//!   power failure loses what was being fetched, and nothing else.
//! - A range is fetched again (the reader found wrong bytes) after it is durably gone from the
//!   record.
//! - The bytes of a file are removed after its record is durably gone: the name may come back.
//! - A start removes files without a valid record, and makes holes of the ranges that are not
//!   recorded.
//!
//! Space is reserved before a range is fetched, so ranges never have more than the limit; records
//! come on top, at most a block a file in most file systems. Files that nobody has open make room,
//! the one that was opened longest ago first.
//!
//! A range is not stored if there is no room, or if the disk is full or fails. Then each reader
//! gets the rest of the range from the origin, by a request of its own, and no error.
//!
//! There is no cache in memory: what is read often is in the page cache of the kernel, once for all
//! readers. No library was found with this order of writes: foyer loses entries if its buffers are
//! full, and stores none before all of it is in memory; cacache has neither ranges nor a limit.
//!
//! - [`CachedFile`] (`reader`): reads; `fetch`: fetches one range; `origin`: the other side.
//! - `files`: all files and their limit; `entry`: the states of a file's ranges; `layout`,
//!   `record`.
//! - `disk`: the operations of the file system.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod counters;
mod disk;
mod entry;
mod fetch;
mod files;
mod layout;
mod origin;
mod reader;
mod record;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use counters::CacheUsage;
pub use origin::{OriginError, OriginResponse, RangeOrigin};
pub use reader::{CachedFile, Freshness};

use disk::{CacheDisk, LockedDirectory};
use files::{CacheFiles, CacheLimits};
use origin::within_timeout;

/// Size of a range.
const RANGE_BYTES: u64 = 16 << 20;
/// Bytes that are read or written at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 200;

/// A cache. Clones share it.
#[derive(Clone, Debug)]
pub struct Cache {
    files: Arc<CacheFiles>,
}

impl Cache {
    /// Opens the cache in `directory`, which is made if there is none, with at most `max_bytes` of
    /// ranges. Fails if another process has it open.
    pub async fn open(directory: impl Into<PathBuf>, max_bytes: u64) -> io::Result<Self> {
        let limits = CacheLimits { max_bytes, range_bytes: RANGE_BYTES, piece_bytes: PIECE_BYTES };
        let directory = directory.into();
        let open = move || Self::restore(Arc::new(LockedDirectory::open(&directory)?), limits);
        tokio::task::spawn_blocking(open).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Opens the file `name`. The origin is asked for its size if the file is not cached.
    ///
    /// Only a name of letters, digits, `.`, `-` and `_` that begins with a letter or a digit
    /// exists.
    pub async fn file(
        &self,
        name: &str,
        origin: Arc<dyn RangeOrigin>,
    ) -> Result<CachedFile, OriginError> {
        if !is_name(name) {
            return Err(OriginError::NotFound);
        }
        let own = name.to_owned();
        let found = self.files.run(move |files| Ok(files.open(&own))).await;
        let open = found.unwrap_or_else(|error| {
            self.files.disk_failed("open a file", &error);
            None
        });
        if let Some(open) = open {
            let size = open.entry.layout.size;
            return Ok(CachedFile::new(self.files.clone(), origin, name, size, Some(open)));
        }
        let size = within_timeout(origin.size(name)).await?;
        let own = name.to_owned();
        let created = self.files.run(move |files| files.create(&own, size)).await;
        let created = created.inspect_err(|error| self.files.disk_failed("create a file", error));
        Ok(CachedFile::new(self.files.clone(), origin, name, size, created.ok()))
    }

    /// Returns the counters.
    pub fn usage(&self) -> CacheUsage {
        self.files.usage()
    }

    fn restore(disk: Arc<dyn CacheDisk>, limits: CacheLimits) -> io::Result<Self> {
        Ok(Self { files: Arc::new(CacheFiles::restore(disk, limits)?) })
    }
}

/// True if `name` is a name of files on disk, too.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
    name.len() <= MAX_NAME_BYTES
        && name.as_bytes().first().is_some_and(is_first)
        && name.bytes().all(is_allowed)
}
