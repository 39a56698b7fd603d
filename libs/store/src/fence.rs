//! A store that refuses all commits once its schema has changed.
//!
//! Processes of two versions may run over one etcd at the same time. The newer one migrates the store; the older one would write
//! records of the older layout. So each of its commits expects the key of the schema as it was at its start: the first commit after
//! the migration began is refused, and [`failed`](Store::failed) resolves. The process ends, and the other one goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    Changes, Commit, Error, Expect, Frozen, Page, Revision, Sealer, Store, Versioned, schema,
};

/// The schema of the store is another one than at the start of this process.
#[derive(Debug, thiserror::Error)]
#[error("a newer program has changed the schema of the store")]
pub struct Superseded;

/// A store of one version of the schema. A commit has one expectation fewer than in the store below.
#[derive(Debug)]
pub struct FencedStore {
    store: Arc<dyn Store>,
    schema: Revision,
    superseded: watch::Sender<bool>,
}

impl FencedStore {
    /// Refuses commits unless the key of the schema has the revision `schema`.
    pub fn new(store: Arc<dyn Store>, schema: Revision) -> Self {
        Self { store, schema, superseded: watch::Sender::new(false) }
    }

    /// True if a commit was refused because the schema changed.
    pub(crate) fn is_superseded(&self) -> bool {
        *self.superseded.borrow()
    }
}

#[async_trait]
impl Store for FencedStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, mut commit: Commit) -> Result<Revision, Error> {
        commit.expect.insert(0, Expect::At(schema::KEY.into(), self.schema));
        match self.store.commit(commit).await {
            Err(Error::Conflict(key)) if key == schema::KEY => {
                self.superseded.send_replace(true);
                Err(Error::unavailable(Superseded))
            }
            outcome => outcome,
        }
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.store.is_unchanged(prefix, revision)
    }

    async fn frozen(&self, after: Revision, keys: BTreeSet<String>) -> Result<Frozen, Error> {
        self.store.frozen(after, keys).await
    }

    async fn failed(&self) -> Error {
        let mut superseded = self.superseded.subscribe();
        tokio::select! {
            // The sender lives as long as `self`.
            _ = superseded.wait_for(|superseded| *superseded) => Error::unavailable(Superseded),
            error = self.store.failed() => error,
        }
    }

    fn sealer(&self) -> Option<Arc<dyn Sealer>> {
        self.store.sealer()
    }
}
