//! The layout of pairs in sled: one tree, three kinds of key.
//!
//! ```text
//! r                      revision                               the newest applied
//! k<key>                 revision ‖ length ‖ value, if short    one a pair
//! p<key><number, u32>    the next bytes of a long value         one a part
//! ```
//!
//! Long values are split into parts because sled stores blocks above an eighth of a megabyte in separate files, which it never
//! syncs; and it writes tree leaves, of some 16 to 20 entries, as a whole. With parts of 4 KiB no leaf reaches that size.

use std::ops::Bound;
use std::sync::RwLock;

use ::sled::{Batch, Db};

use crate::{Error, Page, Revision, Versioned, page};

/// The key of the newest revision. Every store has it from its creation on.
pub(super) const REVISION: &str = "r";
const PART_BYTES: usize = 4096;

/// The writer has ended; only opening the store again helps.
#[derive(Debug, thiserror::Error)]
#[error("the store has stopped writing after a failure")]
pub(super) struct Stopped;

/// The tree, and the lock that shows readers whole commits only.
#[derive(Debug)]
pub(super) struct Layout {
    db: Db,
    applied: RwLock<Revision>,
}

impl Layout {
    /// Opens the layout in `db`, and reads its newest revision.
    pub(super) fn read(db: Db) -> Result<(Self, Revision), Error> {
        let raw = db.get(REVISION).map_err(Error::unavailable)?;
        let last = raw.as_deref().and_then(split_revision);
        let (last, _) = last.ok_or_else(|| Error::Corrupt(REVISION.into()))?;
        Ok((Self { db, applied: RwLock::new(last) }, last))
    }

    /// Runs `look` between two commits. Returns its result, and the newest revision it can have read.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&Self) -> Result<T, Error>,
    ) -> Result<(T, Revision), Error> {
        let applied = self.applied.read().map_err(|_| Error::unavailable(Stopped))?;
        Ok((look(self)?, *applied))
    }

    /// The pair under `key`.
    pub(super) fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        let raw = self.db.get(pair_key(key)).map_err(Error::unavailable)?;
        raw.map(|raw| self.whole(key, &raw)).transpose()
    }

    /// A page of pairs.
    pub(super) fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let (start, under) = (page::start(prefix, after).map(pair_key), pair_key(prefix));
        let raw = self.db.range((start, Bound::Unbounded));
        let raw = raw.take_while(|pair| pair.as_ref().map_or(true, |(k, _)| k.starts_with(&under)));
        Page::gather(raw.map(|pair| pair.map_err(Error::unavailable)), limit, |(key, raw)| {
            let key = key.get(1..).and_then(|key| str::from_utf8(key).ok());
            let key = key.ok_or_else(|| Error::Corrupt(prefix.into()))?;
            Ok((key.to_owned(), self.whole(key, &raw)?))
        })
    }

    /// The newest revision applied.
    pub(super) fn revision(&self) -> Result<Revision, Error> {
        self.look(|_| Ok(())).map(|((), revision)| revision)
    }

    /// Applies `batch`, which leads to `revision`, whole or not at all.
    pub(super) fn apply(&self, batch: Batch, revision: Revision) -> Result<(), Error> {
        let mut applied = self.applied.write().map_err(|_| Error::unavailable(Stopped))?;
        // Set before the batch: if that fails half way, no reader trusts the result.
        *applied = revision;
        self.db.apply_batch(batch).map_err(Error::unavailable)
    }

    /// Writes everything applied to the kernel.
    pub(super) fn flush(&self) -> Result<(), Error> {
        self.db.flush().map(drop).map_err(Error::unavailable)
    }

    /// Returns the head of the pair under `key`, if there is one.
    pub(super) fn head(&self, key: &str) -> Result<Option<Head>, Error> {
        let raw = self.db.get(pair_key(key)).map_err(Error::unavailable)?;
        raw.map(|raw| Head::decode(key, &raw).map(|(head, _)| head)).transpose()
    }

    fn whole(&self, key: &str, raw: &[u8]) -> Result<Versioned, Error> {
        let (head, inline) = Head::decode(key, raw)?;
        let mut value = inline.to_vec();
        for n in 0..head.parts() {
            let part = self.db.get(part_key(key, n)).map_err(Error::unavailable)?;
            value.extend_from_slice(&part.ok_or_else(|| Error::Corrupt(key.into()))?);
        }
        if value.len() != head.length {
            return Err(Error::Corrupt(key.into()));
        }
        Ok(Versioned { value: value.into(), revision: head.revision })
    }
}

/// The fixed-size beginning of a stored pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) revision: Revision,
    pub(super) length: usize,
}

impl Head {
    /// Returns the number of parts of the value; 0 if it is short.
    pub(super) fn parts(&self) -> usize {
        if self.length <= PART_BYTES { 0 } else { self.length.div_ceil(PART_BYTES) }
    }

    /// Those parts of `value`.
    pub(super) fn cut<'a>(&self, value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        value.chunks(PART_BYTES).take(self.parts())
    }

    pub(super) fn encode(&self, inline: &[u8]) -> Vec<u8> {
        let length = self.length as u64;
        [&self.revision.0.to_be_bytes(), &length.to_be_bytes(), inline].concat()
    }

    fn decode<'a>(key: &str, raw: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        let corrupt = || Error::Corrupt(key.into());
        let (revision, rest) = split_revision(raw).ok_or_else(corrupt)?;
        let (length, inline) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| corrupt())?;
        Ok((Self { revision, length }, inline))
    }
}

fn split_revision(raw: &[u8]) -> Option<(Revision, &[u8])> {
    let (revision, rest) = raw.split_first_chunk()?;
    Some((Revision(u64::from_be_bytes(*revision)), rest))
}

pub(super) fn pair_key(key: &str) -> Vec<u8> {
    [b"k", key.as_bytes()].concat()
}

pub(super) fn part_key(key: &str, number: usize) -> Vec<u8> {
    // At most 128 parts a value; the width only has to be the same for all of them.
    [b"p", key.as_bytes(), &(number as u32).to_be_bytes()].concat()
}

#[cfg(test)]
impl Layout {
    /// Returns the number of entries in sled.
    pub(super) fn entries(&self) -> usize {
        self.db.len()
    }
}
