//! Hardware records in a store: creating, finding, changing, deleting.

mod inventory;
mod overdue;

use super::*;
use crate::{fake_peers, peers};
use pb::{Address, Dhcp, Hardware, Interface};
use store::memory::MemoryStore;
use store::records::Selector;
use tinwright::Attributes as _;
use tinwright::hardware::v1::CreateHardwareRequest;

fn machines() -> HardwareRecords {
    HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system())
}

fn machine(last: u8) -> Hardware {
    let address =
        Address { address: format!("192.0.2.{last}"), prefix_length: 24, gateway: String::new() };
    let interface = Interface {
        mac: format!("02:00:00:00:00:{last:02x}"),
        dhcp: Some(Dhcp { address: Some(address), ..Dhcp::default() }),
        ..Interface::default()
    };
    Hardware { name: format!("n{last}"), interfaces: vec![interface], ..Hardware::default() }
}

/// A machine with a relay port.
fn plugged(last: u8) -> Hardware {
    let mut machine = machine(last);
    machine.interfaces[0].relay_port = Some(pb::RelayPort {
        circuit_id: "AB".into(),
        link_address: "192.0.2.1".into(),
        ..pb::RelayPort::default()
    });
    machine
}

fn request(id: &str, hardware: &Hardware) -> Option<IdempotentRequest> {
    let body = CreateHardwareRequest { hardware: Some(hardware.clone()), request_id: id.into() };
    IdempotentRequest::new(id, &body)
}

#[tokio::test]
async fn a_machine_is_found_by_id_name_mac_and_address() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    assert_eq!(made.state(), pb::State::Enrolled);
    for by in [
        Selector::Id(made.id.clone()),
        Selector::Index("name", "n1".into()),
        Selector::Index("mac", "02:00:00:00:00:01".into()),
        Selector::Index("address", "192.0.2.1".into()),
    ] {
        assert_eq!(machines.records.select(&by).await.unwrap(), made);
    }
    let none = machines.records.select(&Selector::Index("address", "192.0.2.9".into())).await;
    assert!(none.unwrap_err().to_string() == "hardware 192.0.2.9 not found");
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    assert_eq!(machines.update(made.clone(), &[]).await.unwrap(), made);
    let same = Hardware { name: "N1".into(), ..made.clone() };
    assert_eq!(machines.update(same, &["name".into()]).await.unwrap(), made);
    assert_eq!(machines.records.require(&made.id).await.unwrap(), made);
}

#[tokio::test]
async fn a_caller_who_may_not_read_a_script_keeps_it_when_it_changes_interfaces() {
    let machines = machines();
    let script = pb::Ipxe { contents: "#!ipxe".into(), ..Default::default() };
    let mut machine = machine(1);
    machine.interfaces[0].netboot = Some(pb::Netboot { ipxe: Some(script), ..Default::default() });
    let made = machines.create(machine, None).await.unwrap();
    let mut shown = made.clone().without_secrets();
    shown.interfaces[0].name = "eth1".into();
    let changed = machines.update(shown, &["interfaces".into()]).await.unwrap();
    assert_eq!(changed.interfaces[0].name, "eth1");
    assert_eq!(changed.interfaces[0].netboot, made.interfaces[0].netboot);
}

#[tokio::test]
async fn names_macs_addresses_and_ports_are_unique_and_the_error_names_the_owner() {
    let machines = machines();
    let first = machines.create(machine(1), None).await.unwrap();
    let again = machines.create(Hardware { id: first.id.clone(), ..machine(2) }, None).await;
    assert_eq!(again.unwrap_err().to_string(), format!("hardware {} exists already", first.id));
    let same_name = Hardware { name: "N1".into(), ..machine(2) };
    let same_mac = {
        let mut other = machine(2);
        other.interfaces[0].mac = "02-00-00-00-00-01".into();
        other
    };
    let same_port = plugged(2);
    let port = machines.create(plugged(3), None).await.unwrap();
    let taken = machines.create(same_port, None).await.unwrap_err().to_string();
    assert_eq!(taken, format!("relay_port 192.0.2.1,,ab is taken by hardware {}", port.name));
    // The name of the owner would not say more than the name that is taken.
    for (wrong, text) in [
        (same_name, format!("name n1 is taken by hardware {}", first.id)),
        (same_mac, "mac 02:00:00:00:00:01 is taken by hardware n1".to_owned()),
    ] {
        assert_eq!(machines.create(wrong, None).await.unwrap_err().to_string(), text);
    }
    assert_eq!(machines.records.list("", 10, |_| true).await.unwrap().records.len(), 2);
}

