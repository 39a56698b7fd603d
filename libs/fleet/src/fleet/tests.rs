//! Lookups return the records that the feeds reported.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant, SystemTime};

use proptest::prelude::*;
use tinwright::Mac;
use tinwright::hardware::v1::{Address, Dhcp, Interface};
use tinwright::instance::v1::State;
use tinwright::instance::v1::instance::Ip;
use tinwright::workflow::v1::{BootOptions, WorkflowState, boot_options::Mode};

use super::*;
use crate::views::{MachineProjection, ViewIndex};

/// A minimal projection of a machine.
#[derive(Debug)]
struct View(Arc<FleetMachine>);

impl MachineProjection for View {
    type Key = String;
    const USES_LEASES: bool = true;

    fn project(machine: &Arc<FleetMachine>) -> Vec<Self> {
        vec![Self(machine.clone())]
    }

    fn macs(&self) -> impl Iterator<Item = Mac> {
        self.0.macs()
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.claims().into_iter()
    }

    fn key(&self) -> Option<String> {
        Some(self.0.hardware.name.clone()).filter(|name| !name.is_empty())
    }
}

struct Site {
    fleet: Fleet,
    index: Arc<ViewIndex<View>>,
    ids: [HardwareId; 2],
}

impl Site {
    fn empty() -> Self {
        let index = Arc::new(ViewIndex::default());
        let mut ids = [HardwareId::new(), HardwareId::new()];
        ids.sort();
        Self { fleet: Fleet::new(vec![index.clone()]), index, ids }
    }

    /// Creates a site with two machines, one address each, and all feeds live.
    fn new() -> Self {
        let site = Self::empty();
        site.fleet.hardware(FeedEvent::Snapshot(vec![site.hardware(0, 1), site.hardware(1, 2)]));
        site.fleet.instance(FeedEvent::Snapshot(vec![]));
        site.fleet.workflow(FeedEvent::Snapshot(vec![]));
        site
    }

    /// Returns the record of a machine with a reserved address. The first machine is older than the second one.
    fn hardware(&self, machine: usize, address: u8) -> Hardware {
        let id = self.ids[machine];
        let age = Duration::from_secs(machine as u64);
        let address = Address {
            address: format!("192.0.2.{address}"),
            prefix_length: 24,
            ..Address::default()
        };
        let interface = Interface {
            mac: Mac([2, 0, 0, 0, 0, machine as u8]).to_string(),
            dhcp: Some(Dhcp { address: Some(address), ..Dhcp::default() }),
            ..Interface::default()
        };
        Hardware {
            id: id.to_string(),
            create_time: Some((SystemTime::UNIX_EPOCH + age).into()),
            interfaces: vec![interface],
            ..Hardware::default()
        }
    }

    fn instance(&self, id: &str, machine: usize) -> Instance {
        Instance {
            id: id.into(),
            hardware_id: self.ids[machine].to_string(),
            ..Instance::default()
        }
    }

    fn workflow(&self, id: &str, wants_machine: bool) -> Workflow {
        let hardware_id = self.ids[0].to_string();
        Workflow { id: id.into(), hardware_id, wants_machine, ..Workflow::default() }
    }

    fn first(&self) -> Arc<FleetMachine> {
        self.index.by_id(self.ids[0]).unwrap().0.clone()
    }

    /// Returns the machine found by address 192.0.2.`last`.
    fn at(&self, last: u8) -> Option<HardwareId> {
        self.index.by_address([192, 0, 2, last].into()).map(|view| view.0.id)
    }
}

#[test]
fn a_machine_is_found_by_id_mac_address_and_key() {
    let site = Site::new();
    site.fleet.hardware(FeedEvent::Put(Hardware { name: "r1".into(), ..site.hardware(0, 1) }));
    let view = site.index.by_mac(Mac([2, 0, 0, 0, 0, 0])).unwrap();
    assert_eq!((view.0.id, site.at(1)), (site.ids[0], Some(site.ids[0])));
    assert_eq!(site.index.read().by_key("r1").len(), 1);
    site.fleet.hardware(FeedEvent::Deleted(site.ids[0].to_string()));
    assert!(site.index.by_id(site.ids[0]).is_none() && site.at(1).is_none());
    assert!(site.index.read().by_key("r1").is_empty());
}

#[test]
fn lists_of_a_record_have_no_unused_capacity() {
    let site = Site::empty();
    let mut hardware = site.hardware(0, 1);
    hardware.interfaces.reserve(8);
    hardware.disks.reserve(8);
    let dhcp = hardware.interfaces[0].dhcp.as_mut().unwrap();
    dhcp.name_servers = Vec::with_capacity(8);
    dhcp.name_servers.push("192.0.2.53".into());
    site.fleet.hardware(FeedEvent::Snapshot(vec![hardware]));
    site.fleet.instance(FeedEvent::Snapshot(vec![]));
    site.fleet.workflow(FeedEvent::Snapshot(vec![]));
    let hardware = &site.first().hardware;
    let dhcp = hardware.interfaces[0].dhcp.as_ref().unwrap();
    assert_eq!((hardware.interfaces.capacity(), dhcp.name_servers.capacity()), (1, 1));
    assert_eq!(hardware.disks.capacity(), 0);
}

