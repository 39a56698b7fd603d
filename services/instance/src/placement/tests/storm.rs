//! Many orders at once, while the server is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::join_all;
use store::{Changes, Commit, Page, Revision, Store, Versioned};
use tokio::sync::Semaphore;

use super::*;

/// A store that takes its time, so that a kill comes before, in and after each access.
#[derive(Debug)]
struct SlowStore(Arc<MemoryStore>);

impl SlowStore {
    async fn wait() {
        let [random] = instances::random_bytes().unwrap();
        tokio::time::sleep(Duration::from_micros(u64::from(random) * 4)).await;
    }
}

#[async_trait]
impl Store for SlowStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, store::Error> {
        Self::wait().await;
        self.0.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, store::Error> {
        Self::wait().await;
        self.0.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, store::Error> {
        Self::wait().await;
        let committed = self.0.commit(commit).await;
        Self::wait().await;
        committed
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, store::Error> {
        self.0.changed(prefix, after).await
    }
}

/// A server that can be killed: all of its tasks end where they are.
struct Server {
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
    api: Api,
}

impl Server {
    fn start(site: &Site, store: &Arc<MemoryStore>) -> Arc<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        let api = {
            let _entered = handle.enter();
            api(site, Arc::new(SlowStore(store.clone())))
        };
        Arc::new(Self { runtime: Mutex::new(Some(runtime)), handle, api })
    }

    fn kill(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Server {
    /// A runtime may not be dropped where others run.
    fn drop(&mut self) {
        self.kill();
    }
}

/// A site with a server that is replaced now and then.
struct Bench {
    site: Site,
    store: Arc<MemoryStore>,
    server: Mutex<Arc<Server>>,
    /// Calls without a response.
    interrupted: AtomicUsize,
}

impl Bench {
    fn new(rack: Vec<hw::Hardware>) -> Arc<Self> {
        let (site, store) = (Site::with_rack(rack), Arc::new(MemoryStore::default()));
        let server = Mutex::new(Server::start(&site, &store));
        Arc::new(Self { site, store, server, interrupted: AtomicUsize::new(0) })
    }

    fn server(&self) -> Arc<Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn kill(&self) {
        let next = Server::start(&self.site, &self.store);
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *server, next).kill();
    }

    /// Sends `order` until there is a response.
    async fn send(&self, order: pb::CreateInstanceRequest) -> Result<pb::Instance, Status> {
        loop {
            let (server, order) = (self.server(), order.clone());
            let running = server.clone();
            let call =
                server.handle.spawn(async move { Box::pin(create(&running.api, order)).await });
            match call.await {
                Ok(Ok(response)) => return Ok(response.instance.unwrap()),
                Ok(Err(status)) if status.code() == Code::ResourceExhausted => return Err(status),
                Ok(Err(status)) => {
                    let temporary = [Code::Unavailable, Code::Internal, Code::Cancelled];
                    assert!(temporary.contains(&status.code()), "{status}");
                }
                Err(_killed) => {}
            }
            self.interrupted.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Kills the server again and again until `work` ends.
    async fn with_kills<T>(&self, work: impl Future<Output = T>) -> T {
        let kills = async {
            loop {
                tokio::time::sleep(Duration::from_millis(150)).await;
                self.kill();
            }
        };
        tokio::select! {
            done = work => done,
            () = kills => unreachable!("kills go on"),
        }
    }

    fn instances(&self) -> Instances {
        Instances::new(self.store.clone(), Clock::system())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_500_orders_for_300_machines_300_get_one_each_and_200_are_refused_with_counts() {
    let model = |n: usize| MODELS[n % MODELS.len()].0;
    let bench = Bench::new((0..300).map(|n| machine([("model", model(n).to_owned())])).collect());
    let orders: Vec<_> =
        (0..500).map(|n| order(by_model(model(n)), format!("order-{n}"))).collect();
    // Each order is sent twice at the same time.
    let both = orders.iter().chain(&orders).map(|order| bench.send(order.clone()));
    let responses = bench.with_kills(join_all(both)).await;
    let interrupted = bench.interrupted.load(Ordering::Relaxed);
    assert!(interrupted > 20, "only {interrupted} calls were interrupted");
    let mut machines = BTreeMap::new();
    let mut refused = 0;
    for (first, second) in responses.iter().zip(&responses[500..]) {
        match (first, second) {
            (Ok(first), Ok(second)) => {
                assert_eq!((&first.id, &first.hardware_id), (&second.id, &second.hardware_id));
                assert!(machines.insert(&first.hardware_id, &first.id).is_none(), "taken twice");
            }
            (Err(first), Err(second)) => {
                let numbers = expected([("matching", 100), ("occupied", 100)]);
                assert_eq!((counts(first), counts(second)), (numbers.clone(), numbers));
                refused += 1;
            }
            (first, second) => panic!("{first:?} and {second:?} for one order"),
        }
    }
    assert_eq!((machines.len(), refused), (300, 200));
    // Repeated later, each order has the same result.
    for (order, first) in orders.iter().zip(&responses) {
        let again = bench.send(order.clone()).await;
        match (first, again) {
            (Ok(first), Ok(again)) => assert_eq!(first.id, again.id),
            (Err(_), Err(_)) => {}
            (first, again) => panic!("{first:?} and then {again:?}"),
        }
    }
    let stored = bench.instances().records().page("", "", 1000).await.unwrap().0;
    let stored: BTreeSet<_> = stored.iter().map(|it| (&it.hardware_id, &it.id)).collect();
    assert_eq!(stored, machines.into_iter().collect());
    assert!(bench.instances().records().check(false).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_120_orders_over_12_racks_each_rack_gets_ten() {
    let racks = (0..12 * 25).map(|n| machine([("rack", format!("r{}", n % 12))]));
    let bench = Bench::new(racks.collect());
    let placement = pb::Placement { spread_label: "rack".into(), ..Default::default() };
    let at_once = Semaphore::new(64);
    let send = |n: usize| {
        let order = order(placement.clone(), format!("order-{n}"));
        let (bench, at_once) = (&bench, &at_once);
        async move {
            let _permit = at_once.acquire().await.unwrap();
            bench.send(order).await.unwrap()
        }
    };
    let instances = bench.with_kills(join_all((0..120).map(send))).await;
    let state = bench.site.state();
    let rack_of: BTreeMap<_, _> =
        state.rack.iter().map(|it| (&it.id, &it.labels["rack"])).collect();
    let (mut by_rack, mut machines) = (BTreeMap::<_, usize>::new(), BTreeSet::new());
    for instance in &instances {
        assert!(machines.insert(&instance.hardware_id), "taken twice");
        *by_rack.entry(rack_of[&instance.hardware_id]).or_default() += 1;
    }
    assert_eq!(by_rack.values().copied().collect::<Vec<_>>(), vec![10; 12]);
}
