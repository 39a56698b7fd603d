//! The store for tests: a map, not durable and otherwise as strict as the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::change_feed::{ChangeFeed, Changes};
use crate::{Commit, Error, Frozen, FrozenPairs, Page, Revision, Store, Versioned, Write, page};

/// A store in a map.
#[derive(Debug)]
pub struct MemoryStore {
    pairs: Mutex<BTreeMap<String, Versioned>>,
    feed: ChangeFeed,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { pairs: Mutex::default(), feed: ChangeFeed::new(Revision(0)) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        Ok(self.pairs.lock().await.get(key).cloned())
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let pairs = self.pairs.lock().await;
        let from = (page::start(prefix, after), Bound::Unbounded);
        let under = pairs.range::<str, _>(from).take_while(|(key, _)| key.starts_with(prefix));
        Page::gather(under.map(Ok), limit, |(key, found)| Ok((key.clone(), found.clone())))
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        commit.check()?;
        let mut pairs = self.pairs.lock().await;
        for expect in &commit.expect {
            expect.check(pairs.get(expect.key()).map(|found| found.revision))?;
        }
        let last = self.feed.revision();
        if commit.writes.is_empty() {
            return Ok(last);
        }
        let revision = Revision(last.0 + 1);
        for write in &commit.writes {
            match write {
                Write::Put(key, value) => {
                    pairs.insert(key.clone(), Versioned { value: value.clone(), revision })
                }
                Write::Delete(key) => pairs.remove(key),
            };
        }
        self.feed.publish(commit.names(revision));
        Ok(revision)
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.feed.follow().changed(prefix, after).await
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.feed.follow().is_unchanged(prefix, revision)
    }

    async fn frozen(&self, after: Revision, mut keys: BTreeSet<String>) -> Result<Frozen, Error> {
        let pairs = self.pairs.lock().await;
        let Some(changed) = self.feed.follow().keys_since(after) else { return Ok(None) };
        keys.extend(changed);
        let pair = |key: String| {
            let found = pairs.get(&key).cloned();
            (key, found)
        };
        let pairs = keys.into_iter().map(pair).collect();
        Ok(Some(FrozenPairs { pairs, revision: self.feed.revision() }))
    }
}
