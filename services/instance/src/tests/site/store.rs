//! A store that dies at a commit: before it, or after it and before the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};

/// A store over another one that outlives it. Counts the reads.
#[derive(Debug)]
pub(crate) struct Frail {
    inner: Arc<MemoryStore>,
    commits_left: AtomicUsize,
    last_is_made: bool,
    pub(crate) gets: AtomicUsize,
    pub(crate) lists: AtomicUsize,
}

impl Frail {
    /// Dies at this commit, counted from 1; after it is applied, if `last_is_made`.
    pub(crate) fn new(inner: Arc<MemoryStore>, commits: usize, last_is_made: bool) -> Self {
        let commits_left = AtomicUsize::new(commits);
        let (gets, lists) = Default::default();
        Self { inner, commits_left, last_is_made, gets, lists }
    }

    fn dead() -> Error {
        Error::Unavailable("killed".into())
    }
}

#[async_trait]
impl Store for Frail {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let found = self.inner.get(key).await;
        tokio::task::yield_now().await; // as a store that is elsewhere lets others in between
        found
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        let left = self.commits_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(Self::dead());
        }
        self.commits_left.store(left - 1, Ordering::Relaxed);
        if left > 1 {
            return self.inner.commit(commit).await;
        }
        if self.last_is_made {
            self.inner.commit(commit).await?;
        }
        Err(Self::dead())
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.inner.changed(prefix, after).await
    }
}
