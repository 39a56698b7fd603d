//! Systems of outside platforms: the gate, the address and their ends.

use tinwright::address::v1::GrantState;
use tinwright::hardware::v1::{
    Address, BmcInventory, Dhcp, Enrolment, Hardware, Interface, Inventory, Netboot,
};
use tinwright::instance::v1::instance::{AttachedAddress, PowerManagement};
use tinwright::instance::v1::{BootGate, PlatformBoot};
use tinwright::power::v1::operation::{Boot, Power, What, boot::Device};

use super::*;
use crate::instances::boot_gate;
use crate::restart::{Restart, restart};
use crate::tests::site::{BOOT_URL, Frail, LOCATION};

const UUID: &str = "4c4c4544-0051-3610-8052-b4c04f4d3532";
const MAC: &str = "52:54:00:00:00:01";

fn platform() -> Instance {
    let boot = PlatformBoot { group: "hub-1".into(), ..PlatformBoot::default() };
    let os = Some(Os::Platform(boot));
    Instance { template_id: String::new(), userdata: String::new(), os, ..templated() }
}

fn interface(mac: &str) -> Interface {
    let netboot = Some(Netboot { allow_pxe: true, ..Netboot::default() });
    Interface { mac: mac.into(), netboot, ..Interface::default() }
}

/// The machine of the site, which reserves no address.
fn machine() -> Hardware {
    Hardware {
        id: MACHINE.into(),
        state: HardwareState::Provisionable.into(),
        interfaces: vec![interface(MAC)],
        inventory: Some(Box::new(Inventory { uuid: UUID.into(), ..Inventory::default() })),
        location_id: LOCATION.1.into(),
        ..Hardware::default()
    }
}

fn with_reservation(address: &str, hardware: Hardware) -> Hardware {
    let address = Some(Address { address: address.into(), ..Address::default() });
    let mut hardware = hardware;
    hardware.interfaces[0].dhcp = Some(Dhcp { address, ..Dhcp::default() });
    hardware
}

async fn bench_with(hardware: Hardware, instance: Instance) -> Bench {
    let bench = Bench::new(instance).await;
    bench.site.state().machine = Some(hardware);
    bench
}

async fn bench() -> Bench {
    bench_with(machine(), platform()).await
}

/// Runs the reconciler over a store that dies at the given commit. Returns true if it died.
async fn die(bench: &Bench, commits: usize, last_is_made: bool) -> bool {
    let store = Arc::new(Frail::new(bench.store.clone(), commits, last_is_made));
    let reconciler = Reconciler::new(Instances::new(store, Clock::system()), bench.site.peers());
    drive(&reconciler, &bench.id.to_string()).await.is_err()
}

impl Bench {
    async fn gate(&self) -> Option<BootGate> {
        self.found().await.unwrap().boot_gate
    }

    async fn is_open(&self) -> bool {
        self.found().await.is_some_and(|instance| boot_gate::is_open(&instance))
    }

    fn os(instance: &Instance) -> PlatformBoot {
        let Some(Os::Platform(boot)) = &instance.os else { panic!("{instance:?}") };
        boot.clone()
    }

    /// Asserts that the gate, the boot URL and the state belong together, and that claims and records agree.
    async fn assert_consistent(&self) {
        let Some(found) = self.found().await else { return };
        let is_open = boot_gate::is_open(&found);
        let has_begun = found.begin_time.is_some();
        let is_ending = State::try_from(&found).unwrap().is_being_deleted();
        assert_eq!(is_open, has_begun && !is_ending, "{found:?}");
        assert_eq!(!Self::os(&found).boot_url.is_empty(), has_begun, "{found:?}");
        assert!(self.instances.records.check(false).await.unwrap().is_clean());
        for index in ["gate_uuid", "gate_mac"] {
            let claims = self.store.list(&format!("instance/{index}/"), "", 9).await.unwrap();
            assert_eq!(claims.pairs.len(), usize::from(is_open), "{index}");
        }
    }
}

