//! The records of the feeds on disk. They let a process start while the control plane is unreachable.
//!
//! Restored records are stale since the time when their feed was last live.

use std::sync::Arc;

use store::Sealer;
use store::feed_cache::{FeedCache, Projection};
use store::{ScopedStore, Store};
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1::{Lease, lease::State};
use tinwright::workflow::v1::Workflow;
use tokio_util::sync::CancellationToken;

use crate::fleet::Fleet;

/// Selects the parts of the records that are stored on disk.
#[derive(Clone, Copy, Debug)]
pub struct CacheContents {
    /// The prefix of the keys. Each selection has its own, so that trimmed records are never read as complete ones.
    pub scope: &'static str,
    /// Returns the stored part of a hardware record.
    pub hardware: fn(&Hardware) -> Option<Hardware>,
    /// Returns the stored part of an instance.
    pub instance: fn(&Instance) -> Option<Instance>,
}

impl CacheContents {
    /// Complete records, secrets included.
    pub const WHOLE: Self = Self {
        scope: "fleet",
        hardware: |one| Some(one.clone()),
        instance: |one| Some(one.clone()),
    };
}

/// The caches of the feeds.
#[derive(Debug)]
pub struct FleetCache {
    pub(crate) hardware: FeedCache<Hardware>,
    pub(crate) instance: FeedCache<Instance>,
    pub(crate) workflow: FeedCache<Workflow>,
    pub(crate) lease: FeedCache<Lease>,
}

impl FleetCache {
    /// Creates caches of `contents` in `store`, encrypted with `seal`.
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

    /// Restores the records of `fleet`. Machines are restored if the caches of hardware, instances and (if
    /// `with_workflows`) workflows are all complete; leases, if `with_leases`, independently of machines.
    pub async fn restore(
        &self,
        fleet: &Fleet,
        with_workflows: bool,
        with_leases: bool,
    ) -> Result<(), store::Error> {
        let (hardware, instance) = (self.hardware.load().await?, self.instance.load().await?);
        let workflow = if with_workflows { Some(self.workflow.load().await?) } else { None };
        if let (Some(hardware), Some(instance)) = (hardware, instance)
            && workflow != Some(None)
        {
            tracing::info!(
                machines = hardware.objects.len(),
                "restored machines from the feed cache"
            );
            fleet.restore(hardware);
            fleet.restore(instance);
            workflow.flatten().into_iter().for_each(|workflow| fleet.restore(workflow));
        }
        if with_leases && let Some(leases) = self.lease.load().await? {
            fleet.restore_leases(leases);
        }
        Ok(())
    }

    /// Writes recorded events to disk until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(
            self.hardware.run(stop.clone()),
            self.instance.run(stop.clone()),
            self.workflow.run(stop.clone()),
            self.lease.run(stop)
        );
    }
}

/// Returns the ids of a workflow that needs its machine, and whether that is prepared for it; none if the workflow does not
/// need it.
fn wanting_workflow(workflow: &Workflow) -> Option<Workflow> {
    workflow.wants_machine.then(|| Workflow {
        id: workflow.id.clone(),
        hardware_id: workflow.hardware_id.clone(),
        boot_options: workflow.boot_options,
        state: workflow.state,
        wants_machine: true,
        prepared: workflow.prepared,
        image: workflow.image.clone(),
        ..Workflow::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use store::memory::MemoryStore;
    use tinwright::HardwareId;

    use runtime::feed::FeedEvent;

    use super::*;
    use crate::freshness::{FeedKind, FeedStates, Freshness};
    use crate::machine::MachineChange;
    use crate::{FleetMachine, Observer};

    /// Stores the plain text.
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

    /// Returns the last machine and the freshness after a restart, before any feed has reported anything.
    async fn restored(store: &Arc<dyn Store>) -> (Option<Arc<FleetMachine>>, FeedStates) {
        let last = Arc::new(Last::default());
        let fleet = Fleet::new(vec![last.clone()]);
        cache(store).restore(&fleet, true, false).await.unwrap();
        last.0.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_start_without_the_control_plane_restores_the_machines_as_stale() {
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
        before.hardware.record(&FeedEvent::Snapshot(vec![hardware]), UNIX_EPOCH);
        before.instance.record(&FeedEvent::Snapshot(vec![instance.clone()]), UNIX_EPOCH);
        before.workflow.record(
            &FeedEvent::Snapshot(vec![workflow("w", true), workflow("ended", false)]),
            UNIX_EPOCH,
        );
        write(before).await;

        let (machine, feeds) = restored(&store).await;
        let machine = machine.unwrap();
        assert_eq!(machine.instance.as_deref(), Some(&instance));
        assert!(machine.worker_wanted() && machine.workflows.len() == 1);
        let all = [FeedKind::Hardware, FeedKind::Instance, FeedKind::Workflow];
        assert!(matches!(feeds.combined(&all), Freshness::StaleSince(_)));
    }

    #[tokio::test]
    async fn nothing_is_restored_if_a_feed_was_never_complete() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let before = cache(&store);
        let id = HardwareId::new().to_string();
        before
            .hardware
            .record(&FeedEvent::Snapshot(vec![Hardware { id, ..Hardware::default() }]), UNIX_EPOCH);
        before.instance.record(&FeedEvent::Snapshot(vec![]), UNIX_EPOCH);
        write(before).await;
        assert_eq!(restored(&store).await.1, FeedStates::default());
    }
}
