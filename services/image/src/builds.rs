//! The builds in the store.

use std::time::{Duration, SystemTime};

use runtime::Clock;
use store::ScopedStore;
use store::mirror::Mirror;
use store::records::{self, Change, Records};
use tinwright::BuildId;
use tinwright::image::v1 as pb;
use tinwright::image::v1::{BuildState, ImageState};
use tinwright::watch::WatchEvent;

use crate::error::Error;
use crate::kinds::{BuildKind, ImageKind, LIVE, LIVE_INDEX};
use crate::lifecycle::{self, Attempt};
use crate::source;

/// Repetitions of a change that another writer preceded.
const MAX_REPETITIONS: usize = 32;
/// Builds of one page.
const PAGE_RECORDS: usize = 100;

/// Progress that a builder reports.
#[derive(Clone, Debug, Default)]
pub struct ReportedProgress {
    /// The present step.
    pub step: String,
    /// Its progress.
    pub bytes: Option<pb::ImageProgress>,
    /// The pinned reference of the source, or empty.
    pub pinned_reference: String,
}

/// The builds, and the states of their images.
#[derive(Clone, Debug)]
pub struct Builds {
    records: Records<BuildKind>,
    images: Records<ImageKind>,
    clock: Clock,
    lease: Duration,
}

impl Builds {
    /// The builds in `store`. A builder's lease has the duration `lease`.
    pub fn new(store: ScopedStore, clock: Clock, lease: Duration) -> Self {
        Self { records: Records::new(store.clone()), images: Records::new(store), clock, lease }
    }

    /// Returns the records.
    pub fn records(&self) -> &Records<BuildKind> {
        &self.records
    }

    /// Returns the duration of a lease.
    pub fn lease_duration(&self) -> Duration {
        self.lease
    }

    /// Leases a build to `holder`, as soon as one of `mirror` is pending. The same holder gets the
    /// build that it has.
    pub async fn lease(
        &self,
        mirror: &Mirror<BuildKind>,
        holder: &str,
    ) -> Result<pb::Build, Error> {
        loop {
            let mut watcher = mirror.watch();
            while let Ok(event) = watcher.next().await {
                let WatchEvent::Put(build) = event else { continue };
                if let Some(build) = self.try_lease(&build.id, holder).await? {
                    return Ok(build);
                }
            }
        }
    }

    /// Leases the build `id` to `holder`, if it is pending or the holder has it already.
    pub(crate) async fn try_lease(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<pb::Build>, Error> {
        let Some(build) = self.records.get(id).await? else { return Ok(None) };
        let lease = build.lease.as_ref();
        if build.state() == BuildState::Running && lease.is_some_and(|it| it.holder == holder) {
            return Ok(Some(build));
        }
        if build.state() != BuildState::Pending {
            return Ok(None);
        }
        let leased = lifecycle::leased(build.clone(), holder, self.clock.wall(), self.lease);
        match self.records.replace(&build, leased).await {
            Ok(leased) => Ok(Some(leased)),
            Err(records::Error::Changed { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Renews the lease of `attempt`, and stores its progress.
    pub async fn report(
        &self,
        id: BuildId,
        attempt: &Attempt,
        progress: &ReportedProgress,
    ) -> Result<(), Error> {
        self.change(&id.to_string(), |build, now| {
            let mut build = lifecycle::renewed(build, attempt, now, self.lease)?;
            source::pin(build.source.as_mut(), &progress.pinned_reference);
            Ok(pb::Build { step: progress.step.clone(), progress: progress.bytes, ..build })
        })
        .await
        .map(drop)
    }

    /// Ends an attempt without content.
    pub async fn fail(
        &self,
        id: BuildId,
        attempt: &Attempt,
        failure: &pb::BuildFailure,
    ) -> Result<(), Error> {
        self.change(&id.to_string(), |build, now| {
            lifecycle::held_lease(&build, attempt)?;
            Ok(lifecycle::failed(build, &failure.reason, failure.may_retry, now))
        })
        .await
        .map(drop)
    }

    /// Cancels a build that has not ended.
    pub async fn cancel(&self, id: &str) -> Result<pb::Build, Error> {
        self.change(id, |build, now| match build.is_terminal() {
            true => Ok(build),
            false => Ok(lifecycle::ended(build, BuildState::Canceled, "", now)),
        })
        .await
    }

    /// Ends the attempts with leases that have expired. Returns their number.
    pub async fn end_expired(&self) -> Result<usize, Error> {
        let (mut after, mut ended) = (String::new(), 0);
        loop {
            let now = self.clock.wall();
            let is_expired = |build: &pb::Build| lifecycle::is_expired(build, now);
            let page = self
                .records
                .list_indexed(LIVE_INDEX, LIVE, &after, PAGE_RECORDS, is_expired)
                .await?;
            for build in page.records {
                self.change(&build.id, |build, now| {
                    let reason = format!("the builder of attempt {} is gone", build.attempts);
                    match lifecycle::is_expired(&build, now) {
                        true => Ok(lifecycle::failed(build, &reason, true, now)),
                        false => Ok(build),
                    }
                })
                .await?;
                ended += 1;
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(ended),
            }
        }
    }

    /// Changes the build `id`, and its image in the same commit.
    async fn change(
        &self,
        id: &str,
        change: impl Fn(pb::Build, SystemTime) -> Result<pb::Build, Error>,
    ) -> Result<pb::Build, Error> {
        for _ in 0..MAX_REPETITIONS {
            let old = self.records.require(id).await?;
            let now = self.clock.wall();
            let new = change(old.clone(), now)?;
            let with_image = self.image_change(&new, now).await?;
            match self.records.replace_with(&old, new, with_image).await {
                Err(records::Error::Changed { .. }) => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(Error::Busy)
    }

    /// Returns the change of the image of `build` that follows its state.
    async fn image_change(&self, build: &pb::Build, now: SystemTime) -> Result<Change, Error> {
        let Some(image) = self.images.get(&build.image_id).await? else {
            return Ok(Change::default());
        };
        let new = lifecycle::image_after(&image, build, now).filter(|new| *new != image);
        Ok(new.map(|new| self.images.to_replace(&image, &new)).unwrap_or_default())
    }
}

/// Returns a new build of `image`, and the image with it: it is being processed. Only the build has
/// the secrets of the source.
pub(crate) fn begin(image: pb::Image, now: SystemTime) -> (pb::Build, pb::Image) {
    let time = Some(now.into());
    let build = pb::Build {
        id: BuildId::new().to_string(),
        create_time: time,
        update_time: time,
        tenant: image.tenant.clone(),
        image_id: image.id.clone(),
        image_name: image.name.clone(),
        kind: image.kind,
        source: image.source.clone(),
        state: BuildState::Pending.into(),
        state_time: time,
        ..pb::Build::default()
    };
    let mut image = pb::Image { build_id: build.id.clone(), ..image };
    source::erase_secrets(image.source.as_mut());
    (build, lifecycle::image_in(image, ImageState::Processing, "", now))
}
