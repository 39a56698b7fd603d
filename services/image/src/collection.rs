//! Removes content that no image has.
//!
//! - A blob that no image has, a day after its last use.
//! - An object that was begun a day ago, and is no blob yet.
//! - An object that no record names.
//! - What removed uploads left.
//!
//! Nothing is removed while the store has the mark of a restore: it does not know what was stored after
//! its backup.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use runtime::Clock;
use store::backup::RestoreMark;
use store::{ScopedStore, Store as _};

use crate::blobs::{Blobs, is_older};
use crate::error::Error;
use crate::kinds::BLOB_INDEX;
use crate::stored::{Blob, CONTENT_BLOB_INDEX};
use crate::uploads::Uploads;

/// Records of one page.
const PAGE_RECORDS: usize = 200;
/// Maximum number of disks that one blob is part of, in one commit.
const MAX_CONTENTS: usize = 100;

/// What a collection removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blobs that no image had.
    pub blobs: usize,
    /// Objects that were not written to their end.
    pub staged: usize,
    /// Objects that no record named.
    pub objects: usize,
}

/// Removes unused content.
#[derive(Clone, Debug)]
pub struct Collector {
    store: ScopedStore,
    mark: RestoreMark,
    blobs: Blobs,
    uploads: Uploads,
    retention: Duration,
    clock: Clock,
}

impl Collector {
    /// Removes content of `blobs` that no image in `store` has, after `retention`, and what is left
    /// of `uploads`. Removes nothing while there is a `mark`.
    pub fn new(
        store: ScopedStore,
        mark: RestoreMark,
        blobs: Blobs,
        uploads: Uploads,
        retention: Duration,
        clock: Clock,
    ) -> Self {
        Self { store, mark, blobs, uploads, retention, clock }
    }

    /// Removes what is unused now. None: the store was restored, and nothing is removed.
    pub async fn collect(&self) -> Result<Option<Collected>, Error> {
        if self.mark.is_set().await? {
            return Ok(None);
        }
        let collected = Collected {
            blobs: self.collect_blobs().await?,
            staged: self.collect_staged().await?,
            objects: self.collect_unnamed().await?,
        };
        self.uploads.sweep().await?;
        Ok(Some(collected))
    }

    /// Removes the upload of `image`, which does not need it any more, unless the store was restored.
    pub async fn remove_upload(&self, image: &str) -> Result<(), Error> {
        match self.mark.is_set().await? {
            true => Ok(()),
            false => self.uploads.remove(image).await,
        }
    }

    /// Waits until the store has no mark of a restore.
    pub async fn resumed(&self) -> Result<(), Error> {
        Ok(self.mark.removed().await?)
    }

    async fn collect_blobs(&self) -> Result<usize, Error> {
        let (mut after, mut collected) = (String::new(), 0);
        loop {
            let (page, more) = self.blobs.records().page("", &after, PAGE_RECORDS).await?;
            for blob in &page {
                collected += usize::from(self.collect_blob(blob).await?);
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.digest),
                None => return Ok(collected),
            }
        }
    }

    /// Collects `blob` if it is unused. The images that have it are read after the blob, so that a
    /// use that comes later is a change of the blob.
    async fn collect_blob(&self, blob: &Blob) -> Result<bool, Error> {
        if !is_older(blob.use_time, self.retention, self.clock.wall()) {
            return Ok(false);
        }
        let images = format!("{BLOB_INDEX}/{}/", blob.digest);
        if !self.store.list(&images, "", 1).await?.pairs.is_empty() {
            return Ok(false);
        }
        let contents = self.blobs.contents();
        let parts = contents
            .list_indexed(CONTENT_BLOB_INDEX, &blob.digest, "", MAX_CONTENTS, |_| true)
            .await?;
        self.blobs.collect(blob, &parts.records).await
    }

    async fn collect_staged(&self) -> Result<usize, Error> {
        let (mut after, mut collected) = (String::new(), 0);
        loop {
            let (page, more) = self.blobs.staged().page("", &after, PAGE_RECORDS).await?;
            for staged in &page {
                if is_older(staged.create_time, self.retention, self.clock.wall()) {
                    self.blobs.drop_staged(staged).await?;
                    collected += 1;
                }
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.object),
                None => return Ok(collected),
            }
        }
    }

    async fn collect_unnamed(&self) -> Result<usize, Error> {
        let mut objects = self.blobs.objects()?.list();
        let mut collected = 0;
        while let Some(object) = objects.try_next().await? {
            collected += usize::from(self.blobs.remove_unnamed(&object).await?);
        }
        Ok(collected)
    }
}