#[tokio::test]
async fn the_largest_machine_can_be_moved_in_one_commit() {
    let machines = machines();
    let full = |base: u8| {
        let interfaces = (base..base + 16).map(|n| {
            let mut one = plugged(n).interfaces.remove(0);
            one.relay_port.as_mut().unwrap().circuit_id = format!("{n:02x}");
            one
        });
        Hardware { interfaces: interfaces.collect(), ..machine(base) }
    };
    let made = machines.create(full(10), request("r", &full(10))).await.unwrap();
    let moved = Hardware { id: made.id.clone(), ..full(100) };
    assert_eq!(machines.update(moved, &[]).await.unwrap().interfaces, full(100).interfaces);
}

#[tokio::test]
async fn writing_back_a_list_entry_loses_nothing() {
    let machines = machines();
    let whole = Hardware { extra: b"{}".to_vec(), ..machine(1) };
    let made = machines.create(whole, None).await.unwrap();
    let listed = Hardware { extra: Vec::new(), plan: "big".into(), ..made.clone() };
    let new = machines.update(listed.clone(), &[]).await.unwrap();
    assert_eq!((new.plan.as_str(), &new.extra), ("big", &made.extra));
    let emptied = Hardware { revision: 0, ..listed };
    assert!(machines.update(emptied, &["extra".into()]).await.unwrap().extra.is_empty());
}

#[tokio::test]
async fn a_repeated_request_creates_one_machine() {
    let machines = machines();
    let first = machines.create(machine(1), request("r", &machine(1))).await.unwrap();
    let again = machines.create(machine(1), request("r", &machine(1))).await.unwrap();
    assert_eq!(first, again);
    let other = machines.create(machine(2), request("r", &machine(2))).await;
    assert!(matches!(other, Err(Error::Records(records::Error::Reused(id))) if id == "r"));
}

#[tokio::test]
async fn an_update_replaces_the_masked_fields_and_their_indexes() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let update =
        Hardware { id: made.id.clone(), revision: made.revision, plan: "big".into(), ..machine(2) };
    let new = machines.update(update, &["plan".into(), "interfaces".into()]).await.unwrap();
    assert_eq!((new.plan.as_str(), new.name.as_str()), ("big", "n1"));
    assert_ne!(new.revision, made.revision);
    assert_eq!(machines.records.find("address", "192.0.2.2").await.unwrap(), Some(new));
    assert_eq!(machines.records.find("address", "192.0.2.1").await.unwrap(), None);
    assert!(machines.records.check(false).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_stale_update_and_an_unknown_field_change_nothing() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let update = |revision| Hardware { revision, plan: "x".into(), ..made.clone() };
    let stale = machines.update(update(made.revision + 1), &[]).await;
    assert!(
        matches!(stale, Err(Error::Records(records::Error::Changed { id, .. })) if id == made.id)
    );
    let wrong = machines.update(update(0), &["state".into()]).await;
    assert!(
        matches!(wrong, Err(Error::Invalid(v)) if v.to_string().starts_with("update_mask: \"state\""))
    );
    assert_eq!(machines.records.require(&made.id).await.unwrap(), made);
}

#[tokio::test]
async fn a_state_changes_only_as_allowed_and_a_repeated_request_changes_nothing() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let id = made.id.parse().unwrap();
    let set = |state| machines.set_state(id, state, "because".into(), 0);
    let failed = set(State::Failed).await.unwrap();
    assert_eq!((failed.state(), failed.state_reason.as_str()), (pb::State::Failed, "because"));
    assert!(matches!(set(State::Provisionable).await, Err(Error::Illegal(_))));
    assert_eq!(set(State::Failed).await.unwrap(), failed, "not even its revision");
}

#[tokio::test]
async fn a_list_by_labels_has_the_machines_with_all_of_them() {
    let machines = machines();
    for n in 1..=6 {
        let labels =
            [("rack", if n < 4 { "a" } else { "b" }), ("row", if n % 2 == 0 { "1" } else { "2" })];
        let labels = labels.map(|(key, value)| (key.into(), value.into())).into();
        machines.create(Hardware { labels, ..machine(n) }, None).await.unwrap();
    }
    let wanted = [("rack".into(), "a".into()), ("row".into(), "1".into())].into();
    let has = |machine: &Hardware| machine.has_labels(&wanted);
    let found = machines.records.list("", 10, has).await.unwrap().records;
    assert_eq!(found.into_iter().map(|machine| machine.name).collect::<Vec<_>>(), ["n2"]);
}

#[tokio::test]
async fn a_machine_whose_occupant_is_unknown_is_not_deleted() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let nobody = runtime::Channel::unconnected();
    let id = made.id.parse().unwrap();
    let refused = machines.delete(id, 0, &Peers::new(nobody.clone(), nobody.clone(), nobody)).await;
    assert!(matches!(refused, Err(Error::Peers(peers::Error::Unavailable { .. }))), "{refused:?}");
    assert_eq!(machines.records.require(&made.id).await.unwrap().state, made.state);
}

