//! Joins the records of the feeds.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runtime::Clock;
use runtime::feed::FeedEvent;
use store::feed_cache::CachedFeed;
use tinwright::HardwareId;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1::Lease;
use tinwright::workflow::v1::Workflow;

use crate::claims::AddressClaims;
use crate::freshness::{FeedKind, FeedStates, Freshness, stale_since};
use crate::leases::{self, LeaseUpdate};
use crate::machine::{FleetMachine, FleetWorkflow, MachineChange, claimed_addresses, shrink};

/// Receives the changes of a fleet. The methods are called while the fleet is locked, so that changes arrive in the order of
/// the feeds: they must neither call the fleet nor block.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Receives `changes`, to be applied together, and the new freshness of the feeds.
    fn machines(&self, changes: &[MachineChange], feeds: &FeedStates);

    /// Receives `update`, if there is one, and the new freshness of the feeds.
    fn leases(&self, _update: Option<&LeaseUpdate>, _feeds: &FeedStates) {}
}

/// The joined records of all machines of a site.
#[derive(Debug)]
pub struct Fleet {
    records: Mutex<Records>,
    observers: Vec<Arc<dyn Observer>>,
    contested_addresses: Gauge,
    pub(crate) clock: Clock,
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    machines: HashMap<HardwareId, Parts, RandomState>,
    /// The machine that each instance occupies, by instance id.
    instances: HashMap<String, HardwareId, RandomState>,
    /// The machine of each workflow that has not ended, by workflow id.
    workflows: HashMap<String, HardwareId, RandomState>,
    claims: AddressClaims,
    feeds: FeedStates,
}

/// The records of one machine, which arrive in any order.
#[derive(Debug, Default)]
struct Parts {
    hardware: Option<Arc<Hardware>>,
    instance: Option<Arc<Instance>>,
    workflows: Vec<FleetWorkflow>,
    /// The joined records; none without a hardware record.
    joined: Option<Arc<FleetMachine>>,
}

/// The machines that an event changed.
pub(crate) type Changed = HashSet<HardwareId, RandomState>;

/// A record of a feed that belongs to a machine.
pub(crate) trait MachineRecord: Sized {
    const FEED: FeedKind;

    fn put(self, records: &mut Records, changed: &mut Changed);

    fn delete(id: &str, records: &mut Records, changed: &mut Changed);

    fn ids(records: &Records) -> Vec<String>;
}