#[tokio::test]
async fn the_gate_opens_with_all_values_and_then_the_machine_is_switched_on_from_the_network() {
    let bench = bench().await;
    assert_eq!(bench.settled().await, "provisioning");
    let found = bench.found().await.unwrap();
    let gate = found.boot_gate.clone().unwrap();
    assert_eq!((gate.open, gate.uuid.as_str(), gate.mac.as_str()), (true, UUID, MAC));
    assert_eq!(gate.initial_ips, ["198.51.100.1"]);
    assert!(gate.open_time.is_some());
    assert_eq!(Bench::os(&found).boot_url, BOOT_URL);
    let copied: Vec<_> = found.addresses.iter().map(|it| (&*it.address, it.primary)).collect();
    assert_eq!(copied, [("198.51.100.1", true)], "DHCP knows it");
    let grant = bench.site.state().grants[0].clone();
    assert_eq!(
        (grant.key.clone(), grant.group.clone()),
        (format!("instance/{}/primary", bench.id), "hub-1".into())
    );
    assert_eq!((grant.location_id.as_str(), grant.state()), (LOCATION.1, GrantState::Active));
    assert_eq!(grant.id, found.primary_grant_id);
    let job = bench.site.state().jobs[0].clone();
    let pxe = What::Boot(Boot { device: Device::Pxe.into(), ..Boot::default() });
    let operations: Vec<_> = job.operations.into_iter().filter_map(|it| it.what).collect();
    assert_eq!(operations, [pxe, What::Power(Power::Cycle.into())]);
    assert!(bench.site.state().released_jobs.contains(&found.power_job_id));
    bench.report_script(true).await;
    assert_eq!((bench.settled().await, bench.reason().await), ("active".into(), String::new()));
    assert_eq!(bench.gate().await, Some(gate), "the values stay");
}

#[tokio::test]
async fn a_reserved_address_is_used_and_none_is_granted() {
    let bench = bench_with(with_reservation("192.0.2.10", machine()), platform()).await;
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.gate().await.unwrap().initial_ips, ["192.0.2.10"]);
    assert!(bench.site.state().grants.is_empty());
}

#[tokio::test]
async fn the_ipv6_addresses_of_the_interface_belong_to_the_gate() {
    let bench = bench_with(with_reservation("2001:db8::10", machine()), platform()).await;
    let old = bench.found().await.unwrap();
    let of = |address: &str, mac: &str| AttachedAddress {
        address: address.into(),
        mac: mac.into(),
        ..AttachedAddress::default()
    };
    let other = "52:54:00:00:00:99";
    let addresses = vec![of("2001:db8::11", MAC), of("2001:db8::12", other), of("192.0.2.9", MAC)];
    bench.instances.put(&old, Instance { addresses, ..old.clone() }).await.unwrap();
    bench.settle().await;
    let expected = ["198.51.100.1", "2001:db8::10", "2001:db8::11"];
    assert_eq!(bench.gate().await.unwrap().initial_ips, expected);
}

#[tokio::test]
async fn the_boot_interface_is_the_enrolled_one_of_those_that_may_boot() {
    let (second, third) = ("52:54:00:00:00:02", "52:54:00:00:00:03");
    let never = |mac: &str| Interface { netboot: None, ..interface(mac) };
    let enrolled =
        |mac: &str| Some(Box::new(Enrolment { mac: mac.into(), ..Enrolment::default() }));
    for (interfaces, enrolment, expected) in [
        (vec![interface(MAC), interface(second)], None, MAC),
        (vec![interface(MAC), interface(second)], enrolled(second), second),
        (vec![never(MAC), interface(second), interface(third)], enrolled(MAC), second),
        (vec![never(MAC), never(second)], enrolled(second), second),
        (vec![never(MAC), never(second)], None, MAC),
    ] {
        let bench = bench_with(Hardware { interfaces, enrolment, ..machine() }, platform()).await;
        bench.settle().await;
        assert_eq!(bench.gate().await.unwrap().mac, expected);
    }
}

