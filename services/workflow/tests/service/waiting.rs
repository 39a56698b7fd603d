//! Ten thousand held requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use runtime::{Caller, Role};
use store::hosted::HostedService as _;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_server::WorkerService as _;
use tokio::task::JoinSet;

use crate::power::FakePower;
use crate::site::{Site, TWO, soon};

/// Counts calls of a store.
#[derive(Default)]
struct CountingStore {
    store: MemoryStore,
    gets: AtomicUsize,
    lists: AtomicUsize,
}

impl CountingStore {
    fn counts(&self) -> (usize, usize) {
        (self.gets.load(Ordering::Relaxed), self.lists.load(Ordering::Relaxed))
    }
}

#[async_trait]
impl Store for CountingStore {
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

const HELD_REQUESTS: usize = 10_000;

fn request(machine: HardwareId) -> tonic::Request<pb::NextActionRequest> {
    let holder = Some(pb::Holder { boot_id: "b".into(), process_id: "p".into() });
    let mut request = tonic::Request::new(pb::NextActionRequest { holder, ..Default::default() });
    request.extensions_mut().insert(Caller::from(Role::worker(machine)));
    request
}

#[tokio::test]
async fn a_report_wakes_one_of_ten_thousand_held_requests_and_lists_nothing() {
    let store = Arc::new(CountingStore::default());
    let mut site = Site::over(store.clone(), FakePower::default()).await;
    soon(site.api.ready()).await;
    let machine = HardwareId::new();
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let first = worker.begin().await;
    let repeated = soon(worker.again("b1", "p1").next()).await;
    assert_eq!(repeated.lease_id, first.lease_id, "a repeated request gets the same lease");
    let before = store.counts();
    let mut others = JoinSet::new();
    for _ in 0..HELD_REQUESTS {
        let api = site.api.clone();
        others.spawn(async move { api.next_action(request(HardwareId::new())).await.map(drop) });
    }
    // Each request reads its machine's boot epoch, its holder and its history once.
    let all_wait =
        |(gets, lists)| gets >= before.0 + 2 * HELD_REQUESTS && lists >= before.1 + HELD_REQUESTS;
    while !all_wait(store.counts()) {
        tokio::task::yield_now().await;
    }
    let before = store.counts();
    worker.succeed(&first).await;
    let second = worker.begin().await;
    assert_eq!(
        (second.workflow_id, second.action.unwrap().name),
        (made.id, "configure".to_owned())
    );
    let after = store.counts();
    assert!(after.0 - before.0 < 30, "{before:?} {after:?}");
    // On a busy host, work that is repeated every few seconds lists meanwhile.
    assert!(after.1 - before.1 < 10, "listings: {before:?} {after:?}");
    assert!(others.try_join_next().is_none(), "another request was woken");
}
