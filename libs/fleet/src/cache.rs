//! The records of the feeds on disk, so that a start while the control plane is out of reach still knows the machines.
//!
//! What is restored from there is stale, as old as the feeds were when they were live last.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use runtime::feed::FeedEvent;
use store::feed_cache::{CachedFeed, FeedCache, Projection, Sealer};
use store::{ScopedStore, Store};
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1::{Lease, lease::State};
use tinwright::workflow::v1::Workflow;
use tokio_util::sync::CancellationToken;

use crate::fleet::Fleet;

/// The age of a feed if the wall clock was set back and does not say, and the greatest that is distinguished.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// The parts of the records that are kept on disk.
#[derive(Clone, Copy, Debug)]
pub struct CacheContents {
    /// The prefix of the keys. Contents that differ have their own, so that trimmed records are never taken for whole ones.
    pub scope: &'static str,
    /// Of a hardware record.
    pub hardware: fn(&Hardware) -> Option<Hardware>,
    /// Of an instance.
    pub instance: fn(&Instance) -> Option<Instance>,
}

impl CacheContents {
    /// Everything, secrets included.
    pub const WHOLE: Self = Self {
        scope: "fleet",
        hardware: |one| Some(one.clone()),
        instance: |one| Some(one.clone()),
    };
}

/// The caches of the feeds.
#[derive(Debug)]
pub struct FleetCache {
    hardware: FeedCache<Hardware>,
    instance: FeedCache<Instance>,
    workflow: FeedCache<Workflow>,
    lease: FeedCache<Lease>,
}

impl FleetCache {
    /// Creates caches of `contents` in `store`, sealed with `seal`.
    pub fn new(store: Arc<dyn Store>, seal: &Arc<dyn Sealer>, contents: CacheContents) -> Self {
        let CacheContents { scope, hardware, instance } = contents;
        let own = || ScopedStore::new(store.clone(), scope);
        let hardware = Projection { id: |one: &Hardware| &one.id, project: hardware };
        let instance = Projection { id: |one: &Instance| &one.id, project: instance };
        let workflow = Projection { id: |one: &Workflow| &one.id, project: wanting_workflow };
        let bound = |one: &Lease| (one.state() == State::Bound).then(|| one.clone());
        let lease = Projection { id: |one: &Lease| &one.address, project: bound };
        Self {
            hardware: FeedCache::new(own(), "hardware", seal.clone(), hardware),
            instance: FeedCache::new(own(), "instance", seal.clone(), instance),
            workflow: FeedCache::new(own(), "workflow", seal.clone(), workflow),
            lease: FeedCache::new(own(), "lease", seal.clone(), lease),
        }
    }

    /// Gives `fleet` the records of all machines, if the caches of all their feeds are whole: that of workflows where
    /// `with_workflows` says that they are followed.
    pub async fn restore(&self, fleet: &Fleet, with_workflows: bool) -> Result<(), store::Error> {
        let (hardware, instance) = (self.hardware.load().await?, self.instance.load().await?);
        let workflow = match with_workflows {
            true => Some(self.workflow.load().await?),
            false => None,
        };
        let (Some(hardware), Some(instance)) = (hardware, instance) else { return Ok(()) };
        let workflow = match workflow {
            Some(Some(workflow)) => Some(aged(workflow)),
            Some(None) => return Ok(()),
            None => None,
        };
        tracing::info!(machines = hardware.objects.len(), "restored machines from the feed cache");
        fleet.restore(aged(hardware), aged(instance), workflow);
        Ok(())
    }

    /// Gives `fleet` the leases, if their cache is whole.
    pub async fn restore_leases(&self, fleet: &Fleet) -> Result<(), store::Error> {
        if let Some((leases, since)) = self.lease.load().await?.map(aged) {
            fleet.restore_leases(&leases, since);
        }
        Ok(())
    }

    /// Records an event of the feed of hardware.
    pub(crate) fn hardware(&self, event: &FeedEvent<Hardware>) {
        self.hardware.record(event, SystemTime::now());
    }

    /// Records an event of the feed of instances.
    pub(crate) fn instance(&self, event: &FeedEvent<Instance>) {
        self.instance.record(event, SystemTime::now());
    }

    /// Records an event of the feed of workflows.
    pub(crate) fn workflow(&self, event: &FeedEvent<Workflow>) {
        self.workflow.record(event, SystemTime::now());
    }

    /// Records an event of the feed of leases.
    pub(crate) fn lease(&self, event: &FeedEvent<Lease>) {
        self.lease.record(event, SystemTime::now());
    }

    /// Writes what is recorded, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(
            self.hardware.run(stop.clone()),
            self.instance.run(stop.clone()),
            self.workflow.run(stop.clone()),
            self.lease.run(stop)
        );
    }
}