#[tokio::test]
async fn the_uuid_is_the_machines_own_or_that_of_its_bmc_and_without_one_it_fails_until_a_retry() {
    let of_bmc = "4c4c4544-0051-3610-8052-b4c04f4d3599";
    let bmc_inventory =
        Some(Box::new(BmcInventory { uuid: of_bmc.into(), ..BmcInventory::default() }));
    let unknown = Hardware { inventory: Some(Box::default()), ..machine() };
    let bench = bench_with(unknown.clone(), platform()).await;
    assert_eq!(bench.settled().await, "failed");
    assert_eq!(
        bench.reason().await,
        "the machine's UUID is not known: neither it nor its BMC reported one"
    );
    assert!(bench.gate().await.is_none() && bench.occupied().await);
    assert!(bench.site.state().grants.is_empty(), "no address before the values are known");
    bench.site.state().machine = Some(Hardware { bmc_inventory: bmc_inventory.clone(), ..unknown });
    bench.instances.retry(bench.id).await.unwrap();
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.gate().await.unwrap().uuid, of_bmc);
    let both = bench_with(Hardware { bmc_inventory, ..machine() }, platform()).await;
    both.settle().await;
    assert_eq!(both.gate().await.unwrap().uuid, UUID);
}

#[tokio::test]
async fn the_url_of_the_instance_overrides_that_of_the_location_and_without_both_it_fails() {
    let own = PlatformBoot { url: "/platform/os/start.ipxe".into(), ..PlatformBoot::default() };
    let own = bench_with(machine(), Instance { os: Some(Os::Platform(own)), ..platform() }).await;
    own.settle().await;
    assert_eq!(Bench::os(&own.found().await.unwrap()).boot_url, "/platform/os/start.ipxe");
    let bench = bench().await;
    bench.site.state().location.boot_url.clear();
    assert_eq!(bench.settled().await, "failed");
    assert_eq!(
        bench.reason().await,
        "there is no boot URL: url and the location's boot_url are empty"
    );
    let nowhere = Hardware { location_id: String::new(), ..machine() };
    let nowhere = bench_with(nowhere, platform()).await;
    assert_eq!(nowhere.settled().await, "failed");
    assert!(nowhere.gate().await.is_none());
}

#[tokio::test]
async fn it_waits_for_a_free_address() {
    let bench = bench().await;
    let pool = std::mem::take(&mut bench.site.state().pool);
    assert!(matches!(bench.settle().await, Outcome::After(_)));
    assert_eq!(bench.state().await, "queued");
    assert_eq!(bench.reason().await, "waits: no IPv4 address of the location is free");
    assert!(bench.gate().await.is_none());
    bench.site.state().pool = pool;
    assert_eq!(bench.settled().await, "provisioning");
    assert!(bench.is_open().await);
}

#[tokio::test]
async fn an_interface_of_another_dhcp_server_gets_no_grant() {
    let mut hardware = machine();
    hardware.interfaces[0].dhcp = Some(Dhcp { proxy: true, ..Dhcp::default() });
    let bench = bench_with(hardware, platform()).await;
    assert_eq!(bench.settled().await, "failed");
    assert!(bench.reason().await.starts_with("another DHCP server"));
    assert!(bench.site.state().grants.is_empty());
}

/// Puts another instance, whose gate the server opened, on another machine.
async fn other_with_gate(bench: &Bench, uuid: &str, mac: &str) {
    let hardware_id = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a11".into();
    let other = Instance { hardware_id, ..platform() };
    let made = bench.instances.create(other, None).await.unwrap();
    let gate = BootGate {
        open: true,
        uuid: uuid.into(),
        mac: mac.into(),
        open_time: Some(bench.instances.now().into()),
        ..BootGate::default()
    };
    let open = |new: &mut Instance| new.boot_gate = Some(gate);
    bench.instances.advance(&made, Event::Began, "", open).await.unwrap();
}

#[tokio::test]
async fn no_two_open_gates_have_a_uuid_or_a_mac_in_common() {
    let swapped = "44454c4c-5100-1036-8052-b4c04f4d3532";
    let (other_uuid, other_mac) = ("4c4c4544-0051-3610-8052-b4c04f4d3500", "52:54:00:00:00:99");
    for (uuid, mac, value) in
        [(UUID, other_mac, "UUID"), (swapped, other_mac, "UUID"), (other_uuid, MAC, "MAC")]
    {
        let bench = bench().await;
        other_with_gate(&bench, uuid, mac).await;
        assert_eq!(bench.settled().await, "failed");
        let reason = format!("the open boot gate of another machine has the {value} of this one");
        assert_eq!(bench.reason().await, reason);
        assert!(!bench.is_open().await && bench.site.state().jobs.is_empty());
        bench.delete(false).await;
        assert_eq!(bench.settled().await, "gone");
        assert_eq!(bench.site.grant_states(), [GrantState::Released]);
    }
    let bench = bench().await;
    other_with_gate(&bench, other_uuid, other_mac).await;
    assert_eq!(bench.settled().await, "provisioning");
}

