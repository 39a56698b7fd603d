//! Content by its digest: objects, and the records that name them.
//!
//! The crate's documentation says why no content is lost.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use runtime::Clock;
use sha2::{Digest as _, Sha256};
use store::ScopedStore;
use store::records::{self, Change, Records};
use tokio::sync::Notify;

use crate::error::Error;
use crate::objects::{self, Object, Objects, Writer};
use crate::stored::{Blob, BlobKind, ContentKind, DiskContent, StagedKind, StagedObject};
use crate::suspects::Suspects;

/// Attempts to commit while others come first.
const MAX_ATTEMPTS: usize = 32;

/// The content of a site.
#[derive(Clone, Debug)]
pub struct Blobs {
    /// None: the site has no object store.
    objects: Option<Objects>,
    records: Records<BlobKind>,
    staged: Records<StagedKind>,
    contents: Records<ContentKind>,
    suspects: Suspects,
    repaired: Arc<Notify>,
    clock: Clock,
}

/// Why content cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not stored.
    #[error("is missing")]
    Missing,
    /// Its bytes are not those that were stored.
    #[error("is damaged: {0}")]
    Damaged(String),
}

/// Bytes of content, as they are read.
pub type BlobBytes = BoxStream<'static, Result<Bytes, objects::Error>>;

impl Blobs {
    /// The content in `objects`, with records in `store`.
    pub fn new(store: ScopedStore, objects: Option<Objects>, clock: Clock) -> Self {
        Self {
            objects,
            records: Records::new(store.clone()),
            staged: Records::new(store.clone()),
            contents: Records::new(store),
            suspects: Suspects::default(),
            repaired: Arc::default(),
            clock,
        }
    }

    /// Returns the records.
    pub fn records(&self) -> &Records<BlobKind> {
        &self.records
    }

    /// Returns the records of objects that are being written.
    pub fn staged(&self) -> &Records<StagedKind> {
        &self.staged
    }

    /// Returns the records of disks by their content.
    pub fn contents(&self) -> &Records<ContentKind> {
        &self.contents
    }

    /// Returns the content that machines found to be wrong.
    pub(crate) fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Waits until damaged content was stored again.
    pub(crate) async fn repaired(&self) {
        self.repaired.notified().await;
    }

    /// Returns the objects, if the site has an object store.
    pub fn objects(&self) -> Result<&Objects, Error> {
        self.objects.as_ref().ok_or(Error::NoObjectStore)
    }

    /// Passes if the site has an object store.
    pub fn require_store(&self) -> Result<(), Error> {
        self.objects().map(drop)
    }

    /// Returns the size of the content `digest`.
    pub async fn size(&self, digest: &str) -> Result<u64, Error> {
        self.require_store()?;
        let blob = self.records.get(digest).await?;
        Ok(blob.ok_or_else(|| Error::BlobMissing(digest.to_owned()))?.size_bytes)
    }

    /// Returns `range` of the content `digest`, or all of it.
    pub async fn read(&self, digest: &str, range: Option<Range<u64>>) -> Result<BlobBytes, Error> {
        let objects = self.objects()?;
        let blob = self.records.get(digest).await?;
        let blob = blob.ok_or_else(|| Error::BlobMissing(digest.to_owned()))?;
        Ok(objects.read(&blob.object, range).await?)
    }

    /// Stores `content`, which must have the `digest` and at most `max` bytes.
    pub async fn write(
        &self,
        digest: &str,
        content: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
        max: u64,
    ) -> Result<(), Error> {
        self.require_store()?;
        if self.reuse(digest).await? {
            return drain(content, digest, max).await;
        }
        let mut staged = self.stage(digest).await?;
        let written = self.write_object(&mut staged, digest, content, max).await;
        let published = match written {
            Ok(size) => self.publish(&staged, digest, size).await,
            Err(error) => Err(error),
        };
        if published.is_err() {
            // Best effort: else the sweep of staged objects removes it.
            let _removed = self.drop_staged(&staged).await;
        }
        published
    }

    /// Records a new object that is about to be written.
    pub async fn stage(&self, digest: &str) -> Result<StagedObject, Error> {
        let object = Objects::new_name(digest);
        let create_time = Some(self.clock.wall().into());
        let staged = StagedObject { object, create_time, ..StagedObject::default() };
        Ok(self.staged.create(&staged, Change::default(), None).await?)
    }

    /// Begins to write a `staged` object. Its record names the multipart upload before that has a
    /// part, so that an unfinished one is aborted at the latest with the record.
    async fn begin(&self, staged: &mut StagedObject) -> Result<Writer, Error> {
        let writer = self.objects()?.write(&staged.object).await?;
        if !writer.upload_id().is_empty() {
            let named = StagedObject { upload_id: writer.upload_id().into(), ..staged.clone() };
            *staged = self.staged.replace(staged, named).await?;
        }
        Ok(writer)
    }

