//! Deletion of workflows that ended long ago.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::clock::Clock;
use store::hosted;
use store::memory::MemoryStore;
use store::{ScopedStore, Store as _};
use tinwright::workflow::v1 as pb;
use tinwright::{HardwareId, WorkflowId};
use workflow::logs::{LogKey, Logs};
use workflow::workflows::Workflows;

use crate::power::FakePower;
use crate::site::{Site, soon};

/// The number of chunks of each log: more than one commit deletes.
const CHUNKS_PER_LOG: u64 = 150;

/// Stores a workflow with a log that ended so many days ago.
async fn ended(store: &Arc<MemoryStore>, machine: HardwareId, days: u64) {
    let handle = ScopedStore::new(store.clone(), "workflow");
    let at = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let (time, state) = (Some(at.into()), pb::WorkflowState::Failed.into());
    let workflow = pb::Workflow {
        id: WorkflowId::new().to_string(),
        hardware_id: machine.to_string(),
        actions: vec![pb::Action { id: "a".into(), ..Default::default() }],
        create_time: time,
        end_time: time,
        state,
        ..Default::default()
    };
    Workflows::new(handle.clone(), Clock::system()).create(&workflow, None).await.unwrap();
    let (logs, key) = (Logs::new(handle), LogKey { workflow: workflow.id, action: "a".into() });
    for n in 0..CHUNKS_PER_LOG {
        logs.append(&key, 1, n, b"x").await.unwrap();
    }
    logs.records.commit(Logs::to_write_tail(&key, "x")).await.unwrap();
}

#[tokio::test]
async fn old_workflows_that_are_not_among_a_machines_newest_are_deleted_with_their_logs() {
    let store = Arc::new(MemoryStore::default());
    let (machine, other) = (HardwareId::new(), HardwareId::new());
    for days in 20..43 {
        ended(&store, machine, days).await;
    }
    ended(&store, other, 400).await;
    let site = Site::over(store.clone(), FakePower::default()).await;
    let count = async || {
        let page = store.list("workflow/record/", "", 1000).await.unwrap();
        page.pairs.len()
    };
    soon(async {
        while count().await > 21 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(count().await, 21);
    let chunks = store.list("workflow/chunk/", "", 10_000).await.unwrap();
    assert_eq!((chunks.pairs.len(), chunks.more), (21 * CHUNKS_PER_LOG as usize, false));
    let tails = store.list("workflow/tail/", "", 1000).await.unwrap();
    assert_eq!(tails.pairs.len(), 21);
    assert!(hosted::check(&site.api, false).await.unwrap().is_clean());
}