/// Returns what says that a workflow has something to run on a machine; none of one that has not.
fn wanting_workflow(workflow: &Workflow) -> Option<Workflow> {
    workflow.wants_machine.then(|| Workflow {
        id: workflow.id.clone(),
        hardware_id: workflow.hardware_id.clone(),
        wants_machine: true,
        ..Workflow::default()
    })
}

/// Returns the records of `cached`, and when its feed was live last.
fn aged<T>(cached: CachedFeed<T>) -> (Vec<T>, Instant) {
    (cached.objects, stale_since(cached.last_live, SystemTime::now(), Instant::now()))
}

/// Returns `last_live` on the monotonic clock, which reads `monotonic` at `now`.
fn stale_since(last_live: SystemTime, now: SystemTime, monotonic: Instant) -> Instant {
    let age = now.duration_since(last_live).unwrap_or(MAX_AGE).min(MAX_AGE);
    monotonic.checked_sub(age).unwrap_or(monotonic)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use store::memory::MemoryStore;
    use tinwright::HardwareId;

    use super::*;
    use crate::freshness::{FeedKind, FeedStates, Freshness};
    use crate::machine::MachineChange;
    use crate::{FleetMachine, Observer};

    /// What is sealed elsewhere.
    #[derive(Debug)]
    struct Plain;

    impl Sealer for Plain {
        fn seal(&self, _: &str, plain: &[u8]) -> Option<Vec<u8>> {
            Some(plain.to_vec())
        }

        fn unseal(&self, _: &str, sealed: &[u8]) -> Option<Vec<u8>> {
            Some(sealed.to_vec())
        }
    }

    /// The last machine that was reported.
    #[derive(Debug, Default)]
    struct Last(std::sync::Mutex<(Option<Arc<FleetMachine>>, FeedStates)>);

    impl Observer for Last {
        fn machines(&self, changes: &[MachineChange], feeds: &FeedStates) {
            let last = changes.last().and_then(|change| change.after.clone());
            *self.0.lock().unwrap() = (last, *feeds);
        }
    }

    fn cache(store: &Arc<dyn Store>) -> FleetCache {
        let seal: Arc<dyn Sealer> = Arc::new(Plain);
        FleetCache::new(store.clone(), &seal, CacheContents::WHOLE)
    }

    async fn write(cache: FleetCache) {
        let stop = CancellationToken::new();
        stop.cancel();
        cache.run(stop).await;
    }

    /// Returns what a start finds before any feed has reported anything.
    async fn restored(store: &Arc<dyn Store>) -> (Option<Arc<FleetMachine>>, FeedStates) {
        let last = Arc::new(Last::default());
        let fleet = Fleet::new(vec![last.clone()]);
        cache(store).restore(&fleet, true).await.unwrap();
        last.0.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_start_without_the_control_plane_knows_the_machines_and_that_they_are_stale() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (before, hardware_id) = (cache(&store), HardwareId::new().to_string());
        let instance = Instance {
            id: "i".into(),
            hardware_id: hardware_id.clone(),
            userdata: "hunter2".into(),
            ..Instance::default()
        };
        let workflow = |id: &str, wants_machine| Workflow {
            id: id.into(),
            hardware_id: hardware_id.clone(),
            wants_machine,
            ..Workflow::default()
        };
        let hardware = Hardware { id: hardware_id.clone(), ..Hardware::default() };
        before.hardware(&FeedEvent::Snapshot(vec![hardware]));
        before.instance(&FeedEvent::Snapshot(vec![instance.clone()]));
        before.workflow(&FeedEvent::Snapshot(vec![workflow("w", true), workflow("ended", false)]));
        write(before).await;

        let (machine, feeds) = restored(&store).await;
        let machine = machine.unwrap();
        assert_eq!(machine.instance.as_deref(), Some(&instance));
        assert!(machine.worker_wanted() && machine.workflows.len() == 1);
        let all = [FeedKind::Hardware, FeedKind::Instance, FeedKind::Workflow];
        assert!(matches!(feeds.combined(&all), Freshness::StaleSince(_)));
    }

    #[tokio::test]
    async fn nothing_is_restored_where_a_feed_never_reported_everything() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let before = cache(&store);
        let id = HardwareId::new().to_string();
        before.hardware(&FeedEvent::Snapshot(vec![Hardware { id, ..Hardware::default() }]));
        before.instance(&FeedEvent::Snapshot(vec![]));
        write(before).await;
        assert_eq!(restored(&store).await.1, FeedStates::default());
    }

    #[test]
    fn the_age_of_a_feed_survives_a_restart_and_a_clock_that_was_set_back_means_old() {
        let (now, monotonic) = (UNIX_EPOCH + Duration::from_secs(1_000_000), Instant::now());
        let age = |last_live: u64| {
            let last_live = UNIX_EPOCH + Duration::from_secs(last_live);
            monotonic.duration_since(stale_since(last_live, now, monotonic))
        };
        assert_eq!(age(999_400), Duration::from_secs(600));
        assert_eq!(age(1), MAX_AGE);
        assert_eq!(age(1_000_001), MAX_AGE);
    }
}
