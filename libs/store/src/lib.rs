//! One small key-value contract, several engines.
//!
//! - [`Store`]: get, list, commit, changed, with the guarantees of each.
//! - [`limits`]: limits of a commit, the same in every engine.
//! - [`change_feed`]: the keys of recent commits, in memory for followers.
//! - [`memory`] for tests, [`sled`] for one process with one directory, [`etcd`] for many processes.
//! - [`ScopedStore`]: a service's own keys; [`records`]: typed records and their indexes; [`mirror`]: all of a kind in memory; [`serving`]: these over gRPC.
//! - [`events`]: what callers changed, changes of state and refusals, stored with each change.
//! - [`overdue`]: records that stay in a state for too long.
//! - [`hosted`]: a service that owns records, and what is done with all of its kinds.
//! - [`deferred`]: a store that is opened as soon as it can be reached.
//! - [`schema`]: the version of the layout, and migrations; [`fence`]: a store that a newer program migrates is written no more.
//! - [`seal`]: encryption of the secret fields of records.
//! - [`backup`]: copies of a store while it is used, and their restoration.
//! - [`feed_cache`]: objects of another service's watch, stored for the next start.
//!
//! Of the modules above the trait, each imports only those to its right:
//!
//! ```text
//! hosted ─▶ serving, overdue, schema ─▶ mirror ─▶ records ─▶ events, seal ─▶ listing, record_error
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

pub mod backup;
pub mod change_feed;
pub mod deferred;
pub mod etcd;
pub mod events;
pub mod feed_cache;
pub mod fence;
pub mod hosted;
pub mod limits;
mod listing;
pub mod memory;
pub mod mirror;
pub mod overdue;
mod page;
mod record_error;
pub mod records;
pub mod schema;
mod scoped;
pub mod seal;
pub mod serving;
pub mod sled;

pub use change_feed::Changes;
pub use page::Page;
pub use scoped::ScopedStore;
pub use seal::Sealer;

/// The store's logical clock: every commit that changes something takes a later one. A commit that only deletes absent keys may
/// take none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl Revision {
    /// Later than any revision. A reader without data follows from here, and gets [`Changes::Lost`] at once.
    pub const UNKNOWN: Self = Self(u64::MAX);
}

/// A value and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The bytes as written.
    pub value: Bytes,
    /// The revision that wrote them.
    pub revision: Revision,
}

/// Pairs as they all were at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenPairs {
    /// Each key once, and its pair if it was there.
    pub pairs: Vec<(String, Option<Versioned>)>,
    /// The revision.
    pub revision: Revision,
}

/// Frozen pairs; none for a reader that is too far behind.
pub type Frozen = Option<FrozenPairs>;

/// A condition of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key is not there.
    Absent(String),
    /// The key is there, last written at this revision.
    At(String, Revision),
}

impl Expect {
    /// The key it is about.
    pub fn key(&self) -> &str {
        let (Self::Absent(key) | Self::At(key, _)) = self;
        key
    }

    /// Succeeds if a key last written at `found` is as expected.
    pub(crate) fn check(&self, found: Option<Revision>) -> Result<(), Error> {
        let holds = match self {
            Self::Absent(_) => found.is_none(),
            Self::At(_, at) => found == Some(*at),
        };
        if holds { Ok(()) } else { Err(Error::Conflict(self.key().to_owned())) }
    }
}

/// One change inside a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put(String, Bytes),
    /// Removes a key, if it is there.
    Delete(String),
}

impl Write {
    /// The key it changes.
    pub fn key(&self) -> &str {
        let (Self::Put(key, _) | Self::Delete(key)) = self;
        key
    }
}

/// Conditions and changes that succeed or fail together. Without a write only the conditions are checked, and no revision
/// is taken.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// All must hold.
    pub expect: Vec<Expect>,
    /// All are applied, each to a key of its own.
    pub writes: Vec<Write>,
}

impl Commit {
    /// The keys it writes, each with the revision it took.
    pub(crate) fn names(&self, revision: Revision) -> impl Iterator<Item = (Revision, &str)> {
        self.writes.iter().map(move |write| (revision, write.key()))
    }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A condition of the commit did not hold; read again and retry.
    #[error("conflict on {0}")]
    Conflict(String),
    /// No engine takes such a commit; nothing was tried.
    #[error("commit refused")]
    Refused(#[from] limits::LimitExceeded),
    /// The engine cannot answer now. A commit that fails so may have been applied: read before repeating it.
    #[error("store unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The disk has no space for something new. Deletes and small updates are still carried out.
    #[error("the disk is full")]
    Full,
    /// A stored value cannot be decoded.
    #[error("corrupt value at {0}")]
    Corrupt(String),
}

impl Error {
    /// True if the same call may succeed later, unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Full => true,
            Self::Conflict(_) | Self::Refused(_) | Self::Corrupt(_) => false,
        }
    }

    pub(crate) fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable(cause.into())
    }
}

/// Linearizable key-value storage with compare-and-commit.
///
/// A value that a read returns is as durable as an acknowledged commit: no reader acts on a value that a power failure undoes.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The value under `key`, if any, and the revision that wrote it.
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error>;

    /// At most `limit` pairs under `prefix`, in key order, beginning after the key `after`.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error>;

    /// Applies all of `commit` if all it expects holds, else nothing; durable once this returns.
    async fn commit(&self, commit: Commit) -> Result<Revision, Error>;

    /// Resolves once `prefix` may hold something newer than `after`, with the keys to read again, or with [`Changes::Lost`] for a
    /// reader that is too far behind and has to list. Values are not included.
    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error>;

    /// True if it is certain, without asking another process, that no key under `prefix` was written after `revision`: who has read
    /// everything up to there need not read again. `prefix` is `<service>/<kind>/`.
    fn is_unchanged(&self, _prefix: &str, _revision: Revision) -> bool {
        false
    }

    /// Reads the pairs under `keys` and under all keys changed after `after`, as of one revision;
    /// none for a reader that is too far behind. For backups: writers may wait meanwhile.
    async fn frozen(&self, _after: Revision, _keys: BTreeSet<String>) -> Result<Frozen, Error> {
        Err(Error::unavailable(NoBackup))
    }

    /// Resolves once nothing can be written until the store is opened again. An engine that recovers by itself never resolves.
    async fn failed(&self) -> Error {
        std::future::pending().await
    }

    /// The sealer of the secret fields of records; none if records are stored in clear, as in tests. A store around another one
    /// returns that one's.
    fn sealer(&self) -> Option<Arc<dyn Sealer>> {
        None
    }
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// The store does not support backups.
#[derive(Debug, thiserror::Error)]
#[error("this store cannot be backed up")]
struct NoBackup;

/// Returns the wall time.
#[expect(clippy::disallowed_methods, reason = "runtime::clock is not below this crate")]
fn wall_time() -> SystemTime {
    SystemTime::now()
}
