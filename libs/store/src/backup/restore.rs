//! Restores a backup into an empty store.

use std::io::{self, BufRead};

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::{Entry, HEADER, MAX_ENTRY_BYTES, SITE_KEY, mark};
use crate::{Commit, Error, Expect, Store, Write, limits, schema};

/// Bytes of values in a commit: half of the limit, so that its keys fit.
const COMMIT_VALUE_BYTES: usize = limits::MAX_COMMIT_BYTES / 2;

/// A failed restore.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The store has pairs.
    #[error("the store is not empty: restore into a new data directory, or a new prefix in etcd")]
    NotEmpty,
    /// The file is something else.
    #[error("this is not a backup of a store, or it is one of a newer program")]
    NoBackup,
    /// The backup belongs to another site, or names no site.
    #[error(
        "this is the backup of another site than these secrets: copy the directory of secrets of the server that was backed up"
    )]
    OtherSite,
    /// The file ends too early, or was changed.
    #[error(
        "the backup is truncated or damaged: delete the store that it was restored into (DATA/store, or the \
         prefix in etcd), keep the secrets, and restore a whole backup"
    )]
    Damaged,
    /// The file cannot be read.
    #[error("reading the backup")]
    Read(#[source] io::Error),
    /// The store failed.
    #[error("writing the store")]
    Store(#[from] Error),
}

/// Restores the backup in `from` into `store`, which has to be empty. The backup has to begin with one of the site's
/// `marks`: else nothing is written. The store has the mark of a restored one afterwards. Returns the number of restored entries.
pub async fn restore(
    store: &dyn Store,
    marks: &[String],
    from: &mut impl BufRead,
) -> Result<usize, RestoreError> {
    let mut source = BackupReader { from, digest: Sha256::new() };
    source.header()?;
    let first = source.next()?.filter(|entry| entry.key == SITE_KEY);
    let first = first
        .filter(|entry| marks.iter().any(|mark| entry.value.as_deref() == Some(mark.as_bytes())));
    let first = first.ok_or(RestoreError::OtherSite)?;
    if !store.list("", "", 1).await?.pairs.is_empty() {
        return Err(RestoreError::NotEmpty);
    }
    let expect = vec![Expect::Absent(schema::KEY.into())];
    let writes = vec![Write::Put(schema::KEY.into(), schema::RESTORING.into())];
    store.commit(Commit { expect, writes }).await?;
    let (mut batch, mut count, mut version) = (Batch::default(), 1, None);
    batch.push(first);
    while let Some(entry) = source.next()? {
        count += 1;
        if entry.key == schema::KEY {
            version = entry.value;
            continue;
        }
        if entry.key == mark::KEY {
            continue; // this restore has its own
        }
        if !batch.takes(&entry) {
            batch.commit(store).await?;
        }
        batch.push(entry);
    }
    batch.commit(store).await?;
    let version = version.ok_or(RestoreError::Damaged)?;
    let writes = vec![Write::Put(schema::KEY.into(), version), mark::to_write()];
    store.commit(Commit { writes, ..Commit::default() }).await?;
    Ok(count)
}

/// Entries that are committed together.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    bytes: usize,
}

impl Batch {
    fn takes(&self, entry: &Entry) -> bool {
        let length = entry.value.as_ref().map_or(0, Bytes::len);
        self.writes.len() < limits::MAX_WRITES
            && self.bytes + length <= COMMIT_VALUE_BYTES
            && !self.writes.iter().any(|write| write.key() == entry.key)
    }

    fn push(&mut self, Entry { key, value }: Entry) {
        self.bytes += value.as_ref().map_or(0, Bytes::len);
        self.writes.push(match value {
            Some(value) => Write::Put(key, value),
            None => Write::Delete(key),
        });
    }

    async fn commit(&mut self, store: &dyn Store) -> Result<(), RestoreError> {
        let Self { writes, .. } = std::mem::take(self);
        store.commit(Commit { writes, ..Commit::default() }).await?;
        Ok(())
    }
}

/// The bytes of a backup.
struct BackupReader<'a, R> {
    from: &'a mut R,
    digest: Sha256,
}

impl<R: BufRead> BackupReader<'_, R> {
    fn header(&mut self) -> Result<(), RestoreError> {
        match self.read(HEADER.len())? {
            found if found == HEADER => Ok(()),
            _ => Err(RestoreError::NoBackup),
        }
    }

    /// Returns the next entry; none after the last one, if everything before it was read as it was written.
    fn next(&mut self) -> Result<Option<Entry>, RestoreError> {
        let before = self.digest.clone().finalize();
        let mut length = 0;
        for shift in (0..28).step_by(7) {
            let [byte] = self.read(1)?[..] else { return Err(RestoreError::Damaged) };
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if length > MAX_ENTRY_BYTES {
            return Err(RestoreError::Damaged);
        }
        let entry = Entry::decode(Bytes::from(self.read(length)?));
        let entry = entry.map_err(|_| RestoreError::Damaged)?;
        match entry.key.is_empty() {
            false => Ok(Some(entry)),
            true if entry.value.as_deref() == Some(before.as_slice()) => Ok(None),
            true => Err(RestoreError::Damaged),
        }
    }

    fn read(&mut self, length: usize) -> Result<Vec<u8>, RestoreError> {
        let mut bytes = vec![0; length];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(RestoreError::Damaged);
            }
            Err(error) => return Err(RestoreError::Read(error)),
        }
        self.digest.update(&bytes);
        Ok(bytes)
    }
}