impl Fleet {
    /// Creates a fleet without machines that reports its changes to `observers`.
    pub fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        let (records, contested_addresses, clock) = Default::default();
        Self { records, observers, contested_addresses, clock }
    }

    /// Registers the fleet's metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "fleet_contested_addresses",
            "Addresses that the records of several machines claim",
            self.contested_addresses.clone(),
        );
    }

    /// Takes an event of the hardware feed.
    pub fn hardware(&self, event: FeedEvent<Hardware>) {
        self.take(event, Freshness::Live);
    }

    /// Takes an event of the instance feed.
    pub fn instance(&self, event: FeedEvent<Instance>) {
        self.take(event, Freshness::Live);
    }

    /// Takes an event of the workflow feed.
    pub fn workflow(&self, event: FeedEvent<Workflow>) {
        self.take(event, Freshness::Live);
    }

    /// Takes an event of the lease feed.
    pub fn lease(&self, event: FeedEvent<Lease>) {
        self.take_lease(event, Freshness::Live);
    }

    /// Records that the lease feed is followed, so that readers wait until it has synced.
    pub fn expect_leases(&self) {
        let mut records = self.records();
        records.feeds.set(FeedKind::Lease, Freshness::NeverSynced);
        self.report_leases(None, &records.feeds);
    }

    /// Takes the cached records of a feed.
    pub(crate) fn restore<T: MachineRecord>(&self, cached: CachedFeed<T>) {
        let freshness = self.freshness(&cached);
        self.take(FeedEvent::Snapshot(cached.objects), freshness);
    }

    /// Takes the cached leases.
    pub(crate) fn restore_leases(&self, cached: CachedFeed<Lease>) {
        let freshness = self.freshness(&cached);
        self.take_lease(FeedEvent::Snapshot(cached.objects), freshness);
    }

    /// Returns the freshness of a feed that is not live any more.
    fn freshness<T>(&self, cached: &CachedFeed<T>) -> Freshness {
        let (wall, monotonic) = (self.clock.wall(), self.clock.monotonic());
        Freshness::StaleSince(stale_since(cached.last_live, wall, monotonic))
    }

    /// Takes an event. After a snapshot, the freshness of the feed is `synced`.
    fn take<T: MachineRecord>(&self, event: FeedEvent<T>, synced: Freshness) {
        let (mut records, mut changed) = (self.records(), Changed::default());
        let freshness = records.feeds.after(T::FEED, &event, synced, self.clock.monotonic());
        match event {
            FeedEvent::Snapshot(all) => {
                for id in T::ids(&records) {
                    T::delete(&id, &mut records, &mut changed);
                }
                all.into_iter().for_each(|record| record.put(&mut records, &mut changed));
            }
            FeedEvent::Put(record) => record.put(&mut records, &mut changed),
            FeedEvent::Deleted(id) => T::delete(&id, &mut records, &mut changed),
            FeedEvent::Disconnected => {}
        }
        let changes = records.join(changed);
        records.feeds.set(T::FEED, freshness);
        self.report(&changes, &records);
    }

    /// Takes an event of the lease feed. After a snapshot, its freshness is `synced`.
    fn take_lease(&self, event: FeedEvent<Lease>, synced: Freshness) {
        let (wall, now) = (self.clock.wall(), self.clock.monotonic());
        let bound = |lease: &Lease| leases::bound(lease, wall, now);
        let one = |address: &str, lease| Some(LeaseUpdate::One(address.parse().ok()?, lease));
        let update = match &event {
            FeedEvent::Snapshot(all) => {
                Some(LeaseUpdate::All(all.iter().filter_map(bound).collect()))
            }
            FeedEvent::Put(lease) => one(&lease.address, bound(lease).map(|(_, bound)| bound)),
            FeedEvent::Deleted(address) => one(address, None),
            FeedEvent::Disconnected => None,
        };
        let mut records = self.records();
        let freshness = records.feeds.after(FeedKind::Lease, &event, synced, now);
        records.feeds.set(FeedKind::Lease, freshness);
        self.report_leases(update.as_ref(), &records.feeds);
    }

    fn report(&self, changes: &[MachineChange], records: &Records) {
        let contested = records.claims.contested;
        self.contested_addresses.set(i64::try_from(contested).unwrap_or(i64::MAX));
        changes.iter().for_each(|change| log_conflicts(change, &records.claims));
        self.observers.iter().for_each(|observer| observer.machines(changes, &records.feeds));
    }

    fn report_leases(&self, update: Option<&LeaseUpdate>, feeds: &FeedStates) {
        self.observers.iter().for_each(|observer| observer.leases(update, feeds));
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Joins the records of the machines in `changed`, and of the machines that gain or lose an address by these changes.
    fn join(&mut self, mut changed: Changed) -> Vec<MachineChange> {
        let mut claimed = Vec::new();
        for id in changed.clone() {
            let parts = self.machines.get(&id);
            let joined = parts.and_then(|parts| parts.joined.as_ref());
            let before = joined.map(|joined| joined.claims()).unwrap_or_default();
            let after = parts.map(Parts::claims).unwrap_or_default();
            let released = before.iter().filter(|address| !after.contains(address));
            changed.extend(released.filter_map(|address| self.claims.release(*address, id)));
            claimed.extend(after.into_iter().map(|address| (address, id)));
        }
        let Self { machines, claims, .. } = self;
        let age = |id| machines.get(&id).map(|parts| (parts.create_time(), id));
        claimed.sort_by_cached_key(|(_, id)| age(*id));
        for (address, id) in &claimed {
            claims.claim(*address, *id);
        }
        if self.feeds.combined(&[FeedKind::Hardware, FeedKind::Instance]) == Freshness::NeverSynced
        {
            let moved = claimed.iter().filter_map(|(address, _)| claims.reorder(*address, age));
            changed.extend(moved.flatten());
        }
        changed.into_iter().filter_map(|id| self.rejoin(id)).collect()
    }

    /// Joins the records of a machine. Returns nothing if its joined record stays the same.
    fn rejoin(&mut self, id: HardwareId) -> Option<MachineChange> {
        let parts = self.machines.get_mut(&id)?;
        let after = parts.join(id, &self.claims);
        if let (Some(before), Some(after)) = (&parts.joined, &after)
            && before.is_same(after)
        {
            return None;
        }
        let before = std::mem::replace(&mut parts.joined, after.clone());
        if parts.hardware.is_none() && parts.instance.is_none() && parts.workflows.is_empty() {
            self.machines.remove(&id);
        }
        (before.is_some() || after.is_some()).then_some(MachineChange { id, before, after })
    }
}

