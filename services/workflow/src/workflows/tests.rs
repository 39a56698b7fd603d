//! Workflows in a store.

mod overdue;

use std::sync::Arc;

use prost::Message as _;
use store::limits::MAX_VALUE_BYTES;
use store::memory::MemoryStore;
use store::records::Listing;

use super::*;
use crate::lifecycle::{ActionEnd, AttemptReport, Holder};

const M: HardwareId = HardwareId::from_bytes([7; 16]);

fn id(letter: char) -> WorkflowId {
    WorkflowId::from_bytes([letter as u8; 16])
}

fn workflows() -> Workflows {
    Workflows::new(ScopedStore::new(Arc::new(MemoryStore::default()), "workflow"), Clock::system())
}

fn record(letter: char, machine: HardwareId) -> pb::Workflow {
    let action = pb::Action {
        timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        after_loss: pb::AfterLoss::Retry.into(),
        state: pb::ActionState::Pending.into(),
        ..Default::default()
    };
    pb::Workflow {
        id: id(letter).to_string(),
        hardware_id: machine.to_string(),
        state: pb::WorkflowState::Pending.into(),
        wants_machine: true,
        actions: vec![action],
        ..Default::default()
    }
}

fn request_action() -> Event {
    let holder = Holder { boot: "b".into(), process: "p".into(), epoch: 0 };
    Event::RequestAction { holder, running: None, new_lease: "l".into() }
}

#[tokio::test]
async fn of_two_workflows_that_take_a_machine_one_is_refused_and_the_error_names_the_holder() {
    let workflows = workflows();
    for letter in ['a', 'b'] {
        workflows.create(&record(letter, M), None).await.unwrap();
    }
    let taken = workflows.apply(id('a'), &request_action()).await.unwrap();
    assert_eq!(workflows.holder(M).await.unwrap(), Some(taken));
    let refused = workflows.apply(id('b'), &request_action()).await;
    assert!(matches!(refused, Err(Error::MachineHeld(by)) if by == id('a')));
    assert_eq!(workflows.get(id('b')).await.unwrap().state(), pb::WorkflowState::Pending);
}

#[tokio::test]
async fn an_event_without_an_effect_writes_nothing() {
    let workflows = workflows();
    let created = workflows.create(&record('a', M), None).await.unwrap();
    assert_eq!(workflows.apply(id('a'), &Event::Tick).await.unwrap(), created);
    assert_eq!(workflows.get(id('a')).await.unwrap(), created);
}

#[tokio::test]
async fn a_conflicting_change_is_applied_to_the_newer_record() {
    let workflows = workflows();
    workflows.create(&record('a', M), None).await.unwrap();
    workflows.apply(id('a'), &request_action()).await.unwrap();
    let label = |key: String| {
        let workflows = workflows.clone();
        let edit =
            move |new: &mut pb::Workflow| drop(new.labels.insert(key.clone(), String::new()));
        let event = Event::Renew("l".into());
        async move { workflows.apply_and_edit(id('a'), &event, edit).await.map(drop) }
    };
    let all = futures_util::future::join_all((0..10).map(|n| label(n.to_string()))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(workflows.get(id('a')).await.unwrap().labels.len(), 10);
}

#[tokio::test]
async fn a_machines_workflows_are_listed_in_pages_without_those_of_others() {
    let workflows = workflows();
    let other = HardwareId::from_bytes([8; 16]);
    for (letter, machine) in [('a', M), ('b', other), ('c', M), ('d', M)] {
        workflows.create(&record(letter, machine), None).await.unwrap();
    }
    let ids = |page: &Listing<pb::Workflow>| {
        page.records.iter().map(|it| it.id.clone()).collect::<Vec<_>>()
    };
    let [a, c, d] = ['a', 'c', 'd'].map(|letter| id(letter).to_string());
    let (records, machine) = (workflows.records, M.to_string());
    let first = records.list_indexed("machine", &machine, "", 2, |_| true).await.unwrap();
    assert_eq!((ids(&first), first.next.as_ref()), (vec![a, c.clone()], Some(&c)));
    let rest = records.list_indexed("machine", &machine, &c, 2, |_| true).await.unwrap();
    assert_eq!((ids(&rest), rest.next), (vec![d], None));
}

/// A record of the largest size that can be stored, as it could be created before room for results was reserved.
fn full(letter: char) -> pb::Workflow {
    let mut full = pb::Workflow { rendered: "x".repeat(100 * 1024), ..record(letter, M) };
    full.rendered.push_str(&"x".repeat(MAX_VALUE_BYTES - full.encoded_len()));
    assert_eq!(full.encoded_len(), MAX_VALUE_BYTES);
    full
}

#[tokio::test]
async fn a_full_record_can_still_be_cancelled() {
    let workflows = workflows();
    workflows.create(&full('a'), None).await.unwrap();
    let ended = workflows.apply(id('a'), &Event::Cancel).await.unwrap();
    assert_eq!(ended.state(), pb::WorkflowState::Cancelled);
    assert_eq!(workflows.get(id('a')).await.unwrap(), ended);
    assert!(ended.rendered.is_empty());
}

#[tokio::test]
async fn a_full_record_takes_the_result_of_its_action() {
    let workflows = workflows();
    workflows.create(&full('a'), None).await.unwrap();
    workflows.apply(id('a'), &request_action()).await.unwrap();
    workflows.apply(id('a'), &Event::Start { lease: "l".into(), terminal: false }).await.unwrap();
    let report = AttemptReport { end: ActionEnd::Success, reason: String::new() };
    let event = Event::Report { lease: "l".into(), report };
    let ended = workflows.apply_report(id('a'), &event, "l", &"x".repeat(4096)).await;
    assert_eq!(ended.unwrap().state(), pb::WorkflowState::Success);
}

#[tokio::test]
async fn a_store_without_the_index_of_live_workflows_gets_it() {
    let store: Arc<dyn store::Store> = Arc::new(MemoryStore::default());
    let scoped = ScopedStore::new(store.clone(), "workflow");
    let workflows = Workflows::new(scoped, Clock::system());
    workflows.create(&record('a', M), None).await.unwrap();
    workflows.create(&record('b', M), None).await.unwrap();
    workflows.apply(id('b'), &Event::Cancel).await.unwrap();
    let key = format!("workflow/live/{}", id('a'));
    let writes =
        vec![store::Write::Delete(key.clone()), store::Write::Put("schema".into(), "2".into())];
    store.commit(store::Commit { writes, ..store::Commit::default() }).await.unwrap();
    for _ in 0..2 {
        store::schema::migrate(&store, &[index_live_workflows()]).await.unwrap();
        let live = store.list("workflow/live/", "", 10).await.unwrap().pairs;
        assert_eq!((live.len(), &live[0].0), (1, &key));
    }
}
