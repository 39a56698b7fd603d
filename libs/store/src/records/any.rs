//! A kind as a value. Code that is the same for all kinds works with it, and so is compiled once.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tinwright::Stored as _;
use tinwright::secret::Sealable;

use super::{Change, Error, Index, Kind, Mirrored, Records, quota};
use crate::{Expect, Revision, ScopedStore, Store as _, Versioned, events, seal};

/// A kind of records, whichever it is.
#[derive(Debug)]
pub(crate) struct AnyKind {
    /// Its name in messages to people.
    pub(crate) noun: &'static str,
    /// The first part of its keys.
    pub(crate) kind: &'static str,
    /// Its indexes, without that of its quota.
    pub(crate) indexes: &'static [&'static str],
    /// The index of its quota.
    pub(crate) quota_index: Option<&'static str>,
    /// The records that a mirror holds.
    pub(crate) mirrored: Mirrored,
    /// True if records have secret fields.
    pub(crate) has_secrets: bool,
    read: fn(&ScopedStore, &str, &Versioned) -> Result<AnyRecord, crate::Error>,
    resealed: fn(&ScopedStore, &str, &Versioned) -> Result<Option<Change>, crate::Error>,
}

/// What code for all kinds needs to know of a record.
#[derive(Debug)]
pub(crate) struct AnyRecord {
    /// Its id.
    pub(crate) id: String,
    /// Its name; empty if it has none.
    pub(crate) name: String,
    /// Its index entries, with that of its quota.
    pub(crate) entries: Vec<Index>,
}

impl AnyKind {
    /// Returns `K` as a value.
    pub(crate) const fn of<K: Kind>() -> &'static Self {
        const {
            &Self {
                noun: K::NOUN,
                kind: K::KIND,
                indexes: K::INDEXES,
                quota_index: match K::QUOTA {
                    Some(quota) => Some(quota.index),
                    None => None,
                },
                mirrored: K::MIRRORED,
                has_secrets: <K::Record as Sealable>::HAS_SECRETS,
                read: read::<K>,
                resealed: resealed::<K>,
            }
        }
    }

    /// Returns the key of the record `id`, or the beginning of all keys.
    pub(crate) fn key(&self, id: &str) -> String {
        [self.kind, "/", id].concat()
    }

    /// Reads the record in `found` under `key` of `store`.
    pub(crate) fn read(
        &self,
        store: &ScopedStore,
        key: &str,
        found: &Versioned,
    ) -> Result<AnyRecord, crate::Error> {
        (self.read)(store, key, found)
    }

    /// Commits `change` of records in `store`, all of it or nothing. In a box, so that it is compiled here and not wherever it is
    /// awaited.
    pub(crate) fn commit<'a>(
        &'a self,
        store: &'a ScopedStore,
        mut change: Change,
    ) -> BoxFuture<'a, Result<Revision, Error>> {
        async move {
            let objects = change.take_objects();
            let commit = change.into_commit()?;
            let expect = commit.expect.clone();
            match store.commit(commit).await {
                Ok(revision) => {
                    events::record_changed(objects);
                    Ok(revision)
                }
                Err(crate::Error::Conflict(key)) => Err(self.clash(store, &expect, key).await?),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }

    /// Returns the record error for a conflict on `key` in a commit with the expectations `expect`.
    async fn clash(
        &self,
        store: &ScopedStore,
        expect: &[Expect],
        key: String,
    ) -> Result<Error, Error> {
        let noun = self.noun;
        Ok(match key.split_once('/') {
            Some((index, value)) if self.indexes.contains(&index) => {
                let entry = store.get(&key).await?;
                let by = entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
                let by = by.unwrap_or_default();
                let holder_key = self.key(&by);
                let holder = store.get(&holder_key).await?;
                let holder =
                    holder.map(|found| self.read(store, &holder_key, &found)).transpose()?;
                let name = holder.map(|holder| holder.name).unwrap_or_default();
                let (index, value) = (index.to_owned(), value.to_owned());
                Error::Taken { noun, index, value, by, name }
            }
            Some((kind, id))
                if kind == self.kind && expect.contains(&Expect::Absent(key.clone())) =>
            {
                Error::Exists { noun, id: id.to_owned() }
            }
            Some((_, id)) => Error::Changed { noun, id: id.to_owned() },
            None => Error::Changed { noun, id: key },
        })
    }

    /// Seals the secret fields of all records in `store` with the present key, where they are not. Returns the number of changed
    /// records.
    pub(crate) async fn reseal(&self, store: &ScopedStore) -> Result<usize, Error> {
        if store.sealer().is_none() {
            return Ok(0);
        }
        let (mut pages, mut changed) = (store.pages(&self.key("")), 0);
        while let Some(pairs) = pages.next().await? {
            for (key, found) in pairs {
                let Some(change) = (self.resealed)(store, &key, &found)? else { continue };
                match self.commit(store, change).await {
                    Ok(_) => changed += 1,
                    // Whoever changed it has sealed it.
                    Err(Error::Changed { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(changed)
    }
}

fn read<K: Kind>(
    store: &ScopedStore,
    key: &str,
    found: &Versioned,
) -> Result<AnyRecord, crate::Error> {
    let record = super::decode::<K>(store, key, found)?;
    Ok(AnyRecord {
        id: record.id().to_owned(),
        name: K::name(&record).to_owned(),
        entries: quota::entries::<K>(&record),
    })
}

/// Returns the change that seals the secret fields of the record in `found` with the present key; none if they are, or if the store
/// seals nothing.
fn resealed<K: Kind>(
    store: &ScopedStore,
    key: &str,
    found: &Versioned,
) -> Result<Option<Change>, crate::Error> {
    let Some(sealer) = store.sealer() else { return Ok(None) };
    let record = super::decode::<K>(store, key, found)?;
    let is_current = seal::is_current(record.clone(), &found.value, &*sealer);
    let records = Records::<K>::new(store.clone());
    Ok((!is_current).then(|| records.to_replace(&record, &record)))
}
