//! What the feeds told, kept on disk: so that a start while the control plane is out of reach still answers machines.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use store::feed_cache::{CachedFeed, FeedCache, Projection, Sealer};
use store::{ScopedStore, Store};
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1::{Lease, lease::State};
use tokio_util::sync::CancellationToken;

use crate::index::SECRETS_LAST;
use crate::source::Source;

/// The copies of metadata's feeds.
#[derive(Debug)]
pub struct Copies {
    /// Of hardware.
    pub hardware: FeedCache<Hardware>,
    /// Of instances, secrets and all.
    pub instance: FeedCache<Instance>,
    /// Of the leases that last.
    pub lease: FeedCache<Lease>,
}

impl Copies {
    /// Those in `store`, sealed with `seal`.
    pub fn new(store: Arc<dyn Store>, seal: &Arc<dyn Sealer>) -> Self {
        let own = || ScopedStore::new(store.clone(), "metadata");
        let hardware =
            Projection { id: |one: &Hardware| &one.id, project: |one| Some(one.clone()) };
        let instance =
            Projection { id: |one: &Instance| &one.id, project: |one| Some(one.clone()) };
        let bound = |one: &Lease| (one.state() == State::Bound).then(|| one.clone());
        let lease = Projection { id: |one: &Lease| &one.address, project: bound };
        Self {
            hardware: FeedCache::new(own(), "hardware", seal.clone(), hardware),
            instance: FeedCache::new(own(), "instance", seal.clone(), instance),
            lease: FeedCache::new(own(), "lease", seal.clone(), lease),
        }
    }

    /// What was kept of both feeds, if all of it was, and when both were last live.
    pub async fn load(
        &self,
    ) -> Result<Option<(Vec<Hardware>, Vec<Instance>, SystemTime)>, store::Error> {
        let (hardware, instance) = (self.hardware.load().await?, self.instance.load().await?);
        let (Some(hardware), Some(instance)) = (hardware, instance) else { return Ok(None) };
        let heard = hardware.last_live.min(instance.last_live);
        Ok(Some((hardware.objects, instance.objects, heard)))
    }

    /// Keeps them up to date until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(
            self.hardware.run(stop.clone()),
            self.instance.run(stop.clone()),
            self.lease.run(stop)
        );
    }
}

/// Tells `source` what was kept in `copies`.
pub(crate) async fn restore(
    copies: &Copies,
    source: &std::sync::Mutex<Source>,
) -> Result<(), store::Error> {
    let Some((hardware, instances, heard)) = copies.load().await? else { return Ok(()) };
    tracing::info!(machines = hardware.len(), "going on with the copy of the feeds");
    let cut = cut(heard, SystemTime::now(), Instant::now());
    let mut source = source.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    source.restore(hardware, instances, cut);
    Ok(())
}

/// Tells `source` what was kept in `copies` of the leases.
pub(crate) async fn restore_leases(
    copies: &Copies,
    source: &std::sync::Mutex<Source>,
) -> Result<(), store::Error> {
    let Some(CachedFeed { objects, last_live: heard }) = copies.lease.load().await? else {
        return Ok(());
    };
    let cut = cut(heard, SystemTime::now(), Instant::now());
    let source = source.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    source.restore_leases(&objects, cut);
    Ok(())
}

/// When the feeds were cut that were last live at `heard`, on the clock that only runs forward. A clock that was set back
/// says nothing of how long ago that is: too long for secrets.
fn cut(heard: SystemTime, now: SystemTime, at: Instant) -> Instant {
    let longer = SECRETS_LAST * 2;
    let ago = now.duration_since(heard).unwrap_or(longer).min(longer);
    at.checked_sub(ago).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn how_long_ago_the_feed_was_live_survives_a_restart_and_a_clock_set_back_means_long_ago() {
        let (now, at) = (UNIX_EPOCH + Duration::from_secs(1_000_000), Instant::now());
        let ago = |heard: Duration| at.duration_since(cut(UNIX_EPOCH + heard, now, at));
        assert_eq!(ago(Duration::from_secs(999_400)), Duration::from_secs(600));
        assert!(ago(Duration::from_secs(1)) > SECRETS_LAST);
        assert!(ago(Duration::from_secs(1_000_001)) > SECRETS_LAST);
    }
}
