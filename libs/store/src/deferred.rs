//! A store that is opened in the background, because it was not reachable when its process started.
//!
//! Until it is open every call fails with `Unavailable`, and `changed` waits. It is opened at the latest half a minute after it
//! can be reached, and stays open.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Changes, Commit, Error, Frozen, Page, Revision, Sealer, Store, Versioned};

/// The delay after the first failed attempt. It doubles after each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
/// The longest delay.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// The cause of a call's failure before the store is open.
#[derive(Debug, thiserror::Error)]
#[error("the store has not been reached since the start")]
struct NotOpen;

/// A store that may not be open yet.
#[derive(Debug)]
pub struct DeferredStore {
    opened: watch::Receiver<Option<Arc<dyn Store>>>,
    _opening: JoinSet<()>,
}

impl DeferredStore {
    /// Calls `open` until it succeeds.
    pub fn new<F>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<Arc<dyn Store>>> + Send + 'static,
    {
        let (sender, opened) = watch::channel(None);
        let mut opening = JoinSet::new();
        opening.spawn(async move {
            let mut pause = FIRST_RETRY_DELAY;
            loop {
                match open().await {
                    Ok(store) => return drop(sender.send_replace(Some(store))),
                    Err(error) => tracing::warn!(
                        error = AsRef::<dyn std::error::Error>::as_ref(&error),
                        "the store cannot be opened; trying again"
                    ),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_DELAY_MAX);
            }
        });
        Self { opened, _opening: opening }
    }

    fn opened(&self) -> Result<Arc<dyn Store>, Error> {
        self.opened.borrow().clone().ok_or_else(|| Error::unavailable(NotOpen))
    }

    /// Returns the store once it is open.
    async fn open(&self) -> Result<Arc<dyn Store>, Error> {
        let mut receiver = self.opened.clone();
        let opened = receiver.wait_for(Option::is_some).await;
        drop(opened.map_err(|_| Error::unavailable(NotOpen))?);
        self.opened()
    }
}

#[async_trait]
impl Store for DeferredStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.opened()?.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.opened()?.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        self.opened()?.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.open().await?.changed(prefix, after).await
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.opened().is_ok_and(|store| store.is_unchanged(prefix, revision))
    }

    async fn frozen(&self, after: Revision, keys: BTreeSet<String>) -> Result<Frozen, Error> {
        self.opened()?.frozen(after, keys).await
    }

    async fn failed(&self) -> Error {
        match self.open().await {
            Ok(store) => store.failed().await,
            Err(error) => error,
        }
    }

    fn sealer(&self) -> Option<Arc<dyn Sealer>> {
        self.opened().ok()?.sealer()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Write;
    use crate::memory::MemoryStore;

    /// A store that opens at the third attempt.
    fn opens_at_third_attempt() -> DeferredStore {
        let tried = AtomicU32::new(0);
        DeferredStore::new(move || {
            let opened = tried.fetch_add(1, Ordering::Relaxed) == 2;
            async move {
                anyhow::ensure!(opened, "nobody answers");
                Ok(Arc::new(MemoryStore::default()) as Arc<dyn Store>)
            }
        })
    }

    #[tokio::test]
    async fn calls_fail_until_the_store_is_open_and_followers_wait() {
        let deferred = opens_at_third_attempt();
        let put = Commit { writes: vec![Write::Put("a".into(), "v".into())], ..Commit::default() };
        assert!(matches!(deferred.get("a").await, Err(Error::Unavailable(_))));
        assert!(matches!(deferred.list("", "", 1).await, Err(Error::Unavailable(_))));
        assert!(matches!(deferred.commit(put.clone()).await, Err(Error::Unavailable(_))));
        let changes = deferred.changed("", Revision::UNKNOWN).await.unwrap();
        assert!(matches!(changes, Changes::Lost { .. }));
        let revision = deferred.commit(put).await.unwrap();
        assert_eq!(deferred.get("a").await.unwrap().unwrap().revision, revision);
    }
}
