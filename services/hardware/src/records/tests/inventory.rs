//! Inventories: stored, compared, and recorded as events.

use store::events::EventLog;
use tinwright::event::v1::{EventFilter, EventKind};

use super::*;

fn with_disk(serial: &str) -> pb::Inventory {
    let disk =
        pb::InventoryDisk { name: "sda".into(), serial: serial.into(), ..Default::default() };
    pb::Inventory { disks: vec![disk], ..pb::Inventory::default() }
}

#[tokio::test]
async fn a_report_that_changes_nothing_writes_nothing_and_others_are_events() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let id: HardwareId = made.id.parse().unwrap();
    let mut revisions = Vec::new();
    for serial in ["A", "A", "B"] {
        machines.record_inventory(id, with_disk(serial)).await.unwrap();
        let stored = machines.records.require(&made.id).await.unwrap();
        assert_eq!(stored.inventory.as_ref().unwrap().disks, with_disk(serial).disks);
        revisions.push(stored.revision);
    }
    assert!(made.revision < revisions[0], "{revisions:?}");
    assert!(revisions[0] == revisions[1] && revisions[1] < revisions[2], "{revisions:?}");
    let log = EventLog::new(machines.records.store().clone(), "hardware");
    let kind = EventKind::Report.into();
    let filter = EventFilter { kind, ..EventFilter::default() };
    let events = log.list(&filter, "", 10).await.unwrap().records;
    let texts: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(
        texts,
        ["first inventory", "disk with serial A is gone; disk with serial B is new (sda)"]
    );
    assert!(events.iter().all(|event| event.object_id == made.id && event.old_state == "enrolled"));
}

#[tokio::test]
async fn callers_cannot_set_or_remove_the_inventory() {
    let machines = machines();
    let made = Hardware { inventory: Some(Box::new(with_disk("X"))), ..machine(1) };
    let made = machines.create(made, None).await.unwrap();
    assert_eq!(made.inventory, None);
    machines.record_inventory(made.id.parse().unwrap(), with_disk("A")).await.unwrap();
    let update =
        Hardware { id: made.id.clone(), inventory: Some(Box::new(with_disk("X"))), ..machine(1) };
    let updated = machines.update(update.clone(), &[]).await.unwrap();
    assert_eq!(updated.inventory.unwrap().disks, with_disk("A").disks);
    let named = machines.update(update, &["inventory".into()]).await;
    assert!(named.unwrap_err().to_string().contains("update_mask"));
}

#[tokio::test]
async fn an_inventory_of_an_unknown_machine_is_not_found() {
    let missing = machines().record_inventory(HardwareId::new(), with_disk("A")).await;
    assert!(missing.unwrap_err().to_string().ends_with("not found"));
}

#[tokio::test]
async fn an_inventory_of_the_bmc_is_an_event_and_a_contradiction_an_alarm_until_it_is_gone() {
    let machines = machines();
    let made = machines.create(machine(1), None).await.unwrap();
    let id: HardwareId = made.id.parse().unwrap();
    let own = pb::Inventory { serial: "A1".into(), ..Default::default() };
    machines.record_inventory(id, own).await.unwrap();
    let listed = |serial: &str| pb::BmcInventory { serial: serial.into(), ..Default::default() };
    let stored = async || machines.records.require(&made.id).await.unwrap();
    machines.record_bmc_inventory(id, listed("A1")).await.unwrap();
    let before = stored().await;
    assert_eq!(before.inventory_warning, "");
    machines.record_bmc_inventory(id, listed("A1")).await.unwrap();
    assert_eq!(stored().await.revision, before.revision, "nothing new is not stored");

    machines.record_bmc_inventory(id, listed("B7")).await.unwrap();
    let warning =
        "the BMC says serial B7, the machine itself A1: is it the BMC of another machine?";
    assert_eq!(stored().await.inventory_warning, warning);
    // The machine was exchanged for that of the BMC.
    let own = pb::Inventory { serial: "B7".into(), ..Default::default() };
    machines.record_inventory(id, own).await.unwrap();
    assert_eq!(stored().await.inventory_warning, "");

    let log = EventLog::new(machines.records.store().clone(), "hardware");
    let events = log.list(&EventFilter::default(), "", 10).await.unwrap().records;
    let kinds: Vec<_> = events.iter().map(|event| (event.kind(), event.text.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (EventKind::Transition, "created"),
            (EventKind::Report, "first inventory"),
            (EventKind::Report, "first inventory of the BMC"),
            (EventKind::Alarm, warning),
            (EventKind::Report, "serial is B7, was A1"),
        ]
    );
}

#[tokio::test]
async fn a_machine_without_interfaces_is_enrolled_and_not_provisionable() {
    let machines = machines();
    let bare = Hardware {
        state: State::Enrolled.into(),
        interfaces: vec![],
        bmc_inventory: Some(Box::default()),
        inventory_warning: "x".into(),
        ..machine(1)
    };
    let made = machines.create(bare, None).await.unwrap();
    assert_eq!((&made.bmc_inventory, made.inventory_warning.as_str()), (&None, ""));
    let id: HardwareId = made.id.parse().unwrap();
    let refused = machines.set_state(id, State::Provisionable, String::new(), 0).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("interfaces: is empty"), "{refused}");
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let update = Hardware { id: made.id.clone(), labels, ..Hardware::default() };
    machines.update(update, &["labels".into()]).await.unwrap();
    let update = Hardware { id: made.id, ..machine(1) };
    machines.update(update, &["interfaces".into()]).await.unwrap();
    machines.set_state(id, State::Provisionable, String::new(), 0).await.unwrap();
}