#[test]
fn records_are_joined_in_any_order_of_arrival() {
    let site = Site::empty();
    site.fleet.workflow(FeedEvent::Snapshot(vec![site.workflow("w", true)]));
    site.fleet.instance(FeedEvent::Snapshot(vec![site.instance("i", 0)]));
    assert!(site.index.by_id(site.ids[0]).is_none());
    site.fleet.hardware(FeedEvent::Snapshot(vec![site.hardware(0, 1)]));
    let machine = site.first();
    assert_eq!(machine.instance.as_ref().unwrap().id, "i");
    assert!(machine.worker_wanted());
}

#[test]
fn a_late_event_of_an_earlier_instance_does_not_remove_the_new_one() {
    let site = Site::new();
    site.fleet.instance(FeedEvent::Put(site.instance("i-1", 0)));
    site.fleet.instance(FeedEvent::Put(site.instance("i-2", 0)));
    site.fleet.instance(FeedEvent::Deleted("i-1".into()));
    assert_eq!(site.first().instance.as_ref().unwrap().id, "i-2");
    let released = Instance { released: true, ..site.instance("i-2", 0) };
    site.fleet.instance(FeedEvent::Put(released));
    assert!(site.first().instance.is_none());
}

#[test]
fn a_worker_is_wanted_while_a_workflow_wants_the_machine() {
    let site = Site::new();
    site.fleet.workflow(FeedEvent::Put(site.workflow("w-2", true)));
    site.fleet.workflow(FeedEvent::Put(site.workflow("w-1", false)));
    let ids: Vec<_> = site.first().workflows.iter().map(|one| one.id.clone()).collect();
    assert!(site.first().worker_wanted() && ids == ["w-1", "w-2"]);
    let ended = Workflow { state: WorkflowState::Failed.into(), ..site.workflow("w-2", true) };
    site.fleet.workflow(FeedEvent::Put(ended));
    assert!(!site.first().worker_wanted());
    site.fleet.workflow(FeedEvent::Deleted("w-1".into()));
    assert!(site.first().workflows.is_empty());
}

#[test]
fn a_worker_is_not_wanted_before_the_machine_is_prepared_for_its_workflow() {
    let site = Site::new();
    let state = |mode: Mode, state: WorkflowState, prepared| {
        let boot_options = Some(BootOptions { mode: mode.into(), power_off_after: false });
        let workflow = site.workflow("w", true);
        let workflow = Workflow { boot_options, state: state.into(), prepared, ..workflow };
        site.fleet.workflow(FeedEvent::Put(workflow));
        (site.first().worker_wanted(), site.first().is_unprepared())
    };
    use WorkflowState::{Pending, Preparing, Running};
    assert_eq!(state(Mode::Netboot, Pending, false), (false, true));
    assert_eq!(state(Mode::Netboot, Preparing, false), (false, true));
    assert_eq!(state(Mode::Netboot, Pending, true), (true, false));
    assert_eq!(state(Mode::Netboot, Running, true), (true, false));
    assert_eq!(state(Mode::Unspecified, Pending, false), (true, false));
}

#[test]
fn records_missing_in_a_new_snapshot_are_removed() {
    let site = Site::new();
    site.fleet.instance(FeedEvent::Put(site.instance("i", 1)));
    site.fleet.hardware(FeedEvent::Disconnected);
    site.fleet.hardware(FeedEvent::Snapshot(vec![site.hardware(1, 2)]));
    assert_eq!((site.at(1), site.at(2)), (None, Some(site.ids[1])));
    assert!(site.index.by_id(site.ids[1]).unwrap().0.instance.is_some());
}

#[test]
fn the_first_claimant_keeps_an_address_until_it_releases_it() {
    let site = Site::new();
    site.fleet.hardware(FeedEvent::Put(site.hardware(0, 2)));
    assert_eq!((site.at(1), site.at(2)), (None, Some(site.ids[1])), "the older record was later");
    assert!(site.first().is_contested([192, 0, 2, 2].into()));
    assert_eq!(site.fleet.contested_addresses.get(), 1);
    site.fleet.hardware(FeedEvent::Put(site.hardware(1, 3)));
    assert_eq!((site.at(2), site.at(3)), (Some(site.ids[0]), Some(site.ids[1])));
    assert!(site.first().contested.is_empty());
    assert_eq!(site.fleet.contested_addresses.get(), 0);
}

#[test]
fn the_holder_keeps_its_address_when_the_feed_sends_another_snapshot() {
    let site = Site::new();
    site.fleet.hardware(FeedEvent::Disconnected);
    site.fleet.hardware(FeedEvent::Snapshot(vec![site.hardware(0, 2), site.hardware(1, 2)]));
    assert_eq!(site.at(2), Some(site.ids[1]));
}