    /// Writes a `staged` object. Returns its size.
    async fn write_object(
        &self,
        staged: &mut StagedObject,
        digest: &str,
        mut content: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
        max: u64,
    ) -> Result<u64, Error> {
        let mut writer = self.begin(staged).await?;
        let mut check = Check::new(digest, max);
        while let Some(bytes) = content.next().await {
            let added = match bytes {
                Ok(bytes) => match check.add(&bytes) {
                    Ok(()) => writer.write(bytes).await.map_err(Error::from),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = added {
                let _aborted = writer.abort().await;
                return Err(error);
            }
        }
        match check.finish() {
            Ok(size) => {
                writer.finish().await?;
                Ok(size)
            }
            Err(error) => {
                let _aborted = writer.abort().await;
                Err(error)
            }
        }
    }

    /// Makes a `staged` object, which is written and durable, the content `digest`. If another one
    /// is that already, and not damaged, the object is removed.
    pub async fn publish(
        &self,
        staged: &StagedObject,
        digest: &str,
        size: u64,
    ) -> Result<(), Error> {
        for _ in 0..MAX_ATTEMPTS {
            if self.reuse(digest).await? {
                return self.drop_staged(staged).await;
            }
            let now = Some(self.clock.wall().into());
            let blob = Blob {
                digest: digest.to_owned(),
                object: staged.object.clone(),
                size_bytes: size,
                use_time: now,
                check_time: now,
                ..Blob::default()
            };
            let Some((named, is_repair)) = self.to_name(blob).await? else { continue };
            match self.records.commit(named.and(self.staged.to_delete(staged))).await {
                Ok(_) => {
                    if is_repair {
                        self.announce_repair();
                    }
                    return Ok(());
                }
                Err(records::Error::Exists { .. } | records::Error::Changed { .. })
                    if self.is_unchanged(staged).await? => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Busy)
    }

    /// True if the record of `staged` is as it was.
    async fn is_unchanged(&self, staged: &StagedObject) -> Result<bool, Error> {
        Ok(self.staged.get(&staged.object).await?.as_ref() == Some(staged))
    }

    /// Returns the change that records `blob`, and true if it takes the place of a damaged one, whose
    /// object nothing names then; none if there is a sound one.
    async fn to_name(&self, blob: Blob) -> Result<Option<(Change, bool)>, Error> {
        let Some(old) = self.records.get(&blob.digest).await? else {
            return Ok(Some((self.records.to_create(&blob), false)));
        };
        let new = Blob { uses: old.uses + 1, revision: old.revision, ..blob };
        Ok((!old.damage.is_empty()).then(|| (self.records.to_replace(&old, &new), true)))
    }

    /// Has the images looked at: content was stored in place of damaged content.
    pub(crate) fn announce_repair(&self) {
        self.repaired.notify_one();
    }

    /// Stores that the bytes of `blob` were compared with its digest now, and how they differ. It
    /// stays as it is if it was replaced or collected meanwhile.
    pub(crate) async fn set_checked(&self, blob: &Blob, damage: &str) -> Result<(), Error> {
        if !damage.is_empty() {
            tracing::error!(blob.digest, blob.object, damage, "content damaged");
        }
        for _ in 0..MAX_ATTEMPTS {
            let Some(now) = self.records.get(&blob.digest).await? else { return Ok(()) };
            if now.object != blob.object {
                return Ok(());
            }
            let check_time = Some(self.clock.wall().into());
            let checked = Blob { check_time, damage: damage.to_owned(), ..now.clone() };
            match self.records.commit(self.records.to_replace(&now, &checked)).await {
                Err(records::Error::Changed { .. }) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
        Err(Error::Busy)
    }

    /// True if the content `digest` is stored and not damaged: then it stays for the time of a new use.
    async fn reuse(&self, digest: &str) -> Result<bool, Error> {
        for _ in 0..MAX_ATTEMPTS {
            let blob = self.records.get(digest).await?.filter(|blob| blob.damage.is_empty());
            let Some(blob) = blob else { return Ok(false) };
            if !self.objects()?.exists(&blob.object, blob.size_bytes).await? {
                return self.forget(&blob).await.map(|()| false);
            }
            match self.records.commit(self.used(&blob)).await {
                Ok(_) => return Ok(true),
                Err(records::Error::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Busy)
    }

    /// Removes the record of a blob without an object, so that the content can be stored again.
    async fn forget(&self, blob: &Blob) -> Result<(), Error> {
        tracing::error!(blob.digest, blob.object, "content lost: its object is missing");
        match self.records.commit(self.records.to_delete(blob)).await {
            Ok(_) | Err(records::Error::Changed { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// True if the content `digest` is stored, and not known to be damaged.
    pub async fn is_stored(&self, digest: &str) -> Result<bool, Error> {
        Ok(self.to_use_stored(digest).await?.is_ok())
    }

    /// Returns the change that marks the content `digest` as used now, or why it cannot be used: its
    /// record or its object is missing, or its bytes are damaged. The object stays while the record
    /// does, so the change fails if the object was removed meanwhile.
    pub async fn to_use_stored(&self, digest: &str) -> Result<Result<Change, Fault>, Error> {
        let Some(blob) = self.records.get(digest).await? else { return Ok(Err(Fault::Missing)) };
        if !blob.damage.is_empty() {
            return Ok(Err(Fault::Damaged(blob.damage)));
        }
        let has_object = self.objects()?.exists(&blob.object, blob.size_bytes).await?;
        Ok(if has_object { Ok(self.used(&blob)) } else { Err(Fault::Missing) })
    }

    /// Returns the change that marks the content `digest` as used now; none if it has no record.
    pub async fn to_use(&self, digest: &str) -> Result<Option<Change>, Error> {
        let blob = self.records.get(digest).await?;
        Ok(blob.map(|blob| self.used(&blob)))
    }

    fn used(&self, blob: &Blob) -> Change {
        let use_time = Some(self.clock.wall().into());
        let used = Blob { use_time, uses: blob.uses + 1, ..blob.clone() };
        self.records.to_replace(blob, &used)
    }

    /// Removes a staged object: first its record, then the object. Parts of an unfinished one go
    /// before the record, because nothing else names them.
    pub async fn drop_staged(&self, staged: &StagedObject) -> Result<(), Error> {
        if !staged.upload_id.is_empty() {
            self.objects()?.abort(&staged.object, &staged.upload_id).await?;
        }
        match self.staged.commit(self.staged.to_delete(staged)).await {
            Ok(_) => Ok(self.objects()?.remove(&staged.object).await?),
            // It was published or dropped meanwhile.
            Err(records::Error::Changed { .. } | records::Error::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes `object` if no record names it. An object that was written a moment ago has a record.
    pub async fn remove_unnamed(&self, object: &Object) -> Result<bool, Error> {
        // In the order of an object's life, so that no transition is missed.
        if self.staged.get(&object.name).await?.is_some() {
            return Ok(false);
        }
        let digest = object.name.split('.').next().unwrap_or_default();
        let blob = self.records.get(digest).await?;
        if blob.is_some_and(|blob| blob.object == object.name) {
            return Ok(false);
        }
        self.objects()?.remove(&object.name).await?;
        Ok(true)
    }

    /// Collects `blob`, which no image has: its record and the contents that it is part of, then its
    /// object. False if the blob was used meanwhile.
    pub async fn collect(&self, blob: &Blob, contents: &[DiskContent]) -> Result<bool, Error> {
        let change = contents
            .iter()
            .fold(self.records.to_delete(blob), |all, it| all.and(self.contents.to_delete(it)));
        match self.records.commit(change).await {
            Ok(_) => {
                self.objects()?.remove(&blob.object).await?;
                Ok(true)
            }
            Err(records::Error::Changed { .. } | records::Error::Missing { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// True if `time` is at least `age` before `now`.
pub(crate) fn is_older(
    time: Option<prost_types::Timestamp>,
    age: Duration,
    now: SystemTime,
) -> bool {
    let time = time.and_then(|time| SystemTime::try_from(time).ok());
    time.is_none_or(|time| now.duration_since(time).is_ok_and(|passed| passed >= age))
}

/// The check of content while it arrives.
struct Check<'a> {
    digest: &'a str,
    sum: Sha256,
    size: u64,
    max: u64,
}

impl<'a> Check<'a> {
    fn new(digest: &'a str, max: u64) -> Self {
        Self { digest, sum: Sha256::new(), size: 0, max }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.size += bytes.len() as u64;
        if self.size > self.max {
            return Err(Error::TooLong { max: self.max });
        }
        self.sum.update(bytes);
        Ok(())
    }

    fn finish(self) -> Result<u64, Error> {
        let found = hex(&self.sum.finalize());
        match found == self.digest {
            true => Ok(self.size),
            false => Err(Error::Digest { expected: self.digest.to_owned(), found }),
        }
    }
}

/// Reads content that is stored already. It is checked all the same, so that nobody learns from the
/// answer what is stored.
async fn drain(
    mut content: impl Stream<Item = Result<Bytes, Error>> + Unpin,
    digest: &str,
    max: u64,
) -> Result<(), Error> {
    let mut check = Check::new(digest, max);
    while let Some(bytes) = content.next().await {
        check.add(&bytes?)?;
    }
    check.finish().map(drop)
}

/// Returns `bytes` in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True if `text` is a SHA-256 in hexadecimal digits, in lower case.
pub fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(is_digit)
}
