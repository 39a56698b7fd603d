//! A slot: works on one build after the other.
//!
//! ```text
//! lease ─▶ pin ─▶ fetch ─▶ convert ─▶ compress ─▶ store ─▶ finish ─▶ lease …
//!   renewed at the same time;  └──────────◀── BLOB_MISSING ──┘
//!   lost: all of it is dropped, the sandbox is killed, and scratch removed
//! ```
//!
//! A builder that stops says nothing to the server: the lease ends by itself, and a builder that
//! starts again with the same name gets the build back.

use std::path::Path;
use std::sync::Arc;

use disk_images::{Format, Kind};
use runtime::retry::Backoff;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::image_source::Source;
use tinwright::image::v1::{BuildFailure, BuiltContent, ImageKind, ImageSource};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

use crate::blobs;
use crate::calls::{Finish, Lease, Lost, Service};
use crate::content::Built;
use crate::failure::Failure;
use crate::isolation::{self, Conversion, Converted};
use crate::progress::{Progress, Step};
use crate::scratch::{BuildScratch, Folder};
use crate::settings::SandboxLimits;
use crate::source::{Fetcher, Wanted};
use crate::store::{Raw, Stored, Storing};

/// Number of times that content is stored which the server then misses.
const MAX_STORINGS: u32 = 3;
/// Room for headers and tables of a format, as a fraction of the content's maximum size, and the
/// least of it in bytes.
const SOURCE_SLACK: (u64, u64) = (64, 16 << 20);

/// A slot of a builder.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) service: Service,
    pub(crate) fetcher: Fetcher,
    pub(crate) sandbox: SandboxLimits,
    pub(crate) folder: Arc<Folder>,
}

/// An attempt to do a build.
struct Attempt<'a> {
    slot: &'a Slot,
    lease: &'a Lease,
    progress: Progress,
    /// Threads that work for the attempt.
    tasks: TaskTracker,
}

impl Slot {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (first, max) = self.service.timing.retry_delays;
        let mut backoff = Backoff::new(first, max);
        while let Some(lease) = stop.run_until_cancelled(self.service.lease()).await {
            match self.work(&lease, &stop).await {
                true => backoff.reset(),
                // The same build is leased again: not at once.
                false => drop(stop.run_until_cancelled(backoff.wait()).await),
            }
        }
    }

    /// Works on a build until it has ended, or the lease is lost, or `stop`. False if the server
    /// still takes it for this slot's.
    #[tracing::instrument(skip_all, fields(build.id = %lease.id, attempt = lease.attempt))]
    async fn work(&self, lease: &Lease, stop: &CancellationToken) -> bool {
        tracing::info!(image.id = lease.build.image_id, "build leased");
        let progress = Progress::new();
        let attempt = Attempt { slot: self, lease, progress, tasks: TaskTracker::new() };
        let has_ended = tokio::select! {
            has_ended = attempt.run() => has_ended,
            lost = self.service.renew(lease, &attempt.progress) => {
                log_lost(&lost);
                true
            }
            () = stop.cancelled() => true,
        };
        // They end soon: the work that they belong to was dropped.
        attempt.tasks.close();
        attempt.tasks.wait().await;
        has_ended
    }
}

