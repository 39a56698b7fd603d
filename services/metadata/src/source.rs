//! Where machines come from: two watches, joined by the hardware they speak of; and, from a third, the leases of addresses.
//!
//! ```text
//! hardware ─┐
//!           ├─ Source ─▶ Index        live while both are
//! instance ─┘              ▲
//! leases ──── Source ──────┘          live by itself
//! ```

mod packed;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1 as nb;

use self::packed::Packed;
use crate::index::{Change, Index, Lease};
use crate::records;

/// Joins what is told of hardware and of instances, and keeps the index.
#[derive(Debug)]
pub struct Source {
    index: Arc<Index>,
    hardware: Packed<Hardware>,
    instances: Packed<Instance>,
    /// Hardware id ─▶ id of the instance that occupies it.
    occupants: HashMap<String, String>,
    live: [bool; 2],
}

impl Source {
    /// One that keeps `index`.
    pub fn new(index: Arc<Index>) -> Self {
        let (hardware, instances) = (Packed::default(), Packed::default());
        Self { index, hardware, instances, occupants: HashMap::new(), live: [false; 2] }
    }

    /// Takes what was kept of both feeds, which were last live at `cut`.
    pub fn restore(&mut self, hardware: Vec<Hardware>, instances: Vec<Instance>, cut: Instant) {
        self.hardware = Packed::of(hardware.into_iter().map(|one| (one.id.clone(), one)));
        self.occupy(instances);
        self.index.restore(self.machines(), cut);
    }

    /// Takes news of hardware.
    pub fn hardware(&mut self, news: FeedEvent<Hardware>) {
        match news {
            FeedEvent::Snapshot(all) => {
                let gone: Vec<_> = self.hardware.ids().cloned().collect();
                self.hardware = Packed::of(all.into_iter().map(|one| (one.id.clone(), one)));
                self.caught_up(0, &gone);
            }
            FeedEvent::Put(hardware) => {
                let id = hardware.id.clone();
                self.hardware.insert(id.clone(), &hardware);
                self.changed(&[id]);
            }
            FeedEvent::Deleted(id) => {
                self.hardware.remove(&id);
                self.changed(&[id]);
            }
            FeedEvent::Disconnected => self.cut(0),
        }
    }

    /// Takes news of instances.
    pub fn instance(&mut self, news: FeedEvent<Instance>) {
        match news {
            FeedEvent::Snapshot(all) => {
                let gone: Vec<_> = self.occupants.keys().cloned().collect();
                self.occupy(all);
                self.caught_up(1, &gone);
            }
            // One that failed before anything was done to the machine has let go of it.
            FeedEvent::Put(instance) if instance.released => {
                self.instance(FeedEvent::Deleted(instance.id))
            }
            FeedEvent::Put(instance) => {
                let machine = instance.hardware_id.clone();
                self.occupants.insert(machine.clone(), instance.id.clone());
                self.instances.insert(instance.id.clone(), &instance);
                self.changed(&[machine]);
            }
            FeedEvent::Deleted(id) => {
                let Some(old) = self.instances.remove(&id) else { return };
                // A late word of an old instance does not unseat the new one.
                if self.occupants.get(&old.hardware_id) == Some(&id) {
                    self.occupants.remove(&old.hardware_id);
                }
                self.changed(&[old.hardware_id]);
            }
            FeedEvent::Disconnected => self.cut(1),
        }
    }

    /// Takes what was kept of the leases, whose feed was last live at `cut`.
    pub fn restore_leases(&self, leases: &[nb::Lease], cut: Instant) {
        let clocks = Clocks::now();
        self.index.restore_leases(leases.iter().filter_map(|one| records::lease(one, clocks)), cut);
    }

