//! Reads stored content again and compares it with its digest: each blob once a month, and at once
//! what a machine found to be wrong.
//!
//! Content that differs is damaged, and so are the images that have it, until the same content is
//! stored again.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use runtime::Clock;
use sha2::{Digest as _, Sha256};

use crate::blobs::{Blobs, hex, is_older};
use crate::error::Error;
use crate::objects;
use crate::stored::Blob;

/// Content is read again after this time.
const INTERVAL: Duration = Duration::from_hours(30 * 24);
/// Content that was read within this time is not read again because of a suspicion.
const MIN_INTERVAL: Duration = Duration::from_mins(10);
/// Bytes that are read before a pause, and its duration: at most 64 MiB are read in a second, since the
/// disk is there for machines.
const BYTES_PER_PAUSE: usize = 8 << 20;
const PAUSE: Duration = Duration::from_millis(125);
/// Records of one page.
const PAGE_RECORDS: usize = 200;

/// Compares stored content with its digests.
#[derive(Clone, Debug)]
pub(crate) struct Scrubber {
    blobs: Blobs,
    clock: Clock,
}

impl Scrubber {
    /// Reads the content of `blobs`.
    pub(crate) fn new(blobs: Blobs, clock: Clock) -> Self {
        Self { blobs, clock }
    }

    /// Reads the content that machines found to be wrong. True if some is damaged.
    pub(crate) async fn check_suspects(&self) -> Result<bool, Error> {
        let mut found = false;
        while let Some(digest) = self.blobs.suspects().take() {
            found |= self.check_if_older(&digest, MIN_INTERVAL).await?;
        }
        Ok(found)
    }

    /// Reads the content that was not read for a month. True if some is damaged.
    pub(crate) async fn check_old(&self) -> Result<bool, Error> {
        let (mut after, mut found) = (String::new(), false);
        loop {
            let (page, more) = self.blobs.records().page("", &after, PAGE_RECORDS).await?;
            for blob in &page {
                found |= self.check_if_older(&blob.digest, INTERVAL).await?;
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.digest),
                None => return Ok(found),
            }
        }
    }

    /// Reads the content `digest` unless that was done within `age`, also by another process. True if
    /// it is damaged.
    async fn check_if_older(&self, digest: &str, age: Duration) -> Result<bool, Error> {
        let Some(blob) = self.blobs.records().get(digest).await? else { return Ok(false) };
        if !blob.damage.is_empty() || !is_older(blob.check_time, age, self.clock.wall()) {
            return Ok(false);
        }
        let damage = match self.read(&blob).await {
            Ok(Some(damage)) => damage,
            Ok(None) => return Ok(false),
            // Another blob may be readable. This one is tried again at the next interval.
            Err(error @ Error::Objects(_)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, digest, "content not read");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        self.blobs.set_checked(&blob, &damage).await?;
        Ok(!damage.is_empty())
    }

    /// Reads `blob`. Returns how it differs, as text that is empty if it does not; none if it is
    /// missing, which another check finds.
    async fn read(&self, blob: &Blob) -> Result<Option<String>, Error> {
        let mut bytes = match self.blobs.read(&blob.digest, None).await {
            Err(Error::Objects(objects::Error::Missing(_)) | Error::BlobMissing(_)) => {
                return Ok(None);
            }
            opened => opened?,
        };
        let (mut sum, mut since_pause) = (Sha256::new(), 0);
        while let Some(piece) = bytes.try_next().await? {
            sum.update(&piece);
            since_pause += piece.len();
            if since_pause >= BYTES_PER_PAUSE {
                since_pause = 0;
                tokio::time::sleep(PAUSE).await;
            }
        }
        let found = hex(&sum.finalize());
        match found == blob.digest {
            true => Ok(Some(String::new())),
            false => Ok(Some(format!("its SHA-256 is {found}"))),
        }
    }
}
