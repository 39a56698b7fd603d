//! Typed records over the store, and the index entries that find them.
//!
//! ```text
//! <kind>/<id>                  the record, as protobuf, its revision left out
//! <index>/<value>              ─▶ id      one record at most has this value
//! <index>/<value>/<id>         ─▶ id      any number may
//! <index>-count/<tenant>       empty      written by each change that counts for the tenant's quota
//! ```
//!
//! An index entry is written in the commit that writes its record. A reader that finds a record by an entry checks that the
//! record has the value, and [`check`](Records::check) compares and repairs the entries.

mod any;
mod change;
mod check;
mod event;
mod kind;
mod quota;
pub mod requests;
mod source;

use std::marker::PhantomData;
use std::sync::Arc;
use tinwright::Stored as _;

pub(crate) use self::any::AnyKind;
pub use self::change::Change;
pub use self::check::CheckReport;
pub use self::kind::{Index, Kind, Mirrored};
pub use self::quota::TenantQuotas;
use self::requests::{IdempotentRequest, RequestState};
pub use self::source::RecordSource;
pub use crate::listing::{Listing, ListingBuilder, MAX_LISTING_BYTES};
pub use crate::record_error::Error;
use crate::{Page, Revision, ScopedStore, Store, Versioned, seal};

/// Records that one part of a filtered list reads at most.
const MAX_SCANNED_RECORDS: usize = 2000;

/// Selects one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The record with this id.
    Id(String),
    /// The record with this value of a unique index.
    Index(&'static str, String),
}

impl Selector {
    /// Returns the error for a `noun` that is not there, or not for the caller.
    pub fn missing(&self, noun: &'static str) -> Error {
        let (Self::Id(name) | Self::Index(_, name)) = self;
        Error::Missing { noun, name: name.clone() }
    }
}

/// The records of one kind.
#[derive(Debug)]
pub struct Records<K> {
    store: ScopedStore,
    /// Limits of tenants in place of the noun's, if there are any.
    quotas: Option<Arc<dyn TenantQuotas>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Records<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), quotas: self.quotas.clone(), kind: PhantomData }
    }
}

