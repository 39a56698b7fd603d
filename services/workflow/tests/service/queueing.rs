//! One workflow at a time on each machine.

use tinwright::HardwareId;
use tinwright::common::v1::View;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tinwright::workflow::v1 as pb;

use crate::site::{Site, TWO, soon};

#[tokio::test]
async fn the_second_workflow_waits_behind_the_first_and_follows_it() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let first = site.workflow(machine, TWO).await;
    let second = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    assert_eq!(it.workflow_id, first.id);
    let waits = site.waiting(&second.id, &format!("behind workflow {}", first.id)).await;
    assert_eq!(waits.blocked_by, first.id);
    worker.finish(&it, pb::ActionState::Timeout, "", "").await.unwrap();
    let it = worker.next().await;
    assert_eq!(it.workflow_id, first.id, "a retry is left");
    worker.start(&it, false).await.unwrap();
    worker.finish(&it, pb::ActionState::Timeout, "", "").await.unwrap();
    assert_eq!(worker.next().await.workflow_id, second.id);
}

#[tokio::test]
async fn a_held_request_is_answered_when_there_is_work_for_its_machine() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let worker = site.worker(machine);
    let waiting = tokio::spawn({
        let worker = worker.clone();
        async move { worker.next().await }
    });
    site.workflow(HardwareId::new(), TWO).await;
    let made = site.workflow(machine, TWO).await;
    assert_eq!(soon(waiting).await.unwrap().workflow_id, made.id);
}

#[tokio::test]
async fn a_machines_workflows_are_listed_without_those_of_others() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = [site.workflow(machine, TWO).await.id, site.workflow(machine, TWO).await.id];
    site.workflow(HardwareId::new(), TWO).await;
    let request =
        pb::ListWorkflowsRequest { hardware_id: machine.to_string(), ..Default::default() };
    let found = site.workflows().list_workflows(request).await.unwrap().into_inner().workflows;
    assert_eq!(found.into_iter().map(|found| found.id).collect::<Vec<_>>(), made);
}

#[tokio::test]
async fn a_history_larger_than_a_message_is_listed_in_pages() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let action = format!(
        "{{name: a, image: rootio, command: [version], environment: {{PAD: {}}}}}",
        "x".repeat(60_000)
    );
    let template = format!(
        "name: long\ntasks: [{{name: t, worker: \"{{{{ .device_1 }}}}\", actions: [{action}]}}]"
    );
    let mut made = Vec::new();
    for _ in 0..40 {
        made.push(site.workflow(machine, &template).await.id);
    }
    // This client receives at most 4 MiB in a message, as clients do by default.
    let mut client = site.workflows();
    for hardware_id in [machine.to_string(), String::new()] {
        let (mut found, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = pb::ListWorkflowsRequest {
                page_size: 100,
                page_token,
                hardware_id: hardware_id.clone(),
                view: View::Full.into(),
                ..Default::default()
            };
            let page = client.list_workflows(request).await.unwrap().into_inner();
            found.extend(page.workflows.into_iter().map(|found| found.id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(found, made);
    }
}

#[tokio::test]
async fn workflows_are_listed_by_their_state() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let ended = site.workflow(machine, TWO).await.id;
    let cancel = pb::CancelWorkflowRequest { id: ended.clone() };
    site.workflows().cancel_workflow(cancel).await.unwrap();
    site.ended(&ended).await;
    let open = site.workflow(machine, TWO).await.id;
    let mut client = site.workflows();
    for (state, ids) in [
        (pb::WorkflowState::Cancelled, vec![ended]),
        (pb::WorkflowState::Pending, vec![open]),
        (pb::WorkflowState::Success, Vec::new()),
    ] {
        for hardware_id in [machine.to_string(), String::new()] {
            let mut request = pb::ListWorkflowsRequest { hardware_id, ..Default::default() };
            request.set_state(state);
            let page = client.list_workflows(request).await.unwrap().into_inner();
            let found: Vec<_> = page.workflows.into_iter().map(|it| it.id).collect();
            assert_eq!(found, ids, "{state:?}");
        }
    }
}

#[tokio::test]
async fn an_ended_workflow_is_watched_from_the_store_unless_only_live_ones_are_requested() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let ended = site.workflow(machine, TWO).await.id;
    let cancel = pb::CancelWorkflowRequest { id: ended.clone() };
    site.workflows().cancel_workflow(cancel).await.unwrap();
    site.ended(&ended).await;
    let live = site.workflow(machine, TWO).await.id;
    // A watch of all begins with what the mirror has read.
    site.until(&live, |_| true).await;
    for (id, only_live, expected) in [
        ("", false, vec![live.clone(), ended.clone()]),
        ("", true, vec![live.clone()]),
        (ended.as_str(), false, vec![ended.clone()]),
        (live.as_str(), false, vec![live.clone()]),
    ] {
        let request =
            pb::WatchWorkflowsRequest { id: id.into(), view: 0, only_live, ..Default::default() };
        assert_eq!(site.snapshot(request).await, expected, "{id} {only_live}");
    }
}

impl Site {
    /// Returns the ids of the workflows that a watch sends before it is synced.
    async fn snapshot(&mut self, request: pb::WatchWorkflowsRequest) -> Vec<String> {
        let mut stream = self.workflows().watch_workflows(request).await.unwrap().into_inner();
        let mut ids = Vec::new();
        loop {
            match soon(stream.message()).await.unwrap().unwrap().into_event().unwrap() {
                WatchEvent::Put(found) => ids.push(found.id),
                WatchEvent::Deleted(id) => panic!("{id} was not deleted"),
                WatchEvent::Synced => {
                    ids.dedup(); // one that has just ended may be sent twice
                    return ids;
                }
            }
        }
    }
}
