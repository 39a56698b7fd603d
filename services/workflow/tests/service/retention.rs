//! Workflows that ended long ago.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::memory::MemoryStore;
use store::{ScopedStore, Store as _};
use tinwright::workflow::v1 as pb;
use tinwright::{HardwareId, WorkflowId};
use workflow::logs::{Logs, Of};
use workflow::workflows::Workflows;

use crate::power::Power;
use crate::site::{Site, soon};

/// How many chunks each log has: more than go in one commit.
const CHUNKS: u64 = 150;

/// Puts a workflow with a log into `store` that ended so many days ago.
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
    Workflows::new(handle.clone()).create(&workflow, None).await.unwrap();
    let (logs, of) = (Logs::new(handle), Of { workflow: workflow.id, action: "a".into() });
    for n in 0..CHUNKS {
        logs.append(&of, 1, n, b"x").await.unwrap();
    }
}

#[tokio::test]
async fn what_is_old_and_not_among_a_machines_newest_goes_with_its_logs() {
    let store = Arc::new(MemoryStore::default());
    let (machine, other) = (HardwareId::new(), HardwareId::new());
    for days in 20..43 {
        ended(&store, machine, days).await;
    }
    ended(&store, other, 400).await;
    let site = Site::over(store.clone(), Power::default()).await;
    let kept = async || {
        let page = store.list("workflow/record/", "", 1000).await.unwrap();
        page.pairs.len()
    };
    soon(async {
        while kept().await > 21 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(kept().await, 21);
    let chunks = store.list("workflow/chunk/", "", 10_000).await.unwrap();
    assert_eq!((chunks.pairs.len(), chunks.more), (21 * CHUNKS as usize, false));
    assert!(site.api.check(false).await.unwrap().is_clean());
}
