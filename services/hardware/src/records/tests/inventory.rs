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
        let stored = machines.records().require(&made.id).await.unwrap();
        assert_eq!(stored.inventory.as_ref().unwrap().disks, with_disk(serial).disks);
        revisions.push(stored.revision);
    }
    assert!(made.revision < revisions[0], "{revisions:?}");
    assert!(revisions[0] == revisions[1] && revisions[1] < revisions[2], "{revisions:?}");
    let log = EventLog::new(machines.records().store().clone(), "hardware");
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