    /// Takes news of leases.
    pub fn lease(&self, news: FeedEvent<nb::Lease>) {
        let clocks = Clocks::now();
        match news {
            FeedEvent::Snapshot(all) => {
                let leases = all.iter().filter_map(|lease| records::lease(lease, clocks));
                self.index.replace_leases(leases);
            }
            FeedEvent::Put(lease) => {
                let bound = records::lease(&lease, clocks).map(|(_, bound)| bound);
                self.lend(&lease.address, bound);
            }
            FeedEvent::Deleted(address) => self.lend(&address, None),
            FeedEvent::Disconnected => self.index.cut_leases(clocks.steady),
        }
    }

    fn lend(&self, address: &str, lease: Option<Lease>) {
        if let Ok(address) = address.parse() {
            self.index.apply([Change::Lend(address, lease)]);
        }
    }

    /// These are all the instances there are.
    fn occupy(&mut self, mut all: Vec<Instance>) {
        all.retain(|instance| !instance.released);
        let occupants = all.iter().map(|one| (one.hardware_id.clone(), one.id.clone()));
        self.occupants = occupants.collect();
        self.instances = Packed::of(all.into_iter().map(|one| (one.id.clone(), one)));
    }

    fn machines(&self) -> Vec<Arc<crate::Machine>> {
        self.hardware.ids().filter_map(|id| self.machine(id)).map(Arc::new).collect()
    }

    /// One feed has told everything; with the other one live as well, the index is what is so. `before` are machines
    /// that may have to be forgotten.
    fn caught_up(&mut self, feed: usize, before: &[String]) {
        self.live[feed] = true;
        if self.live == [true; 2] {
            self.index.replace(self.machines());
        } else {
            let now = self.hardware.ids().cloned();
            let all: Vec<_> = before.iter().cloned().chain(now).collect();
            self.changed(&all);
        }
    }

    fn changed(&self, machines: &[String]) {
        let changes = machines.iter().filter_map(|id| match self.machine(id) {
            Some(machine) => Some(Change::Put(Arc::new(machine))),
            None => id.parse::<HardwareId>().ok().map(Change::Remove),
        });
        self.index.apply(changes.collect::<Vec<_>>());
    }

    fn cut(&mut self, feed: usize) {
        self.live[feed] = false;
        self.index.cut(Instant::now());
    }

    fn machine(&self, id: &str) -> Option<crate::Machine> {
        let occupant = self.occupants.get(id).and_then(|id| self.instances.get(id));
        records::machine(&self.hardware.get(id)?, occupant.as_ref())
    }
}

/// One moment on both clocks: leases end by the one that people set, which may jump; what is known of them runs by the one
/// that only runs forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) wall: SystemTime,
    pub(crate) steady: Instant,
}

impl Clocks {
    fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Lookup;
    use tinwright::hardware::v1::{Address, Dhcp, Interface, State};
    use tinwright::instance::v1 as occ;

    fn hardware(id: HardwareId, mac: u8, address: &str) -> Hardware {
        let address = Address { address: address.into(), prefix_length: 24, ..Default::default() };
        let interface = Interface {
            mac: format!("02:00:00:00:00:{mac:02x}"),
            dhcp: Some(Dhcp { address: Some(address), ..Default::default() }),
            ..Default::default()
        };
        Hardware { id: id.to_string(), interfaces: vec![interface], ..Default::default() }
    }

    fn instance(id: &str, hardware: HardwareId, state: occ::State) -> Instance {
        Instance {
            id: id.into(),
            hardware_id: hardware.to_string(),
            state: state.into(),
            ..Default::default()
        }
    }

    /// What `address` says it is.
    fn name(index: &Index, address: &str) -> Option<String> {
        match index.lookup(address.parse().unwrap(), Instant::now()) {
            Lookup::Known { machine, .. } => Some(machine.instance_id().into_owned()),
            Lookup::Unknown => None,
            Lookup::NotReady => Some("not ready".into()),
        }
    }

