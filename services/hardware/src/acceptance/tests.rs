//! The policy that accepts enrolled machines: which machines, and in whose commit.

use std::sync::Arc;

use nouns::{Delete as _, Edit as _};
use runtime::Clock;
use store::events::EventLog;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::event::v1::{EventFilter, EventKind};

use super::*;
use crate::enrolment::Report;
use crate::enrolments::{EnrolmentLog, Enrolments};
use crate::error::Error;
use crate::locations::Locations;
use crate::models::Models;
use crate::records::HardwareRecords;

struct Site {
    machines: HardwareRecords,
    models: Models,
    locations: Locations,
}

impl Site {
    fn new() -> Self {
        let machines = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
        let store = machines.records.store().clone();
        let models = Models::new(store.clone(), Clock::system());
        Self { machines, models, locations: Locations::new(store, Clock::system()) }
    }

    async fn location(&self, name: &str) -> String {
        let location = pb::Location { name: name.into(), ..pb::Location::default() };
        self.locations.create(location, None).await.unwrap().id
    }

    /// A model of machines with at least `memory` bytes that accepts them in `location_ids`.
    async fn model(&self, name: &str, memory: u64, location_ids: &[&str]) -> pb::Model {
        let memory_bytes = Some(pb::Bounds { min: Some(memory), max: None });
        let constraints = Some(pb::ModelConstraints { memory_bytes, ..Default::default() });
        let location_ids = location_ids.iter().map(|id| (*id).to_owned()).collect();
        let accept_enrolled = Some(pb::AcceptEnrolled { location_ids });
        let name = name.into();
        let model = pb::Model { name, constraints, accept_enrolled, ..pb::Model::default() };
        self.models.create(model, None).await.unwrap()
    }

    async fn enrol(&self, last: u8, memory_bytes: u64) -> pb::Hardware {
        let enrolments = Enrolments::new(self.machines.clone());
        enrolments.enrol(&report(last, memory_bytes)).await.unwrap()
    }

    /// A machine that an operator described.
    async fn described(&self, last: u8, location_id: &str, protect: bool) -> HardwareId {
        let interfaces = vec![pb::Interface { mac: mac(last), ..pb::Interface::default() }];
        let location_id = location_id.into();
        let machine = pb::Hardware { interfaces, location_id, protect, ..pb::Hardware::default() };
        let made = self.machines.create(machine, None).await.unwrap();
        made.id.parse().unwrap()
    }

    /// Returns the state of `id` and its reason after it reported this memory.
    async fn reported(&self, id: HardwareId, memory_bytes: u64) -> (State, String) {
        let inventory = pb::Inventory { memory_bytes, ..pb::Inventory::default() };
        self.machines.record_inventory(id, inventory).await.unwrap();
        let machine = self.machines.records.require(&id.to_string()).await.unwrap();
        (machine.state(), machine.state_reason)
    }
}

fn mac(last: u8) -> String {
    format!("02:00:00:00:00:{last:02x}")
}

fn report(last: u8, memory_bytes: u64) -> Report {
    let (uuid, mac) = (format!("4c4c4544-0042-3010-8052-0000000000{last:02x}"), mac(last));
    let interfaces = vec![pb::InventoryInterface { mac: mac.clone(), ..Default::default() }];
    let (id, network) = (HardwareId::new().to_string(), "192.0.2.0/24".into());
    Report::new(pb::EnrolMachineRequest {
        enrolment: Some(pb::Enrolment { id, mac, network, time: None }),
        uuid: uuid.clone(),
        inventory: Some(pb::Inventory { uuid, interfaces, memory_bytes, ..Default::default() }),
    })
    .unwrap()
}

#[tokio::test]
async fn a_machine_of_a_model_that_accepts_is_stored_as_provisionable_and_the_event_says_why() {
    let site = Site::new();
    site.model("large", 64, &[]).await;
    let (large, small) = (site.enrol(1, 64).await, site.enrol(2, 63).await);
    assert_eq!((large.state(), small.state()), (State::Provisionable, State::Enrolled));
    assert_eq!((small.state_reason.as_str(), small.enrolment.is_some()), ("", true));
    let log = EventLog::new(site.machines.records.store().clone(), "hardware");
    let kind = EventKind::Transition.into();
    let filter = EventFilter { kind, object_id: large.id.clone(), ..EventFilter::default() };
    let events = log.list(&filter, "", 10).await.unwrap().records;
    let texts: Vec<_> = events.iter().map(|it| (it.new_state.as_str(), it.text.as_str())).collect();
    let text = "created: accepted by the policy of model large for enrolled machines";
    assert_eq!(texts, [("provisionable", text)]);
}

