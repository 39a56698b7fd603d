//! A site with a long history.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use runtime::Clock;
use store::hosted::HostedService as _;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, ScopedStore, Store, Versioned};
use tinwright::workflow::v1 as pb;
use tinwright::{HardwareId, WorkflowId};
use workflow::workflows::Workflows;

use crate::power::FakePower;
use crate::site::{Site, TWO, soon};

const MACHINES: usize = 100;
const WORKFLOWS_PER_MACHINE: usize = 20;
const WORKFLOW_BYTES: usize = 5 * 1024;

/// Counts the bytes that are read.
#[derive(Default)]
struct MeteredStore {
    store: MemoryStore,
    bytes: AtomicUsize,
    /// True once the index of machines was read to its end, as it is to find expired workflows.
    machines_read: AtomicUsize,
}

#[async_trait]
impl Store for MeteredStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        let found = self.store.get(key).await?;
        let bytes = found.as_ref().map_or(0, |found| found.value.len());
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(found)
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let page = self.store.list(prefix, after, limit).await?;
        let bytes = page.pairs.iter().map(|(key, found)| key.len() + found.value.len());
        self.bytes.fetch_add(bytes.sum(), Ordering::Relaxed);
        if prefix == "workflow/machine/" && !page.more {
            self.machines_read.fetch_add(1, Ordering::Relaxed);
        }
        Ok(page)
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }
}

/// Stores the history of one machine.
async fn store_history(store: &Arc<MeteredStore>, machine: HardwareId) {
    let workflows = Workflows::new(ScopedStore::new(store.clone(), "workflow"), Clock::system());
    let time = Some(SystemTime::now().into());
    for _ in 0..WORKFLOWS_PER_MACHINE {
        let workflow = pb::Workflow {
            id: WorkflowId::new().to_string(),
            hardware_id: machine.to_string(),
            state: pb::WorkflowState::Success.into(),
            create_time: time,
            end_time: time,
            rendered: "x".repeat(WORKFLOW_BYTES),
            ..Default::default()
        };
        workflows.create(&workflow, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_with_a_long_history_neither_reads_nor_holds_it() {
    let store = Arc::new(MeteredStore::default());
    let machines: Vec<_> = (0..MACHINES).map(|_| HardwareId::new()).collect();
    for machine in &machines {
        store_history(&store, *machine).await;
    }
    let before = store.bytes.load(Ordering::Relaxed);
    let mut site = Site::over(store.clone(), FakePower::default()).await;
    soon(site.api.ready()).await;
    let expiry = async {
        while store.machines_read.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(expiry).await;
    let made = site.workflow(machines[0], TWO).await;
    site.worker(machines[0]).begin().await;
    let read = store.bytes.load(Ordering::Relaxed) - before;
    let history = MACHINES * WORKFLOWS_PER_MACHINE * WORKFLOW_BYTES;
    assert!(read < history / 10, "{read} of {history} bytes");
    assert!(site.get(&made.id).await.wants_machine);
}
