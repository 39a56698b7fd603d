//! Ends what its time has ended: leases of builders, uploads, and unused content. Marks images with
//! missing or damaged content.

use std::collections::BTreeMap;
use std::time::Duration;

use nouns::Noun as _;
use runtime::Clock;
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tokio_util::sync::CancellationToken;

use crate::blobs::is_older;
use crate::builds::Builds;
use crate::collection::{Collected, Collector};
use crate::damage::DamageCheck;
use crate::error::Error;
use crate::images::Images;
use crate::imports::Imports;
use crate::scrub::Scrubber;
use crate::uploads::{UploadFile, Uploads};

/// Interval between two looks at leases and uploads.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two collections.
const COLLECTION_INTERVAL: Duration = Duration::from_mins(15);
/// Duration after which a deletion that has not ended was interrupted.
const MAX_DELETION: Duration = Duration::from_mins(5);
/// Images of one page.
const PAGE_RECORDS: usize = 200;
/// Warning at each collection that removes nothing.
const HELD: &str = "content of images is not collected: the store was restored; \
    compare its images, then run: tinwright store resume";

/// Ends what its time has ended.
#[derive(Clone, Debug)]
pub struct Reconciler {
    images: Images,
    imports: Imports,
    builds: Builds,
    uploads: Uploads,
    damage: DamageCheck,
    scrubber: Scrubber,
    collector: Collector,
    retention: Duration,
    clock: Clock,
}

impl Reconciler {
    /// Looks after `images`, `builds` and `uploads`. An upload without a new byte fails after
    /// `retention`.
    pub fn new(
        images: &Images,
        imports: Imports,
        builds: Builds,
        uploads: Uploads,
        collector: Collector,
        retention: Duration,
        clock: Clock,
    ) -> Self {
        let damage = DamageCheck::new(images, clock.clone());
        Self {
            images: images.clone(),
            imports,
            builds,
            uploads,
            damage,
            scrubber: Scrubber::new(images.blobs().clone(), clock.clone()),
            collector,
            retention,
            clock,
        }
    }

    /// Works until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let look = async {
            let mut interval = tokio::time::interval(INTERVAL);
            loop {
                interval.tick().await;
                log("leases and uploads not looked at", self.look().await);
            }
        };
        let work = async {
            tokio::join!(look, self.keep_collecting(), self.keep_scrubbing(), self.keep_repairing())
        };
        stop.run_until_cancelled(Box::pin(work)).await;
    }

    /// Checks and collects content at each interval, and when an operator lets it be collected
    /// again. Returns if the site has no object store.
    async fn keep_collecting(&self) {
        let mut interval = tokio::time::interval(COLLECTION_INTERVAL);
        let mut is_held = false;
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.resumed(), if is_held => {}
            }
            match self.check_damage().await {
                Err(Error::NoObjectStore) => return,
                outcome => log("content not checked", outcome),
            }
            let collected = self.collect().await;
            is_held = matches!(collected, Ok(None));
            match collected {
                Err(Error::NoObjectStore) => return,
                Ok(None) => tracing::warn!("{HELD}"),
                outcome => log("content not collected", outcome.map(drop)),
            }
        }
    }

    /// Reads old content again at each interval, which may take hours. Returns if the site has no
    /// object store.
    async fn keep_scrubbing(&self) {
        if self.images.blobs().require_store().is_err() {
            return;
        }
        let mut interval = tokio::time::interval(COLLECTION_INTERVAL);
        loop {
            interval.tick().await;
            log("content not compared with its digests", self.scrub().await);
        }
    }

    /// Reads at once what machines found to be wrong, and looks at the images when content was stored
    /// in place of damaged content.
    async fn keep_repairing(&self) {
        let blobs = self.images.blobs();
        loop {
            let outcome = tokio::select! {
                () = blobs.suspects().added() => self.check_suspects().await,
                () = blobs.repaired() => self.check_damage().await,
            };
            log("damage not checked", outcome);
        }
    }

    /// Reads the content that was not read for a month.
    pub(crate) async fn scrub(&self) -> Result<(), Error> {
        match self.scrubber.check_old().await? {
            true => self.check_damage().await,
            false => Ok(()),
        }
    }

    /// Reads the content that machines found to be wrong.
    pub(crate) async fn check_suspects(&self) -> Result<(), Error> {
        match self.scrubber.check_suspects().await? {
            true => self.check_damage().await,
            false => Ok(()),
        }
    }

    /// Waits until content may be collected. Waits for ever if the store fails: the next collection
    /// looks again.
    async fn resumed(&self) {
        if let Err(error) = self.collector.resumed().await {
            log("the end of a restore is not awaited", Err(error));
            std::future::pending().await
        }
    }

    /// Marks images with missing or damaged content, and those that have it again.
    pub async fn check_damage(&self) -> Result<(), Error> {
        self.damage.check().await.map(drop)
    }

    /// Removes content that no image has, and what removed uploads left. None: the store was
    /// restored, and nothing is removed.
    pub async fn collect(&self) -> Result<Option<Collected>, Error> {
        self.collector.collect().await
    }

    /// Ends expired leases and uploads, and begins the builds of complete uploads.
    pub async fn look(&self) -> Result<(), Error> {
        self.builds.end_expired().await?;
        let files = self.uploads.list().await?;
        for file in &files {
            self.look_at_file(file).await?;
        }
        let files = files.into_iter().map(|file| (file.image_id.clone(), file)).collect();
        self.look_at_images(&files).await
    }

    /// Removes a file that no image needs any more.
    async fn look_at_file(&self, file: &UploadFile) -> Result<(), Error> {
        let image = match file.image_id.parse::<tinwright::ImageId>() {
            Ok(id) => self.images.records().get(&id.to_string()).await?,
            Err(_) => None,
        };
        let is_needed = image.is_some_and(|image| {
            matches!(image.state(), ImageState::Uploading | ImageState::Processing)
        });
        if is_needed { Ok(()) } else { self.collector.remove_upload(&file.image_id).await }
    }

    async fn look_at_images(&self, files: &BTreeMap<String, UploadFile>) -> Result<(), Error> {
        let is_looked_at =
            |image: &pb::Image| image.state() == ImageState::Uploading || image.deleting;
        let mut after = String::new();
        loop {
            let page = self.images.records().list(&after, PAGE_RECORDS, is_looked_at).await?;
            for image in &page.records {
                if image.deleting {
                    self.images.remove_old_mark(image, MAX_DELETION).await?;
                    continue;
                }
                self.look_at_upload(image, files.get(&image.id)).await?;
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// Begins the build of a complete upload, and ends one without a new byte.
    async fn look_at_upload(
        &self,
        image: &pb::Image,
        file: Option<&UploadFile>,
    ) -> Result<(), Error> {
        if image.stored_bytes > 0 && file.is_some_and(|file| file.size == image.stored_bytes) {
            return self.imports.begin_if_complete(&image.id, image.stored_bytes).await;
        }
        let now = self.clock.wall();
        let last_byte = file.map(|file| file.modified.into());
        let is_late = is_older(image.update_time, self.retention, now)
            && is_older(last_byte, self.retention, now);
        if !is_late {
            return Ok(());
        }
        self.imports.expire(&image.id, self.retention).await?;
        self.collector.remove_upload(&image.id).await
    }
}

fn log(text: &'static str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        tracing::warn!(error = &error as &dyn std::error::Error, "{text}; trying again");
    }
}
