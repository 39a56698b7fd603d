//! The store restricted to the keys of one service.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Changes, Commit, Error, Expect, Page, Revision, Sealer, Store, Versioned, Write, limits,
};

/// Pairs of the largest page of [`ScopedStore::pages`].
const PAGE_PAIRS: usize = 500;

/// A store of the keys under `name/`, which callers name without it.
#[derive(Clone, Debug)]
pub struct ScopedStore {
    store: Arc<dyn Store>,
    prefix: String,
}

impl ScopedStore {
    /// Restricts `store` to the keys of the service `name`.
    pub fn new(store: Arc<dyn Store>, name: &str) -> Self {
        Self { store, prefix: format!("{name}/") }
    }

    /// Reads all pairs under `prefix`, page by page, so that only one page at a time is in memory.
    pub fn pages(&self, prefix: &str) -> Pages<'_> {
        Pages { store: self, prefix: prefix.to_owned(), after: String::new(), more: true }
    }

    /// Applies `writes` without expectations, in as many commits as needed.
    pub async fn write_all(&self, writes: &[Write]) -> Result<(), Error> {
        for step in writes.chunks(limits::MAX_WRITES) {
            self.commit(Commit { writes: step.to_vec(), ..Commit::default() }).await?;
        }
        Ok(())
    }

    /// Returns the key in the store underneath.
    pub(crate) fn full(&self, key: &str) -> String {
        [&self.prefix, key].concat()
    }

    /// Returns `write` for the store underneath.
    pub(crate) fn to_full(&self, write: Write) -> Write {
        match write {
            Write::Put(key, value) => Write::Put(self.full(&key), value),
            Write::Delete(key) => Write::Delete(self.full(&key)),
        }
    }

    fn own(&self, key: String) -> String {
        key.strip_prefix(&self.prefix).map(str::to_owned).unwrap_or(key)
    }

    fn own_error(&self, error: Error) -> Error {
        match error {
            Error::Conflict(key) => Error::Conflict(self.own(key)),
            Error::Refused(_) | Error::Unavailable(_) | Error::Full | Error::Corrupt(_) => error,
        }
    }
}

/// All pairs under a prefix, in key order. The pages may be of different revisions.
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a ScopedStore,
    prefix: String,
    after: String,
    more: bool,
}

impl Pages<'_> {
    /// Returns the pairs of the next page, at most 500; none after the last page.
    pub async fn next(&mut self) -> Result<Option<Vec<(String, Versioned)>>, Error> {
        if !self.more {
            return Ok(None);
        }
        let page = self.store.list(&self.prefix, &self.after, PAGE_PAIRS).await?;
        if let Some((last, _)) = page.pairs.last() {
            self.after.clone_from(last);
        }
        self.more = page.more;
        Ok(Some(page.pairs))
    }
}

#[async_trait]
impl Store for ScopedStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.store.get(&self.full(key)).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let after = if after.is_empty() { String::new() } else { self.full(after) };
        let mut page = self.store.list(&self.full(prefix), &after, limit).await?;
        page.pairs.iter_mut().for_each(|(key, _)| *key = self.own(std::mem::take(key)));
        Ok(page)
    }

    async fn commit(&self, mut commit: Commit) -> Result<Revision, Error> {
        for Expect::Absent(key) | Expect::At(key, _) in &mut commit.expect {
            *key = self.full(key);
        }
        for Write::Put(key, _) | Write::Delete(key) in &mut commit.writes {
            *key = self.full(key);
        }
        self.store.commit(commit).await.map_err(|error| self.own_error(error))
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        Ok(match self.store.changed(&self.full(prefix), after).await? {
            Changes::Keys { keys, revision } => Changes::Keys {
                keys: keys.into_iter().map(|key| self.own(key)).collect(),
                revision,
            },
            lost @ Changes::Lost { .. } => lost,
        })
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.store.is_unchanged(&self.full(prefix), revision)
    }

    async fn failed(&self) -> Error {
        self.store.failed().await
    }

    fn sealer(&self) -> Option<Arc<dyn Sealer>> {
        self.store.sealer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn two_services_share_a_store_and_no_key() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (ours, theirs) =
            (ScopedStore::new(store.clone(), "a"), ScopedStore::new(store.clone(), "ab"));
        for handle in [&ours, &theirs] {
            let create = Commit {
                expect: vec![Expect::Absent("k".into())],
                writes: vec![Write::Put("k".into(), handle.prefix.clone().into())],
            };
            handle.commit(create.clone()).await.unwrap();
            let again = handle.commit(create).await;
            assert!(matches!(again, Err(Error::Conflict(key)) if key == "k"));
        }
        let page = ours.list("", "", 10).await.unwrap();
        assert_eq!(page.pairs.len(), 1);
        assert_eq!((page.pairs[0].0.as_str(), page.pairs[0].1.value.as_ref()), ("k", &b"a/"[..]));
        assert!(store.get("ab/k").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn pages_have_each_pair_once_and_stay_small() {
        let store = ScopedStore::new(Arc::new(MemoryStore::default()), "a");
        let keys: Vec<_> = (0..1201).map(|n| format!("k/{n:04}")).collect();
        let writes: Vec<_> = keys.iter().map(|key| Write::Put(key.clone(), "v".into())).collect();
        store.write_all(&writes).await.unwrap();
        store.write_all(&[Write::Put("other".into(), "v".into())]).await.unwrap();
        let (mut pages, mut sizes, mut found) = (store.pages("k/"), Vec::new(), Vec::new());
        while let Some(pairs) = pages.next().await.unwrap() {
            sizes.push(pairs.len());
            found.extend(pairs.into_iter().map(|(key, _)| key));
        }
        assert_eq!((sizes, found), (vec![500, 500, 201], keys));
    }
}