impl Attempt<'_> {
    async fn run(&self) -> bool {
        let done = async {
            isolation::require().await?;
            let scratch = self.slot.folder.create(self.lease.id, self.lease.attempt)?;
            let scratch = Arc::new(scratch);
            let built = self.build(&scratch).await?;
            Ok((scratch, built))
        };
        match done.await {
            Ok((scratch, built)) => {
                let has_ended = self.hand_over(&built).await;
                drop(scratch);
                has_ended
            }
            Err(failure) => self.fail(failure).await,
        }
    }

    /// Makes the stored form of the content in `scratch`.
    async fn build(&self, scratch: &Arc<BuildScratch>) -> Result<Built, Failure> {
        let build = &self.lease.build;
        let source = self.pinned(build.source.clone().unwrap_or_default()).await?;
        let declared = declared_format(&source.format)?;
        let max_bytes = self.lease.max_size_bytes;
        let wanted = Wanted {
            image_id: &build.image_id,
            source: &source,
            max_bytes: max_source_bytes(max_bytes),
        };
        let fetched = self.slot.fetcher.fetch(&wanted, scratch, &self.progress).await?;
        let kind = match build.kind() {
            ImageKind::Archive => Kind::Archive,
            ImageKind::Disk | ImageKind::Unspecified => Kind::Disk,
        };
        let conversion = Conversion {
            source: fetched.path,
            name: fetched.name,
            declared,
            kind,
            is_layer: matches!(source.source, Some(Source::Oci(_))),
            max_bytes,
        };
        let limits = &self.slot.sandbox;
        let converted = isolation::run(&conversion, limits, scratch, &self.progress).await?;
        discard(&conversion.source).await?;
        let Converted { content, format, wrappings, properties } = converted;
        let stored = self.compress(content, kind, scratch).await?;
        let source_sha256 = fetched.sha256;
        Ok(Built { stored, source_sha256, format, wrappings, properties })
    }

    /// Returns `source` with the digest of its tag, if it has one. The server has the digest before
    /// anything is downloaded by it.
    async fn pinned(&self, mut source: ImageSource) -> Result<ImageSource, Failure> {
        let pinned = self.slot.fetcher.pin(&source).await?;
        if let (Some(pinned), Some(Source::Oci(oci))) = (pinned, &mut source.source) {
            let report = self.progress.present();
            let stored = self.slot.service.pin(self.lease, report, &pinned).await;
            stored.map_err(|status| Failure::host("pinned reference", status.message()))?;
            oci.pinned_reference = pinned;
        }
        Ok(source)
    }

    /// Makes the stored form in another thread, which ends when this is dropped.
    async fn compress(
        &self,
        raw: Raw,
        kind: Kind,
        scratch: &Arc<BuildScratch>,
    ) -> Result<Stored, Failure> {
        self.progress.begin(Step::Compressing, raw.size_bytes);
        let path = raw.path.clone();
        let stop = CancellationToken::new();
        let _stop_when_dropped = stop.clone().drop_guard();
        let storing = Storing { scratch: scratch.clone(), progress: self.progress.clone(), stop };
        let stored = self.tasks.spawn_blocking(move || match kind {
            Kind::Disk => storing.disk(&raw),
            Kind::Archive => storing.archive(&raw),
        });
        let stored = stored.await.map_err(|error| Failure::host("compressing", error))??;
        discard(&path).await?;
        Ok(stored)
    }

    /// Stores the content and ends the build with it. False if the server does not accept that.
    async fn hand_over(&self, built: &Built) -> bool {
        for _ in 0..MAX_STORINGS {
            if let Err(failure) = self.put(&built.stored).await {
                return self.fail(failure).await;
            }
            let content = Outcome::Content(BuiltContent::from(built));
            match self.slot.service.finish(self.lease, content).await {
                Finish::Accepted => {
                    tracing::info!(sha256 = built.stored.sha256, "build completed");
                    return true;
                }
                Finish::BlobMissing(status) => {
                    tracing::warn!(reason = status.message(), "stored content is missing");
                }
                Finish::Lost(lost) => {
                    log_lost(&lost);
                    return true;
                }
                Finish::Refused(status) => {
                    return self.fail(refused(&status)).await;
                }
            }
        }
        let problem = "builder: the image service misses stored content again and again";
        self.fail(Failure::temporary(problem)).await
    }

    async fn put(&self, stored: &Stored) -> Result<(), Failure> {
        let Service { channel, timing, .. } = &self.slot.service;
        for blob in [Some(&stored.file), stored.map.as_ref()].into_iter().flatten() {
            self.progress.begin(Step::Storing, blob.bytes);
            blobs::put(channel, blob, &self.progress, timing).await?;
        }
        Ok(())
    }

    /// Ends the build with a failure. False if the server does not accept that.
    async fn fail(&self, failure: Failure) -> bool {
        let Failure { reason, may_retry } = failure;
        tracing::warn!(reason, may_retry, "build failed");
        let failure = Outcome::Failure(BuildFailure { reason, may_retry });
        match self.slot.service.finish(self.lease, failure).await {
            Finish::Accepted => true,
            Finish::Lost(lost) => {
                log_lost(&lost);
                true
            }
            Finish::BlobMissing(status) | Finish::Refused(status) => {
                let reason = status.message();
                tracing::error!(code = %status.code(), reason, "the failure of the build is not accepted");
                false
            }
        }
    }
}

/// The failure of a build with a result that the server does not accept.
fn refused(status: &Status) -> Failure {
    let reason = status.message();
    Failure::permanent(format_args!("builder: the image service refused the result: {reason}"))
}

fn log_lost(lost: &Lost) {
    tracing::info!(reason = %lost, "build stopped: the lease is lost");
}

fn declared_format(name: &str) -> Result<Option<Format>, Failure> {
    match (name, Format::of_name(name)) {
        ("", _) => Ok(None),
        (_, Some(format)) => Ok(Some(format)),
        _ => Err(Failure::permanent(format_args!("source.format: unknown format: {name:?}"))),
    }
}

/// Returns the maximum size of the source of a content of at most `bytes` bytes.
fn max_source_bytes(bytes: u64) -> u64 {
    let (fraction, least) = SOURCE_SLACK;
    bytes.saturating_add((bytes / fraction).max(least))
}

/// Removes a file of the scratch that is not needed any more.
async fn discard(path: &Path) -> Result<(), Failure> {
    tokio::fs::remove_file(path).await.map_err(|error| Failure::host("scratch", error))
}