#[test]
fn before_the_feeds_have_synced_a_contested_address_goes_to_the_oldest_record() {
    for order in [[0, 1], [1, 0]] {
        let site = Site::empty();
        let own = |machine: usize| {
            let ips = vec![Ip { address: "192.0.2.9".into(), ..Ip::default() }];
            Instance { ips, ..site.instance(["a", "b"][machine], machine) }
        };
        // The instance of the first machine claims the address, and the hardware record of the second one.
        let feeds: [&dyn Fn(); 2] =
            [&|| site.fleet.instance(FeedEvent::Snapshot(vec![own(0)])), &|| {
                site.fleet
                    .hardware(FeedEvent::Snapshot(vec![site.hardware(1, 9), site.hardware(0, 1)]))
            }];
        order.iter().for_each(|feed| feeds[*feed]());
        assert_eq!(site.at(9), Some(site.ids[0]));
    }
}

#[test]
fn an_instance_that_is_being_deprovisioned_releases_its_address() {
    let site = Site::new();
    let ips = vec![Ip { address: "192.0.2.9".into(), ..Ip::default() }];
    let own = |machine, state: State| Instance {
        state: state.into(),
        ips: ips.clone(),
        ..site.instance(["a", "b"][machine], machine)
    };
    site.fleet.instance(FeedEvent::Put(own(0, State::Active)));
    site.fleet.instance(FeedEvent::Put(own(1, State::Queued)));
    assert_eq!(site.at(9), Some(site.ids[0]));
    site.fleet.instance(FeedEvent::Put(own(0, State::Deprovisioning)));
    assert_eq!(site.at(9), Some(site.ids[1]));
}

#[test]
fn restored_leases_are_stale_and_are_replaced_by_the_feed() {
    let (site, now) = (Site::new(), Instant::now());
    let leases = || site.index.read().feeds.get(FeedKind::Lease);
    assert_eq!(leases(), Freshness::Unused);
    site.fleet.expect_leases();
    assert_eq!(leases(), Freshness::NeverSynced);
    let lease = Lease {
        address: "192.0.2.100".into(),
        mac: Mac([2, 0, 0, 0, 0, 0]).to_string(),
        state: tinwright::netboot::v1::lease::State::Bound.into(),
        expire_time: Some((SystemTime::now() + Duration::from_secs(60)).into()),
        ..Lease::default()
    };
    let cached = CachedFeed { objects: vec![lease.clone()], last_live: SystemTime::now() };
    site.fleet.restore_leases(cached);
    assert!(matches!(leases(), Freshness::StaleSince(since) if since >= now));
    let leased = || site.index.read().leases.get([192, 0, 2, 100].into(), now).is_some();
    assert!(leased());
    site.fleet.lease(FeedEvent::Snapshot(vec![]));
    assert!(!leased() && leases() == Freshness::Live);
    site.fleet.lease(FeedEvent::Put(lease));
    site.fleet.lease(FeedEvent::Disconnected);
    assert!(leased() && matches!(leases(), Freshness::StaleSince(_)));
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8),
    Delete(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2_usize, 0..3_u8).prop_map(|(machine, address)| Step::Put(machine, address)),
        1 => (0..2_usize).prop_map(Step::Delete),
    ]
}

proptest! {
    #[test]
    fn every_claimed_address_has_one_holder_among_its_claimants(steps in prop::collection::vec(any_step(), 0..20)) {
        let (site, mut addresses) = (Site::new(), [Some(1), Some(2)]);
        for step in steps {
            match step {
                Step::Put(machine, address) => {
                    site.fleet.hardware(FeedEvent::Put(site.hardware(machine, address)));
                    addresses[machine] = Some(address);
                }
                Step::Delete(machine) => {
                    site.fleet.hardware(FeedEvent::Deleted(site.ids[machine].to_string()));
                    addresses[machine] = None;
                }
            }
            for address in 0..3 {
                let holder = site.at(address);
                let claimants = || (0..2).filter(|machine| addresses[*machine] == Some(address));
                prop_assert_eq!(holder.is_some(), claimants().next().is_some());
                prop_assert!(holder.is_none_or(|id| claimants().any(|machine| site.ids[machine] == id)));
            }
        }
    }
}

#[test]
fn a_repeated_workflow_is_no_change() {
    let site = Site::new();
    site.fleet.workflow(FeedEvent::Put(site.workflow("w", true)));
    let before = site.index.by_id(site.ids[0]).unwrap();
    site.fleet.workflow(FeedEvent::Put(site.workflow("w", true)));
    assert!(Arc::ptr_eq(&before, &site.index.by_id(site.ids[0]).unwrap()));
    site.fleet.workflow(FeedEvent::Put(site.workflow("w", false)));
    assert!(!site.index.by_id(site.ids[0]).unwrap().0.worker_wanted());
}