impl Parts {
    fn claims(&self) -> Vec<IpAddr> {
        let hardware = self.hardware.as_deref();
        hardware.map_or_else(Vec::new, |one| claimed_addresses(one, self.instance.as_deref()))
    }

    /// Returns the creation time of the hardware record: seconds and nanoseconds.
    fn create_time(&self) -> (i64, i32) {
        let created = self.hardware.as_ref().and_then(|hardware| hardware.create_time);
        created.map_or((0, 0), |time| (time.seconds, time.nanos))
    }

    fn join(&self, id: HardwareId, claims: &AddressClaims) -> Option<Arc<FleetMachine>> {
        let mut contested = self.claims();
        contested.retain(|address| claims.holder(*address) != Some(id));
        Some(Arc::new(FleetMachine {
            id,
            hardware: self.hardware.clone()?,
            instance: self.instance.clone(),
            workflows: self.workflows.clone(),
            contested,
        }))
    }
}

/// Logs address conflicts that began or ended with `change`.
fn log_conflicts(change: &MachineChange, claims: &AddressClaims) {
    let before = change.before.as_ref().map_or(&[][..], |before| &before.contested);
    let after = change.after.as_ref().map_or(&[][..], |after| &after.contested);
    for address in after.iter().filter(|address| !before.contains(address)) {
        let holder = claims.holder(*address).map(tracing::field::display);
        tracing::error!(
            %address,
            holder.hardware_id = holder,
            hardware.id = %change.id,
            "address claimed twice: the later machine is served nothing at it"
        );
    }
    for address in before.iter().filter(|address| !after.contains(address)) {
        tracing::info!(%address, hardware.id = %change.id, "address conflict ended");
    }
}

impl MachineRecord for Hardware {
    const FEED: FeedKind = FeedKind::Hardware;

    fn put(mut self, records: &mut Records, changed: &mut Changed) {
        let Ok(id) = self.id.parse() else { return };
        shrink(&mut self);
        records.machines.entry(id).or_default().hardware = Some(Arc::new(self));
        changed.insert(id);
    }

    fn delete(id: &str, records: &mut Records, changed: &mut Changed) {
        let Ok(id) = id.parse() else { return };
        if let Some(parts) = records.machines.get_mut(&id) {
            parts.hardware = None;
            changed.insert(id);
        }
    }

    fn ids(records: &Records) -> Vec<String> {
        let machines = records.machines.iter().filter(|(_, parts)| parts.hardware.is_some());
        machines.map(|(id, _)| id.to_string()).collect()
    }
}

impl MachineRecord for Instance {
    const FEED: FeedKind = FeedKind::Instance;

    fn put(self, records: &mut Records, changed: &mut Changed) {
        // An instance that failed before anything was done to the machine has released it.
        if self.released {
            return Self::delete(&self.id, records, changed);
        }
        let Ok(machine) = self.hardware_id.parse() else { return };
        records.instances.insert(self.id.clone(), machine);
        records.machines.entry(machine).or_default().instance = Some(Arc::new(self));
        changed.insert(machine);
    }

    fn delete(id: &str, records: &mut Records, changed: &mut Changed) {
        let Some(machine) = records.instances.remove(id) else { return };
        let parts = records.machines.get_mut(&machine);
        // A late event of an earlier instance does not remove the new one.
        if let Some(instance) = parts.map(|parts| &mut parts.instance)
            && instance.as_ref().is_some_and(|instance| instance.id == id)
        {
            *instance = None;
            changed.insert(machine);
        }
    }

    fn ids(records: &Records) -> Vec<String> {
        records.instances.keys().cloned().collect()
    }
}

impl MachineRecord for Workflow {
    const FEED: FeedKind = FeedKind::Workflow;

    fn put(self, records: &mut Records, changed: &mut Changed) {
        Self::delete(&self.id, records, changed);
        if self.is_terminal() {
            return;
        }
        let Ok(machine) = self.hardware_id.parse() else { return };
        let workflows = &mut records.machines.entry(machine).or_default().workflows;
        let workflow = FleetWorkflow::from(&self);
        let at = workflows.partition_point(|other| other.id < workflow.id);
        workflows.insert(at, workflow);
        records.workflows.insert(self.id, machine);
        changed.insert(machine);
    }

    fn delete(id: &str, records: &mut Records, changed: &mut Changed) {
        let Some(machine) = records.workflows.remove(id) else { return };
        if let Some(parts) = records.machines.get_mut(&machine) {
            parts.workflows.retain(|workflow| workflow.id != id);
            changed.insert(machine);
        }
    }

    fn ids(records: &Records) -> Vec<String> {
        records.workflows.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