#[tokio::test]
async fn a_policy_of_a_location_accepts_machines_there_by_their_first_report_only() {
    let site = Site::new();
    let (kiruna, lulea) = (site.location("kir1").await, site.location("lla1").await);
    site.model("all", 1, &[&kiruna]).await;
    assert_eq!(site.enrol(1, 64).await.state(), State::Enrolled, "a machine without a location");
    let (here, there) =
        (site.described(2, &kiruna, false).await, site.described(3, &lulea, false).await);
    let (state, reason) = site.reported(here, 64).await;
    assert_eq!(state, State::Provisionable);
    let expected = "accepted by the policy of model all for enrolled machines in location kir1";
    assert_eq!(reason, expected);
    assert_eq!(site.reported(there, 64).await.0, State::Enrolled);
    // An operator takes it back, and its next report does not undo that.
    site.machines.set_state(here, State::Enrolled, "look at it".into(), 0).await.unwrap();
    assert_eq!(site.reported(here, 128).await, (State::Enrolled, "look at it".into()));
}

#[tokio::test]
async fn a_machine_that_an_operator_made_enrolled_again_waits_for_an_operator() {
    let site = Site::new();
    site.model("all", 0, &[]).await;
    let id = site.described(1, "", false).await;
    for state in [State::Maintenance, State::Enrolled] {
        site.machines.set_state(id, state, "look at it".into(), 0).await.unwrap();
    }
    assert_eq!(site.reported(id, 1).await, (State::Enrolled, "look at it".to_owned()));
}

#[tokio::test]
async fn beyond_256_in_an_hour_machines_that_enrol_wait_for_an_operator() {
    let site = Site::new();
    site.model("all", 0, &[]).await;
    let log = Enrolments::new(site.machines.clone()).log.clone();
    let hour = prost_types::Timestamp::from(std::time::SystemTime::now()).seconds;
    let before = EnrolmentLog { id: "site".into(), hour, accepted: 255, ..EnrolmentLog::default() };
    log.commit(log.to_create(&before)).await.unwrap();
    assert_eq!(site.enrol(1, 1).await.state(), State::Provisionable);
    assert_eq!(site.enrol(2, 1).await.state(), State::Enrolled);
    let full = log.require("site").await.unwrap();
    assert_eq!((full.count, full.accepted), (2, 256));
    let hour = hour - 3600;
    log.replace(&full, EnrolmentLog { hour, ..full.clone() }).await.unwrap();
    assert_eq!(site.enrol(3, 1).await.state(), State::Provisionable, "an hour later");
}

#[tokio::test]
async fn a_protected_machine_and_one_that_contradicts_its_bmc_wait_for_an_operator() {
    let site = Site::new();
    site.model("all", 1, &[]).await;
    let protected = site.described(1, "", true).await;
    assert_eq!(site.reported(protected, 64).await.0, State::Enrolled);
    let contradicting = site.described(2, "", false).await;
    let listed = pb::BmcInventory { serial: "other".into(), ..pb::BmcInventory::default() };
    site.machines.record_bmc_inventory(contradicting, listed).await.unwrap();
    let serial = "own".into();
    let own = pb::Inventory { memory_bytes: 64, serial, ..pb::Inventory::default() };
    site.machines.record_inventory(contradicting, own).await.unwrap();
    let machine = site.machines.records.require(&contradicting.to_string()).await.unwrap();
    assert_ne!(machine.inventory_warning, "");
    assert_eq!(machine.state(), State::Enrolled);
}

#[tokio::test]
async fn a_policy_that_is_withdrawn_before_the_commit_accepts_nothing() {
    let site = Site::new();
    let model = site.model("all", 1, &[]).await;
    let memory_bytes = 64;
    let inventory = Some(Box::new(pb::Inventory { memory_bytes, ..pb::Inventory::default() }));
    let interfaces = vec![pb::Interface { mac: mac(1), ..pb::Interface::default() }];
    let state = State::Enrolled.into();
    let id = HardwareId::new().to_string();
    let machine = pb::Hardware { id, interfaces, state, inventory, ..pb::Hardware::default() };
    let (accepted, policy) = site.machines.accept(machine).await.unwrap();
    assert_eq!(accepted.state(), State::Provisionable);
    let withdrawn = pb::Model { accept_enrolled: None, ..model };
    site.models.update(withdrawn, &["accept_enrolled".into()]).await.unwrap();
    let stored = site.machines.records.create(&accepted, policy, None).await;
    assert!(matches!(stored, Err(records::Error::Changed { .. })), "{stored:?}");
}

#[tokio::test]
async fn a_policy_names_locations_that_exist_when_they_are_set() {
    let site = Site::new();
    let model = |location_ids: Vec<String>| pb::Model {
        name: "m".into(),
        accept_enrolled: Some(pb::AcceptEnrolled { location_ids }),
        ..pb::Model::default()
    };
    let missing = site.models.create(model(vec![HardwareId::new().to_string()]), None).await;
    assert!(matches!(missing, Err(Error::Records(records::Error::Missing { .. }))), "{missing:?}");
    let wrong = site.models.create(model(vec!["kir1".into()]), None).await.unwrap_err();
    assert!(wrong.to_string().contains("model.accept_enrolled.location_ids[0]"), "{wrong}");
    let kiruna = site.location("kir1").await;
    let mut made = site.models.create(model(vec![kiruna.clone()]), None).await.unwrap();
    site.locations.delete(kiruna.parse().unwrap(), 0).await.unwrap();
    made.description = "its location is gone".into();
    site.models.update(made, &["description".into()]).await.unwrap();
}
