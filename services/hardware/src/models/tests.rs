//! Models: their rules, and the numbers of their machines.

use std::sync::Arc;

use store::memory::MemoryStore;
use store::records::requests::IdempotentRequest;

use super::*;
use crate::HardwareRecords;

fn site() -> (HardwareRecords, Models) {
    let machines = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
    let models = Models::new(machines.records.store().clone(), Clock::system());
    (machines, models)
}

fn model(name: &str, rack: &str) -> pb::Model {
    let labels = match rack {
        "" => Default::default(),
        rack => [("rack".to_owned(), rack.to_owned())].into(),
    };
    let constraints = Some(pb::ModelConstraints { labels, ..pb::ModelConstraints::default() });
    pb::Model { name: name.into(), constraints, ..pb::Model::default() }
}

#[test]
fn each_wrong_field_of_a_model_is_named() {
    let nothing = pb::Bounds::default();
    let reversed = pb::Bounds { min: Some(2), max: Some(1) };
    let constraints = pb::ModelConstraints {
        architecture: "arm".into(),
        firmware_mode: 9,
        cores: Some(nothing),
        memory_bytes: Some(reversed),
        disks: vec![pb::DiskConstraint { count: Some(reversed), medium: 9, ..Default::default() }],
        interfaces: vec![pb::InterfaceConstraint { count: Some(nothing), min_speed_mbps: 1 }],
        ..pb::ModelConstraints::default()
    };
    let wrong = pb::Model { constraints: Some(constraints), ..model("a b", "") };
    let violations = checked(wrong).unwrap_err();
    let fields: Vec<_> = violations.iter().map(|it| it.field.as_str()).collect();
    let expected = [
        "model.name",
        "model.constraints.architecture",
        "model.constraints.firmware_mode",
        "model.constraints.cores",
        "model.constraints.memory_bytes.max",
        "model.constraints.disks[0].count.max",
        "model.constraints.disks[0].medium",
        "model.constraints.interfaces[0].count",
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn a_model_is_created_once_for_a_request_and_changed_by_its_mask() {
    let (_, models) = site();
    let body = pb::CreateModelRequest { model: Some(model("m2", "r1")), request_id: "r".into() };
    let request = || IdempotentRequest::new("r", &body);
    let first = models.create(model("M2", "r1"), request()).await.unwrap();
    assert_eq!(first.name, "m2");
    assert_eq!(models.create(model("M2", "r1"), request()).await.unwrap(), first);
    let taken = models.create(model("m2", ""), None).await.unwrap_err().to_string();
    assert_eq!(taken, format!("name m2 is taken by model {}", first.id));
    let update = pb::Model { id: first.id.clone(), description: "x".into(), ..model("m3", "") };
    let changed = models.update(update, &["description".into()]).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.description.as_str()), ("m2", "x"));
    assert_eq!(changed.constraints, first.constraints);
    let id = first.id.parse().unwrap();
    let stale = models.delete(id, first.revision).await.unwrap_err();
    assert!(matches!(stale, Error::Records(records::Error::Changed { .. })));
    models.delete(id, changed.revision).await.unwrap();
    assert_eq!(models.records().get(&first.id).await.unwrap(), None);
}

#[tokio::test]
async fn machines_are_counted_once_for_each_model_that_they_are_of() {
    let (machines, models) = site();
    let mut occupied = BTreeSet::new();
    // More machines than are read at once.
    for number in 0..PAGE_RECORDS + 12 {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        let mac = format!("02:00:00:00:{high:02x}:{low:02x}");
        let rack = if number < 12 { "r1" } else { "r2" };
        let mut machine = pb::Hardware {
            interfaces: vec![pb::Interface { mac, ..pb::Interface::default() }],
            labels: [("rack".into(), rack.into())].into(),
            ..pb::Hardware::default()
        };
        machine.set_state(State::Provisionable);
        let made = machines.create(machine, None).await.unwrap();
        let id = made.id.parse().unwrap();
        match number {
            0..3 => drop(occupied.insert(made.id)),
            3..5 => drop(machines.set_state(id, State::Failed, "x".into(), 0).await.unwrap()),
            // An occupied machine that failed is not also counted as failed.
            5 => {
                machines.set_state(id, State::Failed, "x".into(), 0).await.unwrap();
                occupied.insert(made.id);
            }
            6 => drop(machines.set_state(id, State::Maintenance, "x".into(), 0).await.unwrap()),
            _ => {}
        }
    }
    let mut made = Vec::new();
    for (name, rack) in [("first", "r1"), ("all", ""), ("none", "r3")] {
        made.push(models.create(model(name, rack), None).await.unwrap());
    }
    let counts = models.count(&made, &occupied).await.unwrap();
    let count =
        |machines, free, occupied, failed| pb::ModelCounts { machines, free, occupied, failed };
    assert_eq!(counts[&made[0].id], count(12, 5, 4, 2));
    let all = PAGE_RECORDS as u64 + 12;
    assert_eq!(counts[&made[1].id], count(all, all - 7, 4, 2));
    assert_eq!(counts[&made[2].id], count(0, 0, 0, 0));
}