    #[test]
    fn nobody_is_answered_before_both_feeds_have_told_everything() {
        let index = Arc::new(Index::new());
        let (mut source, id) = (Source::new(index.clone()), HardwareId::new());
        source.hardware(FeedEvent::Snapshot(vec![hardware(id, 1, "192.0.2.1")]));
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "not ready");
        source.instance(FeedEvent::Snapshot(vec![instance("i-1", id, occ::State::Active)]));
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "i-1");
    }

    #[test]
    fn what_was_kept_is_told_until_the_feeds_are_live_and_secrets_not_for_long() {
        let index = Arc::new(Index::new());
        let (mut source, id) = (Source::new(index.clone()), HardwareId::new());
        let cut = Instant::now();
        source.restore(
            vec![hardware(id, 1, "192.0.2.1")],
            vec![instance("i-1", id, occ::State::Active)],
            cut,
        );
        source.hardware(FeedEvent::Disconnected);
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "i-1");
        let late = cut + crate::index::SECRETS_LAST + std::time::Duration::from_secs(1);
        for (when, told) in [(cut, true), (late, false)] {
            let lookup = index.lookup("192.0.2.1".parse().unwrap(), when);
            assert!(matches!(lookup, Lookup::Known { secrets, .. } if secrets == told));
        }
        source.hardware(FeedEvent::Snapshot(vec![hardware(id, 1, "192.0.2.1")]));
        source.instance(FeedEvent::Snapshot(vec![instance("i-2", id, occ::State::Active)]));
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "i-2");
    }

    #[test]
    fn an_instance_comes_goes_and_is_replaced_on_its_machine() {
        let index = Arc::new(Index::new());
        let (mut source, id) = (Source::new(index.clone()), HardwareId::new());
        source.hardware(FeedEvent::Snapshot(vec![hardware(id, 1, "192.0.2.1")]));
        source.instance(FeedEvent::Snapshot(vec![]));
        assert_eq!(name(&index, "192.0.2.1"), Some(id.to_string()));
        source.instance(FeedEvent::Put(instance("i-1", id, occ::State::Provisioning)));
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "i-1");
        source.instance(FeedEvent::Put(instance("i-1", id, occ::State::Deprovisioning)));
        assert_eq!(name(&index, "192.0.2.1"), Some(id.to_string()));
        source.instance(FeedEvent::Put(instance("i-2", id, occ::State::Queued)));
        source.instance(FeedEvent::Deleted("i-1".into()));
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "i-2");
    }

    #[test]
    fn an_address_of_a_free_machine_answers_for_nobody() {
        let index = Arc::new(Index::new());
        let (mut source, id) = (Source::new(index.clone()), HardwareId::new());
        let free = Hardware { state: State::Provisionable.into(), ..hardware(id, 1, "192.0.2.1") };
        source.hardware(FeedEvent::Snapshot(vec![free.clone()]));
        source.instance(FeedEvent::Snapshot(vec![]));
        assert_eq!(name(&index, "192.0.2.1"), None);
        source.instance(FeedEvent::Put(instance("i-1", id, occ::State::Queued)));
        assert_eq!(name(&index, "192.0.2.1").unwrap(), "i-1");
        source.instance(FeedEvent::Put(instance("i-1", id, occ::State::Deprovisioning)));
        assert_eq!(name(&index, "192.0.2.1"), Some(id.to_string()));
        source.instance(FeedEvent::Deleted("i-1".into()));
        assert_eq!(name(&index, "192.0.2.1"), None);
        source.hardware(FeedEvent::Put(Hardware { state: State::Maintenance.into(), ..free }));
        assert_eq!(name(&index, "192.0.2.1"), Some(id.to_string()));
    }

    #[test]
    fn an_address_that_moved_answers_for_nobody() {
        let index = Arc::new(Index::new());
        let (mut source, id) = (Source::new(index.clone()), HardwareId::new());
        source.hardware(FeedEvent::Snapshot(vec![hardware(id, 1, "192.0.2.1")]));
        source.instance(FeedEvent::Snapshot(vec![]));
        source.hardware(FeedEvent::Put(hardware(id, 1, "192.0.2.2")));
        assert_eq!(name(&index, "192.0.2.1"), None);
        source.hardware(FeedEvent::Disconnected);
        source.hardware(FeedEvent::Snapshot(vec![]));
        assert_eq!(name(&index, "192.0.2.2"), None);
    }
}
