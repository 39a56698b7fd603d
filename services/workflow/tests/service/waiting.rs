//! Ten thousand workers with nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use runtime::{Caller, Role};
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_server::WorkerService as _;
use tokio::task::JoinSet;

use crate::power::Power;
use crate::site::{Site, TWO, soon};

/// Counts what is asked of a store.
#[derive(Default)]
struct Counting {
    store: MemoryStore,
    gets: AtomicUsize,
    lists: AtomicUsize,
}

impl Counting {
    fn counts(&self) -> (usize, usize) {
        (self.gets.load(Ordering::Relaxed), self.lists.load(Ordering::Relaxed))
    }
}

#[async_trait]
impl Store for Counting {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }
}

const WAITING: usize = 10_000;

fn question(machine: HardwareId) -> tonic::Request<pb::NextActionRequest> {
    let holder = Some(pb::Holder { boot_id: "b".into(), process_id: "p".into() });
    let mut request =
        tonic::Request::new(pb::NextActionRequest { holder, running_lease_id: String::new() });
    request.extensions_mut().insert(Caller(Some(Role::Machine(machine))));
    request
}

#[tokio::test]
async fn a_report_among_ten_thousand_waiting_wakes_one_and_lists_nothing() {
    let store = Arc::new(Counting::default());
    let mut site = Site::over(store.clone(), Power::default()).await;
    soon(site.api.ready()).await;
    let machine = HardwareId::new();
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let first = worker.begin().await;
    let before = store.counts().0;
    let mut others = JoinSet::new();
    for _ in 0..WAITING {
        let api = site.api.clone();
        others.spawn(async move { api.next_action(question(HardwareId::new())).await.map(drop) });
    }
    let waiting = tokio::spawn({
        let worker = worker.again("b1", "p1");
        async move { worker.next().await }
    });
    // Each looks once for its machine's holder.
    while store.counts().0 < before + WAITING {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        soon(waiting).await.unwrap().lease_id,
        first.lease_id,
        "asking again is asking once"
    );
    let before = store.counts();
    worker.succeed(&first).await;
    let second = worker.begin().await;
    assert_eq!(
        (second.workflow_id, second.action.unwrap().name),
        (made.id, "configure".to_owned())
    );
    let after = store.counts();
    assert!(after.0 - before.0 < 30, "{before:?} {after:?}");
    assert_eq!(after.1, before.1, "listings");
    assert!(others.try_join_next().is_none(), "somebody else was woken");
}
