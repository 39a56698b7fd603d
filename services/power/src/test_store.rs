//! A store for tests, in memory, and parts of records.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned, Write};
use tinwright::power::v1::bmc::{Protocol, Redfish};

/// The Redfish service at `url`, in a BMC's record.
pub(crate) fn redfish(url: &str) -> Protocol {
    Protocol::Redfish(Redfish { url: url.into(), ..Redfish::default() })
}

/// A store that counts its readings and can be made unreachable.
#[derive(Debug, Default)]
pub(crate) struct FlakyStore {
    store: MemoryStore,
    /// The readings of single keys.
    pub(crate) gets: AtomicUsize,
    /// True while every call fails.
    pub(crate) is_away: AtomicBool,
    /// The key that another writer deletes before the next commit.
    deleted_before_commit: Mutex<Option<String>>,
}

impl FlakyStore {
    /// Has another writer delete `key` before the next commit.
    pub(crate) fn precede(&self, key: String) {
        *self.deleted_before_commit.lock().unwrap() = Some(key);
    }

    /// Deletes `key` as another writer.
    pub(crate) async fn delete(&self, key: &str) {
        let writes = vec![Write::Delete(key.to_owned())];
        self.store.commit(Commit { expect: Vec::new(), writes }).await.unwrap();
    }

    fn reachable(&self) -> Result<&MemoryStore, Error> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(Error::Unavailable("out of reach".into())),
            false => Ok(&self.store),
        }
    }
}

#[async_trait]
impl Store for FlakyStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.reachable()?.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.reachable()?.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        let key = self.deleted_before_commit.lock().unwrap().take();
        if let Some(key) = key {
            self.delete(&key).await;
        }
        self.reachable()?.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.reachable()?.changed(prefix, after).await
    }
}
