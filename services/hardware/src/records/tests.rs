//! Hardware records in a store: creating, finding, changing, deleting.

use super::*;
use pb::{Address, Dhcp, Hardware, Interface};
use store::memory::MemoryStore;
use store::records::Selector;
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
        assert_eq!(machines.records().select(&by).await.unwrap(), made);
    }
    let none = machines.records().select(&Selector::Index("address", "192.0.2.9".into())).await;
    assert!(none.unwrap_err().to_string() == "hardware 192.0.2.9 not found");
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
    assert_eq!(taken, format!("relay_port 192.0.2.1,,ab is taken by hardware {}", port.id));
    for (wrong, what) in [(same_name, "name"), (same_mac, "mac")] {
        let taken = machines.create(wrong, None).await.unwrap_err().to_string();
        let (begin, end) = (format!("{what} "), format!(" is taken by hardware {}", first.id));
        assert!(taken.starts_with(&begin) && taken.ends_with(&end), "{taken}");
    }
    assert_eq!(machines.records().list("", 10, |_| true).await.unwrap().records.len(), 2);
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
    assert_eq!(machines.records().find("address", "192.0.2.2").await.unwrap(), Some(new));
    assert_eq!(machines.records().find("address", "192.0.2.1").await.unwrap(), None);
    assert!(machines.records().check(false).await.unwrap().is_clean());
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
    assert_eq!(machines.records().require(&made.id).await.unwrap(), made);
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
    let found = machines.records().list("", 10, has).await.unwrap().records;
    assert_eq!(found.into_iter().map(|machine| machine.name).collect::<Vec<_>>(), ["n2"]);
}

#[tokio::test]
async fn a_machine_whose_occupant_is_unknown_is_not_deleted() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let (nobody, pipes) = tinwright::in_process::pair();
    drop(pipes);
    let id = made.id.parse().unwrap();
    let refused = machines.delete(id, 0, &Occupancy::new(nobody)).await;
    assert!(matches!(refused, Err(Error::OccupantUnknown(_))), "{refused:?}");
    assert_eq!(machines.records().require(&made.id).await.unwrap().state, made.state);
}