impl<K: Kind> Records<K> {
    /// The records in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { store, quotas: None, kind: PhantomData }
    }

    /// Returns the same records, of which a tenant may have what `quotas` says in place of the noun's quota.
    pub fn with_quotas(self, quotas: Arc<dyn TenantQuotas>) -> Self {
        Self { quotas: Some(quotas), ..self }
    }

    /// Returns the record `id`, or [`Error::Missing`].
    pub async fn require(&self, id: &str) -> Result<K::Record, Error> {
        self.get(id).await?.ok_or_else(|| missing::<K>(id))
    }

    /// Returns the record `id` if it is at `revision`; 0 is any revision.
    pub async fn at(&self, id: &str, revision: i64) -> Result<K::Record, Error> {
        let mut found = self.require(id).await?;
        match *found.revision_mut() {
            at if revision == 0 || revision == at => Ok(found),
            _ => Err(Error::Changed { noun: K::NOUN, id: id.to_owned() }),
        }
    }

    /// Returns the selected record, or [`Error::Missing`].
    pub async fn select(&self, selector: &Selector) -> Result<K::Record, Error> {
        match selector {
            Selector::Id(id) => self.require(id).await,
            Selector::Index(index, value) => self.require_by(index, value).await,
        }
    }

    /// Returns the record whose unique `index` is `value`, or [`Error::Missing`].
    pub async fn require_by(&self, index: &'static str, value: &str) -> Result<K::Record, Error> {
        self.find(index, value).await?.ok_or_else(|| missing::<K>(value))
    }

    /// Returns the record `id`.
    pub async fn get(&self, id: &str) -> Result<Option<K::Record>, Error> {
        let key = key::<K>(id);
        let found = self.store.get(&key).await?;
        Ok(found.map(|found| self.decode(&key, &found)).transpose()?)
    }

    /// Returns the record whose unique `index` is `value`.
    pub async fn find(&self, index: &'static str, value: &str) -> Result<Option<K::Record>, Error> {
        let index = Index::unique(index, value);
        let Some(entry) = self.store.get(&index.key("")).await? else { return Ok(None) };
        let record = self.get(&String::from_utf8_lossy(&entry.value)).await?;
        // The record may have changed its value between the two reads.
        Ok(record.filter(|record| K::indexes(record).contains(&index)))
    }

    /// Returns at most `limit` records whose ids begin with `prefix`, in id order after the id `after`, and true if more follow.
    pub async fn page(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<K::Record>, bool), Error> {
        let page = self.pairs(prefix, after, limit).await?;
        let records: Result<_, _> =
            page.pairs.iter().map(|(key, at)| self.decode(key, at)).collect();
        Ok((records?, page.more))
    }

    /// Does the same, and returns what is stored.
    async fn pairs(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        check_page_token::<K>(after)?;
        let after = if after.is_empty() { String::new() } else { key::<K>(after) };
        Ok(self.store.list(&key::<K>(prefix), &after, limit).await?)
    }

    /// Returns at most `limit` records that pass the filter `keep`, after the id `after`. Long records or a strict filter end a
    /// part early: only an empty [`Listing::next`] means the end.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        keep: impl Fn(&K::Record) -> bool,
    ) -> Result<Listing<K::Record>, Error> {
        self.list_from(self, after, limit, keep).await
    }

    /// Returns at most `limit` records as [`Records::list`] does, from the memory of `source` if it has all that is stored.
    pub async fn list_from(
        &self,
        source: &impl RecordSource<K>,
        after: &str,
        limit: usize,
        keep: impl Fn(&K::Record) -> bool,
    ) -> Result<Listing<K::Record>, Error> {
        check_page_token::<K>(after)?;
        let mut listing = ListingBuilder::new(limit);
        let (mut last, mut looked) = (after.to_owned(), 0);
        loop {
            let page = match source.page_in_memory(&last, listing.remaining()) {
                Some(page) => page,
                None => self.pairs("", &last, listing.remaining()).await?,
            };
            let mut pairs = page.pairs.iter();
            while !listing.is_full()
                && let Some((key, found)) = pairs.next()
            {
                looked += 1;
                let record = self.decode(key, found)?;
                record.id().clone_into(&mut last);
                if keep(&record) {
                    listing.push_sized(record, found.value.len());
                }
            }
            let more = page.more || pairs.len() > 0;
            if !more || listing.is_full() || looked >= MAX_SCANNED_RECORDS {
                return Ok(listing.end(more.then_some(last)));
            }
        }
    }

    /// Returns at most `limit` records that have `value` in the shared `index` and pass the filter `keep`, after the id `after`.
    /// Only an empty [`Listing::next`] means the end.
    pub async fn list_indexed(
        &self,
        index: &str,
        value: &str,
        after: &str,
        limit: usize,
        keep: impl Fn(&K::Record) -> bool,
    ) -> Result<Listing<K::Record>, Error> {
        check_page_token::<K>(after)?;
        let prefix = format!("{index}/{value}/");
        let from = if after.is_empty() { String::new() } else { format!("{prefix}{after}") };
        let page = self.store.list(&prefix, &from, limit).await?;
        let id = |key: &str| key.strip_prefix(&prefix).unwrap_or_default().to_owned();
        let (mut listing, mut last) = (ListingBuilder::new(limit), None);
        let mut entries = page.pairs.iter();
        while !listing.is_full()
            && let Some((key, _)) = entries.next()
        {
            // It may have been deleted since the entry was read.
            if let Some(record) = self.get(&id(key)).await?.filter(&keep) {
                listing.push(record);
            }
            last = Some(id(key));
        }
        let more = page.more || entries.len() > 0;
        Ok(listing.end(last.filter(|_| more)))
    }

    /// Commits `change`, all of it or nothing.
    pub async fn commit(&self, change: Change) -> Result<Revision, Error> {
        AnyKind::of::<K>().commit(&self.store, change).await
    }

    /// Adds `record`, with `more` in the same commit. A repeated `request` returns the record that it created the first time.
    pub async fn create(
        &self,
        record: &K::Record,
        more: Change,
        request: Option<&IdempotentRequest>,
    ) -> Result<K::Record, Error> {
        if let Some(made) = self.previous_result(request).await? {
            return Ok(made);
        }
        let id = record.id();
        let done = request.map(|request| request.done(id, crate::wall_time(), &self.store));
        let done = done.unwrap_or_default();
        let change = self.to_create(record).and(more).and(done);
        match self.commit_counted(change, None, record).await {
            Ok(revision) => Ok(stored::<K>(record.clone(), revision)),
            // The same request may have been carried out meanwhile, and caused the conflict.
            Err(
                clash @ (Error::Exists { .. }
                | Error::Taken { .. }
                | Error::Changed { .. }
                | Error::Quota { .. }),
            ) => self.previous_result(request).await?.ok_or(clash),
            Err(error) => Err(error),
        }
    }

    /// Deletes the record `id`, which `request` created just now, and forgets the request. Returns the record if `is_used` holds for it: then
    /// it stays.
    pub async fn take_back(
        &self,
        id: &str,
        request: Option<&IdempotentRequest>,
        is_used: impl Fn(&K::Record) -> bool,
    ) -> Result<Option<K::Record>, Error> {
        while let Some(record) = self.get(id).await? {
            if is_used(&record) {
                return Ok(Some(record));
            }
            let undone = request.map(IdempotentRequest::undone).unwrap_or_default();
            match self.commit(self.to_delete(&record).and(undone)).await {
                Ok(_) => break,
                Err(Error::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Replaces `old` by `new`, and returns it at its new revision. Nothing is written if they are equal.
    pub async fn replace(&self, old: &K::Record, new: K::Record) -> Result<K::Record, Error> {
        self.replace_with(old, new, Change::default()).await
    }

    /// The same, with `more` in the same commit.
    pub async fn replace_with(
        &self,
        old: &K::Record,
        new: K::Record,
        more: Change,
    ) -> Result<K::Record, Error> {
        if *old == new {
            return Ok(new);
        }
        let change = self.to_replace(old, &new).and(more);
        let revision = self.commit_counted(change, Some(old), &new).await?;
        Ok(stored::<K>(new, revision))
    }

    /// Returns the record that `request` created earlier, if it was carried out.
    pub async fn previous_result(
        &self,
        request: Option<&IdempotentRequest>,
    ) -> Result<Option<K::Record>, Error> {
        let Some(request) = request else { return Ok(None) };
        match request.state(&self.store).await? {
            RequestState::New => Ok(None),
            RequestState::Done(id) => self.require(&id).await.map(Some),
            RequestState::Reused => Err(Error::Reused(request.id().to_owned())),
        }
    }

    /// Decodes the record in `found` under `key`, and fills in its revision.
    pub(crate) fn decode(&self, key: &str, found: &Versioned) -> Result<K::Record, crate::Error> {
        decode::<K>(&self.store, key, found)
    }

    /// Decodes the record `id` in `found`.
    pub(crate) fn decode_id(&self, id: &str, found: &Versioned) -> Result<K::Record, crate::Error> {
        self.decode(&key::<K>(id), found)
    }

    /// Seals the secret fields of all records with the present key, where they are not. Returns the number of changed records.
    pub async fn reseal(&self) -> Result<usize, Error> {
        AnyKind::of::<K>().reseal(&self.store).await
    }

    /// Returns the store of the records.
    pub fn store(&self) -> &ScopedStore {
        &self.store
    }
}

/// Decodes the record in `found` under `key` of `store`, and fills in its revision.
fn decode<K: Kind>(
    store: &ScopedStore,
    key: &str,
    found: &Versioned,
) -> Result<K::Record, crate::Error> {
    let record = seal::decode(&found.value, key, store);
    let record = record.ok_or_else(|| crate::Error::Corrupt(key.to_owned()))?;
    Ok(stored::<K>(record, found.revision))
}

/// Returns `record` as it is stored at `revision`.
fn stored<K: Kind>(mut record: K::Record, revision: Revision) -> K::Record {
    // Opaque to callers, which compare for equality only, so the sign does not matter.
    *record.revision_mut() = revision.0.cast_signed();
    record
}

fn key<K: Kind>(id: &str) -> String {
    format!("{}/{id}", K::KIND)
}

/// Checks that the page token `after` is empty or the id of a record, which may be gone by now.
pub fn check_page_token<K: Kind>(after: &str) -> Result<(), Error> {
    if after.is_empty() || after.parse::<K::Id>().is_ok() {
        Ok(())
    } else {
        Err(Error::PageToken(after.chars().take(80).collect()))
    }
}

fn missing<K: Kind>(name: &str) -> Error {
    Error::Missing { noun: K::NOUN, name: name.to_owned() }
}

#[cfg(test)]
mod tests;
