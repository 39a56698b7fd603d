use runtime::Clock;
use store::events::EventLog;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::event::v1::{EventFilter, EventKind};
use tinwright::hardware::v1::State;

use super::*;

fn enrolments() -> Enrolments {
    let store = Arc::new(MemoryStore::default());
    Enrolments::new(HardwareRecords::new(store, Clock::system()))
}

/// The report of the machine with this UUID and the MAC that ends with `last`.
fn report(uuid: u8, last: u8) -> Report {
    let (uuid, mac) = (format!("4c4c4544-0042-3010-8052-0000000000{uuid:02x}"), mac(last));
    let interface = pb::InventoryInterface { mac: mac.clone(), ..Default::default() };
    let (id, network) = (HardwareId::new().to_string(), "192.0.2.0/24".into());
    Report::new(pb::EnrolMachineRequest {
        enrolment: Some(pb::Enrolment { id, mac, network, time: None }),
        uuid: uuid.clone(),
        inventory: Some(pb::Inventory { uuid, interfaces: vec![interface], ..Default::default() }),
    })
    .unwrap()
}

fn mac(last: u8) -> String {
    format!("02:00:00:00:00:{last:02x}")
}

async fn alarms(enrolments: &Enrolments) -> Vec<String> {
    let log = EventLog::new(enrolments.log.store().clone(), "hardware");
    let filter = EventFilter { kind: EventKind::Alarm.into(), ..EventFilter::default() };
    let alarms = log.list(&filter, "", 10).await.unwrap().records;
    alarms.into_iter().map(|event| event.text).collect()
}

#[tokio::test]
async fn an_enrolled_machine_is_stored_and_accepted_by_its_state() {
    let (enrolments, report) = (enrolments(), report(1, 1));
    let made = enrolments.enrol(&report).await.unwrap();
    let stored = enrolments.machines.records.require_by("mac", &mac(1)).await.unwrap();
    assert_eq!(stored, made);
    assert_eq!((made.state(), made.architecture.as_str()), (State::Enrolled, "x86_64"));
    assert!(made.enrolment.as_ref().unwrap().time.is_some() && made.state_time.is_some());
    assert_eq!(enrolments.enrol(&report).await.unwrap(), made, "a repeated call");
    let id = made.id.parse().unwrap();
    let accepted = enrolments.machines.set_state(id, State::Provisionable, String::new(), 0).await;
    assert_eq!(accepted.unwrap().state(), State::Provisionable);
    assert!(alarms(&enrolments).await.is_empty());
}

#[tokio::test]
async fn of_machines_that_enrol_at_once_with_one_uuid_one_gets_a_record_and_the_others_are_an_alarm()
 {
    let enrolments = enrolments();
    let reports = [report(1, 1), report(1, 2), report(1, 3), report(2, 4)];
    let enrol = |report| {
        let enrolments = enrolments.clone();
        tokio::spawn(async move { enrolments.enrol(&report).await })
    };
    let running = reports.map(enrol);
    let mut made = Vec::new();
    for task in running {
        made.push(task.await.unwrap().is_ok());
    }
    assert_eq!(made.iter().filter(|made| **made).count(), 2, "{made:?}");
    assert!(made[3]);
    let alarms = alarms(&enrolments).await;
    let expected = "has the UUID 4c4c4544-0042-3010-8052-000000000001 of a machine";
    assert!(!alarms.is_empty() && alarms.iter().all(|it| it.contains(expected)), "{alarms:?}");
}

#[tokio::test]
async fn a_machine_that_another_one_overtakes_is_not_stored_as_it_was_judged_before() {
    let enrolments = enrolments();
    let judged = async |report: &Report| {
        let log = enrolments.log.get(SITE).await.unwrap();
        let survey = enrolments.survey(report).await.unwrap();
        (log, report.evaluate(survey).unwrap())
    };
    // The first enrolment of a site creates the log, the second one changes it.
    for uuid in [1, 2] {
        let (log, first) = judged(&report(uuid, 10 * uuid)).await;
        let (same, second) = judged(&report(uuid, 10 * uuid + 1)).await;
        enrolments.carry_out(log, first).await.unwrap();
        let overtaken = enrolments.carry_out(same, second).await.unwrap_err();
        let is_conflict = matches!(
            overtaken,
            Error::Records(records::Error::Exists { .. } | records::Error::Changed { .. })
        );
        assert!(is_conflict, "{overtaken}");
    }
}

#[tokio::test]
async fn a_refused_machine_changes_no_record_and_is_one_alarm() {
    let enrolments = enrolments();
    let made = enrolments.enrol(&report(1, 1)).await.unwrap();
    for _ in 0..3 {
        let refused = enrolments.enrol(&report(2, 1)).await.unwrap_err();
        assert!(refused.to_string().contains(&made.id), "{refused}");
    }
    assert_eq!(enrolments.machines.records.require(&made.id).await.unwrap(), made);
    assert_eq!(alarms(&enrolments).await.len(), 1);
}

#[tokio::test]
async fn a_flood_of_machines_is_slowed_down() {
    let enrolments = enrolments();
    let mut refused = 0;
    for n in 0..40 {
        let result = enrolments.enrol(&report(n, n)).await;
        refused += usize::from(matches!(result, Err(Error::TooManyEnrolments)));
    }
    assert!((20..=35).contains(&refused), "{refused}");
}
