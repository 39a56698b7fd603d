//! Workflows in a store.

use std::sync::Arc;

use store::memory::MemoryStore;

use super::*;
use crate::ids::LeaseId;
use crate::lifecycle::Holder;

fn workflows() -> Workflows {
    Workflows::new(ScopedStore::new(Arc::new(MemoryStore::default()), "workflow"))
}

fn record(id: &str, machine: &str) -> pb::Workflow {
    let action = pb::Action {
        hardware_id: machine.into(),
        timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        after_loss: pb::AfterLoss::Retry.into(),
        state: pb::ActionState::Pending.into(),
        ..Default::default()
    };
    pb::Workflow {
        id: id.into(),
        hardware_id: machine.into(),
        state: pb::WorkflowState::Pending.into(),
        wants_machine: true,
        actions: vec![action],
        ..Default::default()
    }
}

fn ask(machine: &str) -> Event {
    let holder = Holder { boot: "b".into(), process: "p".into() };
    Event::Ask { machine: machine.into(), holder, running: None, offer: LeaseId("l".into()) }
}

#[tokio::test]
async fn of_two_workflows_that_take_a_machine_one_is_refused_by_name() {
    let workflows = workflows();
    for id in ["a", "b"] {
        workflows.create(&record(id, "m"), None).await.unwrap();
    }
    let taken = workflows.apply("a", &ask("m"), |_| {}).await.unwrap();
    assert_eq!(workflows.holder("m").await.unwrap(), Some(taken));
    let held = workflows.apply("b", &ask("m"), |_| {}).await;
    assert!(matches!(held, Err(Error::Held(by)) if by == "a"));
    assert_eq!(workflows.get("b").await.unwrap().state(), pb::WorkflowState::Pending);
}

#[tokio::test]
async fn what_changes_nothing_is_not_written() {
    let workflows = workflows();
    let made = workflows.create(&record("a", "m"), None).await.unwrap();
    assert_eq!(workflows.apply("a", &Event::Tick, |_| {}).await.unwrap(), made);
    assert_eq!(workflows.get("a").await.unwrap(), made);
}

#[tokio::test]
async fn a_change_that_others_came_before_is_made_upon_theirs() {
    let workflows = workflows();
    workflows.create(&record("a", "m"), None).await.unwrap();
    workflows.apply("a", &ask("m"), |_| {}).await.unwrap();
    let note = |key: String| {
        let workflows = workflows.clone();
        let label =
            move |new: &mut pb::Workflow| drop(new.labels.insert(key.clone(), String::new()));
        async move { workflows.apply("a", &Event::Renew("l".into()), label).await.map(drop) }
    };
    let all = futures_util::future::join_all((0..10).map(|n| note(n.to_string()))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(workflows.get("a").await.unwrap().labels.len(), 10);
}

#[tokio::test]
async fn a_machines_workflows_are_listed_in_pages_without_those_of_others() {
    let workflows = workflows();
    for (id, machine) in [("a", "m"), ("b", "n"), ("c", "m"), ("d", "m")] {
        workflows.create(&record(id, machine), None).await.unwrap();
    }
    let ids = |page: &Listing<pb::Workflow>| {
        page.records.iter().map(|it| it.id.clone()).collect::<Vec<_>>()
    };
    let first = workflows.list_of("m", "", 2, &BTreeMap::new()).await.unwrap();
    assert_eq!(
        (ids(&first), first.next.as_deref()),
        (vec!["a".to_owned(), "c".to_owned()], Some("c"))
    );
    let rest = workflows.list_of("m", "c", 2, &BTreeMap::new()).await.unwrap();
    assert_eq!((ids(&rest), rest.next), (vec!["d".to_owned()], None));
}
