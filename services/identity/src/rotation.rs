//! Replacing the site's key or its authority, step by step, while servers run.

use std::sync::Arc;
use std::time::Duration;

use runtime::authority::SiteAuthority;
use store::ScopedStore;
use store::events::{EventLog, current_origin};
use tinwright::event::v1::{Event, EventKind};
use tinwright::identity::v1::RotationStep;
use tinwright::status::Violations;
use tokio::sync::Mutex;

use crate::{Certificates, Error};

/// The shortest time between the use of a new key and the end of the former one: commits that were begun before have ended.
const MIN_OVERLAP: Duration = Duration::from_secs(60);

/// Encrypts the records of this process.
#[tonic::async_trait]
pub trait Resealer: std::fmt::Debug + Send + Sync + 'static {
    /// Encrypts all records with the newest site key. Returns the number of changed records.
    async fn reseal(&self) -> Result<usize, Box<dyn std::error::Error + Send + Sync>>;
}

/// Replaces the keys of a site.
#[derive(Clone, Debug)]
pub struct Rotation {
    site: Arc<SiteAuthority>,
    resealer: Arc<dyn Resealer>,
    certificates: Certificates,
    log: EventLog,
    /// One step at a time.
    running: Arc<Mutex<()>>,
}

impl Rotation {
    /// Replaces keys of `site`, and encrypts records by `resealer`. A key of which edges in `certificates` have keys is not dropped.
    /// Steps are events in `store`, the identity service's.
    pub fn new(
        site: Arc<SiteAuthority>,
        resealer: Arc<dyn Resealer>,
        certificates: Certificates,
        store: ScopedStore,
    ) -> Self {
        let log = EventLog::new(store, "identity");
        Self { site, resealer, certificates, log, running: Arc::default() }
    }

    /// Takes a step of replacing the site's key. Returns the number of records that it encrypted.
    pub async fn site_key(&self, step: RotationStep, force: bool) -> Result<usize, Error> {
        let own = self.clone();
        let work = async move {
            match step {
                RotationStep::Unspecified => Err(Violations::single("step", "is missing").into()),
                RotationStep::Prepare => Ok(own.site.prepare_key().map(|()| 0)?),
                RotationStep::Replace => {
                    own.site.use_next_key()?;
                    own.reseal().await
                }
                RotationStep::Finish => own.finish_site_key(force).await,
            }
        };
        self.take(step, "site key", work).await
    }

    /// Takes a step of replacing the site's authority. Returns the client certificates that are refused from now on, each with its subject and
    /// serial number.
    pub async fn authority(&self, step: RotationStep, force: bool) -> Result<Vec<String>, Error> {
        let own = self.clone();
        let work = async move {
            match step {
                RotationStep::Unspecified => Err(Violations::single("step", "is missing").into()),
                RotationStep::Prepare => Ok(own.site.prepare_authority().map(|()| Vec::new())?),
                RotationStep::Replace => Ok(own.site.use_next_authority().map(|()| Vec::new())?),
                RotationStep::Finish => own.finish_authority(force).await,
            }
        };
        self.take(step, "authority", work).await
    }

    /// Does `work`, the `step` of replacing `noun`, and records it as an event.
    async fn take<T: Send + 'static>(
        &self,
        step: RotationStep,
        noun: &'static str,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (own, origin) = (self.clone(), current_origin());
        // A caller that goes away does not interrupt it. The records that it encrypts are no events, because the task has no origin.
        let step = tokio::spawn(async move {
            let _running = own.running.lock().await;
            let done = work.await?;
            let text = match step {
                RotationStep::Prepare => "next one made",
                RotationStep::Replace => "replaced",
                RotationStep::Finish | RotationStep::Unspecified => "former one dropped",
            };
            let (kind, noun) = (EventKind::Call.into(), noun.into());
            let mut event = Event { kind, noun, text: text.into(), ..Event::default() };
            if let Some(origin) = origin {
                origin.write(&mut event);
            }
            own.log.append(event).await?;
            Ok(done)
        });
        step.await.map_err(|error| Error::Rotation(error.into()))?
    }

    async fn finish_site_key(&self, force: bool) -> Result<usize, Error> {
        let least = if force { MIN_OVERLAP } else { runtime::authority::MAX_KEY_USE };
        let left = self.site.key_use_left(least)?;
        if !left.is_zero() {
            return Err(Error::InUseFor(left));
        }
        let edges = self.certificates.edges_of_former_keys().await?;
        if !force && !edges.is_empty() {
            return Err(Error::EdgesOfFormerKey(edges));
        }
        let records = self.reseal().await?;
        self.site.drop_old_key()?;
        Ok(records)
    }

    async fn finish_authority(&self, force: bool) -> Result<Vec<String>, Error> {
        let least = if force { MIN_OVERLAP } else { runtime::authority::MAX_MACHINE_VALIDITY };
        let left = self.site.authority_use_left(least)?;
        if !left.is_zero() {
            return Err(Error::InUseFor(left));
        }
        match self.site.drop_old_authority()? {
            true => self.certificates.of_dropped_authorities().await,
            false => Ok(Vec::new()),
        }
    }

    async fn reseal(&self) -> Result<usize, Error> {
        self.resealer.reseal().await.map_err(Error::Rotation)
    }
}