/// A platform's instance in each state that has an open gate, or may get one.
async fn in_each_state() -> Vec<(&'static str, Bench)> {
    let queued = bench().await;
    let waiting = bench().await;
    waiting.site.state().pool.clear();
    waiting.settle().await;
    let provisioning = bench().await;
    provisioning.settle().await;
    let active = bench().await;
    active.settle().await;
    active.report_script(true).await;
    active.settle().await;
    let failed = bench().await;
    failed.settle().await;
    let old = failed.found().await.unwrap();
    failed.instances.advance(&old, Event::Failed, "test", |_| {}).await.unwrap();
    assert!(failed.is_open().await, "a failure after the opening leaves it open");
    let retried = bench().await;
    retried.settle().await;
    let old = retried.found().await.unwrap();
    retried.instances.advance(&old, Event::Failed, "test", |_| {}).await.unwrap();
    retried.instances.retry(retried.id).await.unwrap();
    vec![
        ("queued", queued),
        ("waiting", waiting),
        ("provisioning", provisioning),
        ("active", active),
        ("failed", failed),
        ("retried", retried),
    ]
}

#[tokio::test]
async fn a_delete_closes_the_gate_in_its_own_commit_and_for_ever() {
    for force in [false, true] {
        for (name, bench) in Box::pin(in_each_state()).await {
            let deleted = bench.instances.delete(bench.id, 0, force).await.unwrap();
            assert!(deleted.boot_gate.is_none_or(|gate| !gate.open), "{name}");
            bench.assert_consistent().await;
            // A clean-up that fails, and is retried.
            bench.settle().await;
            if bench.state().await == "deprovisioning" {
                bench.site.end(Workflow::Failed, "");
                assert_eq!(bench.settled().await, "deprovision_failed", "{name}");
                bench.assert_consistent().await;
                bench.instances.retry(bench.id).await.unwrap();
                bench.settle().await;
                bench.assert_consistent().await;
                let grants = bench.site.grant_states();
                assert_eq!(grants, [GrantState::Active], "{name}: the clean-up needs the address");
                bench.site.end(Workflow::Success, "");
            }
            assert_eq!(bench.settled().await, "gone", "{name}");
            let left = bench.site.grant_states();
            assert!(left.iter().all(|state| *state == GrantState::Released), "{name}: {left:?}");
            let claims = bench.store.list("instance/gate_", "", 9).await.unwrap().pairs;
            assert!(claims.is_empty(), "{name}: {claims:?}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_the_opening_keeps_the_values() {
    let bench = bench().await;
    bench.settle().await;
    let gate = bench.gate().await;
    let old = bench.found().await.unwrap();
    bench.instances.advance(&old, Event::Failed, "test", |_| {}).await.unwrap();
    let other =
        Inventory { uuid: "4c4c4544-0051-3610-8052-b4c04f4d3599".into(), ..Inventory::default() };
    bench.site.state().machine.as_mut().unwrap().inventory = Some(Box::new(other));
    bench.instances.retry(bench.id).await.unwrap();
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.gate().await, gate);
    assert_eq!(bench.site.state().released_jobs.len(), 2, "and boots again");
}

#[tokio::test]
async fn a_machine_that_becomes_unusable_before_the_gate_opens_gives_its_address_back() {
    let bench = bench().await;
    assert_eq!(bench.reconciler.step(&bench.id.to_string()).await.unwrap(), Outcome::Again);
    assert!(!bench.found().await.unwrap().primary_grant_id.is_empty());
    bench.site.set_machine_state(HardwareState::Maintenance, "fan");
    assert_eq!(bench.settled().await, "failed");
    assert!(bench.found().await.unwrap().released);
    assert_eq!(bench.site.grant_states(), [GrantState::Released]);
    bench.site.set_machine_state(HardwareState::Provisionable, "");
    bench.instances.retry(bench.id).await.unwrap();
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.site.grant_states(), [GrantState::Released, GrantState::Active]);
    assert!(bench.is_open().await);
}

#[tokio::test]
async fn a_grant_that_ended_before_it_was_attached_is_replaced() {
    for by_operator in [false, true] {
        let bench = bench().await;
        bench.reconciler.step(&bench.id.to_string()).await.unwrap();
        let id = bench.found().await.unwrap().primary_grant_id;
        match by_operator {
            true => bench.site.peers().release_grant(&id).await.unwrap(),
            false => bench.site.expire_pending(),
        }
        bench.settle().await;
        assert_eq!(bench.settled().await, "provisioning");
        assert!(bench.is_open().await);
        assert_ne!(bench.found().await.unwrap().primary_grant_id, id);
    }
}

#[tokio::test]
async fn without_a_bmc_somebody_switches_the_machine_on() {
    for has_bmc in [false, true] {
        let by_hand = PowerManagement::None.into();
        let instance = match has_bmc {
            true => Instance { power_management: by_hand, ..platform() },
            false => platform(),
        };
        let bench = bench_with(machine(), instance).await;
        bench.site.state().has_bmc = has_bmc;
        assert_eq!(bench.settled().await, "provisioning");
        assert!(bench.is_open().await && bench.reason().await.contains("by hand"));
        assert!(bench.site.state().jobs.is_empty());
        bench.report_script(true).await;
        assert_eq!(bench.settled().await, "active");
    }
}

#[tokio::test]
async fn a_script_that_a_later_boot_cannot_load_leaves_the_instance_active() {
    let bench = bench().await;
    bench.settle().await;
    bench.report_script(false).await;
    assert_eq!(bench.settled().await, "provisioning");
    bench.report_script(true).await;
    assert_eq!(bench.settled().await, "active");
    bench.report_script(false).await;
    assert_eq!(bench.settled().await, "active");
    assert_eq!(bench.reason().await, "its platform's script could not be loaded");
    bench.report_script(true).await;
    assert_eq!((bench.settled().await, bench.reason().await), ("active".into(), String::new()));
}

#[tokio::test]
async fn a_restart_boots_from_the_network_and_keeps_the_gate_and_nothing_is_reinstalled() {
    let bench = bench().await;
    bench.settle().await;
    bench.report_script(true).await;
    bench.settle().await;
    let gate = bench.gate().await;
    let pxe = What::Boot(Boot { device: Device::Pxe.into(), ..Boot::default() });
    let power = |power: Power| What::Power(power.into());
    let [soft, forced] = [
        vec![power(Power::SoftOff), pxe.clone(), power(Power::On)],
        vec![pxe, power(Power::Cycle)],
    ];
    for (force, expected) in [(false, soft), (true, forced)] {
        let order = Restart { instance: bench.id, force, request: format!("anna\n{force}") };
        restart(&bench.instances, &bench.site.peers(), &order).await.unwrap();
        let job = bench.site.state().jobs.last().unwrap().clone();
        let operations: Vec<_> = job.operations.into_iter().filter_map(|it| it.what).collect();
        assert_eq!(operations, expected);
    }
    assert_eq!(bench.gate().await, gate);
    let refused = bench.instances.reinstall(bench.id, 0, Instance::default(), &[]).await;
    assert!(matches!(refused, Err(instances::Error::NothingToInstall(_))), "{refused:?}");
}

/// Makes steps as the controller does, until the instance waits: a step that failed is repeated.
async fn settle_with_retries(bench: &Bench) {
    let id = bench.id.to_string();
    for _ in 0..3 {
        if drive(&bench.reconciler, &id).await.is_ok() {
            return;
        }
    }
    panic!("one lost answer fails no more than one step");
}

#[tokio::test]
async fn dying_at_any_commit_leaves_nothing_and_opens_no_gate_without_its_claims() {
    let mut deaths = 0;
    for (commits, last_is_made) in (1..9).flat_map(|commit| [(commit, false), (commit, true)]) {
        let bench = bench().await;
        deaths += usize::from(die(&bench, commits, last_is_made).await);
        bench.assert_consistent().await;
        assert_eq!(bench.settled().await, "provisioning");
        bench.report_script(true).await;
        deaths += usize::from(die(&bench, commits, last_is_made).await);
        bench.assert_consistent().await;
        assert_eq!(bench.settled().await, "active");
        bench.delete(false).await;
        deaths += usize::from(die(&bench, commits, last_is_made).await);
        bench.assert_consistent().await;
        assert_eq!(bench.settled().await, "deprovisioning");
        bench.site.end(Workflow::Success, "");
        deaths += usize::from(die(&bench, commits, last_is_made).await);
        assert_eq!(bench.settled().await, "gone");
        assert_eq!(bench.site.grant_states(), [GrantState::Released], "one grant, released");
        assert_eq!(bench.site.request_ids().len(), 2);
        assert!(bench.instances.records.check(false).await.unwrap().is_clean());
    }
    assert!(deaths >= 2 * 7, "it died at each of its commits: {deaths}");
}

#[tokio::test]
async fn a_delete_after_a_death_at_any_commit_leaves_no_grant() {
    for force in [false, true] {
        for (commits, last_is_made) in (1..6).flat_map(|commit| [(commit, false), (commit, true)]) {
            let bench = bench().await;
            die(&bench, commits, last_is_made).await;
            bench.delete(force).await;
            bench.settle().await;
            if bench.state().await == "deprovisioning" {
                bench.site.end(Workflow::Success, "");
            }
            assert_eq!(bench.settled().await, "gone");
            // One that was not recorded was not attached, and ends by itself.
            bench.site.expire_pending();
            let left = bench.site.grant_states();
            assert!(left.iter().all(|state| *state == GrantState::Released), "{left:?}");
        }
    }
}

#[tokio::test]
async fn a_lost_response_grants_one_address_and_creates_one_power_job() {
    for lost in 0..24 {
        let bench = bench().await;
        bench.site.state().lose_after = Some(lost);
        settle_with_retries(&bench).await;
        bench.report_script(true).await;
        settle_with_retries(&bench).await;
        assert_eq!(bench.state().await, "active", "answer {lost} lost");
        bench.assert_consistent().await;
        bench.delete(false).await;
        settle_with_retries(&bench).await;
        bench.site.end(Workflow::Success, "");
        settle_with_retries(&bench).await;
        assert_eq!(bench.state().await, "gone", "answer {lost} lost");
        assert_eq!(bench.site.grant_states(), [GrantState::Released], "answer {lost} lost");
        assert_eq!(bench.site.request_ids().len(), 2, "answer {lost} lost");
    }
}

#[tokio::test]
async fn two_processes_open_one_gate_with_one_address() {
    let bench = bench().await;
    let other = Reconciler::new(bench.instances.clone(), bench.site.peers());
    let id = bench.id.to_string();
    tokio::try_join!(drive(&bench.reconciler, &id), drive(&other, &id)).unwrap();
    assert_eq!((bench.state().await, bench.is_open().await), ("provisioning".into(), true));
    assert_eq!(bench.site.grant_states(), [GrantState::Active]);
    assert_eq!(bench.site.state().released_jobs.len(), 1);
}

#[tokio::test]
async fn a_creation_that_is_taken_back_leaves_an_instance_whose_grant_is_recorded() {
    let bench = bench().await;
    let created = bench.found().await.unwrap();
    bench.reconciler.step(&bench.id.to_string()).await.unwrap();
    let kept = bench.instances.take_back(&created, None).await.unwrap();
    assert!(kept.is_some_and(|it| !it.primary_grant_id.is_empty()));
    bench.site.state().tenants = [FoundTenant::Missing].into();
    let old = bench.found().await.unwrap();
    let of_tenant = Instance { tenant: "acme".into(), ..old.clone() };
    bench.instances.put(&old, of_tenant).await.unwrap();
    assert_eq!(bench.settled().await, "gone", "its tenant is missing");
    assert_eq!(bench.site.grant_states(), [GrantState::Released]);
}