/// Updates the plan of `machine`, whatever its revision.
async fn update_plan(machines: &HardwareRecords, machine: &Hardware) {
    let update = Hardware { revision: 0, plan: "big".into(), ..machine.clone() };
    machines.update(update, &["plan".into()]).await.unwrap();
}

#[tokio::test]
async fn an_occupied_machine_returns_to_its_state_although_it_was_updated_during_the_delete() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    let instance_service = async {
        let call = calls.recv().await.unwrap();
        update_plan(&machines, &made).await;
        call.send(Some("i1".into())).unwrap();
    };
    let delete = machines.delete(made.id.parse().unwrap(), 0, &peers);
    let (refused, ()) = tokio::join!(delete, instance_service);
    assert!(matches!(refused, Err(Error::Peers(peers::Error::Occupied { by, .. })) if by == "i1"));
    let found = machines.records.require(&made.id).await.unwrap();
    assert_eq!((found.state(), found.plan.as_str()), (State::Enrolled, "big"));
}

#[tokio::test]
async fn a_machine_that_is_updated_during_its_delete_is_deleted() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    let (updating, updated) = (machines.clone(), made.clone());
    tokio::spawn(async move {
        let call = calls.recv().await.unwrap();
        update_plan(&updating, &updated).await;
        call.send(None).unwrap();
        calls.recv().await.unwrap().send(None).unwrap();
    });
    machines.delete(made.id.parse().unwrap(), 0, &peers).await.unwrap();
    assert_eq!(machines.records.get(&made.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_second_delete_leaves_the_state_to_the_first() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    let id = made.id.parse().unwrap();
    let first = tokio::spawn({
        let (machines, peers) = (machines.clone(), peers.clone());
        async move { machines.delete(id, 0, &peers).await }
    });
    let first_call = calls.recv().await.unwrap();
    let second_call = async { calls.recv().await.unwrap().send(Some("i1".into())).unwrap() };
    let (second, ()) = tokio::join!(machines.delete(id, 0, &peers), second_call);
    assert!(matches!(second, Err(Error::Peers(peers::Error::Occupied { .. }))));
    assert_eq!(machines.records.require(&made.id).await.unwrap().state(), State::Deleting);
    first_call.send(Some("i1".into())).unwrap();
    assert!(matches!(first.await.unwrap(), Err(Error::Peers(peers::Error::Occupied { .. }))));
    assert_eq!(machines.records.require(&made.id).await.unwrap().state(), State::Enrolled);
}

/// Writes `protect` into `machine`, as an update with the mask `paths`.
async fn set_protect(machines: &HardwareRecords, machine: &Hardware, protect: bool, mask: &[&str]) {
    let update = Hardware { revision: 0, protect, ..machine.clone() };
    let paths: Vec<_> = mask.iter().map(|path| (*path).to_owned()).collect();
    machines.update(update, &paths).await.unwrap();
}

#[tokio::test]
async fn a_protected_machine_is_not_deleted_until_an_update_with_the_mask_ends_that() {
    let machines = machines();
    let made = machines.create(Hardware { protect: true, ..machine(1) }, None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    tokio::spawn(async move {
        while let Some(call) = calls.recv().await {
            call.send(None).unwrap();
        }
    });
    let delete = async || machines.delete(made.id.parse().unwrap(), 0, &peers).await;
    assert!(matches!(delete().await, Err(Error::Protected(id)) if id == made.id));
    assert_eq!(machines.records.require(&made.id).await.unwrap(), made, "not even its revision");
    set_protect(&machines, &made, false, &[]).await;
    assert!(matches!(delete().await, Err(Error::Protected(_))), "a client without the field");
    set_protect(&machines, &made, false, &["protect"]).await;
    delete().await.unwrap();
    assert_eq!(machines.records.get(&made.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_machine_that_is_protected_during_its_delete_returns_to_its_state() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let (peers, mut calls) = fake_peers::start();
    let instance_service = async {
        let call = calls.recv().await.unwrap();
        set_protect(&machines, &made, true, &["protect"]).await;
        call.send(None).unwrap();
        // Only a delete that goes on in spite of the protection asks again.
        drop(calls);
    };
    let delete = machines.delete(made.id.parse().unwrap(), 0, &peers);
    let (refused, ()) = tokio::join!(delete, instance_service);
    assert!(matches!(refused, Err(Error::Protected(_))), "{refused:?}");
    let found = machines.records.require(&made.id).await.unwrap();
    assert_eq!((found.state(), found.protect), (State::Enrolled, true));
}

#[test]
fn a_refusal_names_the_reason_for_programs() {
    let status = tonic::Status::from(Error::Protected("m1".into()));
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert_eq!(status.message(), "hardware m1 is protected: remove its protection first");
    assert_eq!(
        tonic_types::StatusExt::get_details_error_info(&status).unwrap().reason,
        "PROTECTED"
    );
}
