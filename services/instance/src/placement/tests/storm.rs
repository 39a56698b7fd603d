//! Many orders at once, while the server is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::join_all;
use store::hosted::HostedService as _;
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
    /// Starts a server; with `reconciles`, also its reconciler.
    fn start(site: &Site, store: &Arc<MemoryStore>, reconciles: bool) -> Arc<Self> {
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
        if reconciles {
            handle.spawn(api.clone().run(CancellationToken::new()));
        }
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
    reconciles: bool,
    kills: AtomicUsize,
    /// Calls without a response.
    interrupted: AtomicUsize,
}

impl Bench {
    fn new(rack: Vec<hw::Hardware>) -> Arc<Self> {
        Self::with_server(rack, false)
    }

    fn with_server(rack: Vec<hw::Hardware>, reconciles: bool) -> Arc<Self> {
        let (site, store) = (Site::with_rack(rack), Arc::new(MemoryStore::default()));
        let server = Mutex::new(Server::start(&site, &store, reconciles));
        let (kills, interrupted) = Default::default();
        Arc::new(Self { site, store, server, reconciles, kills, interrupted })
    }

    fn server(&self) -> Arc<Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn kill(&self) {
        let next = Server::start(&self.site, &self.store, self.reconciles);
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

    /// Kills the server again and again until `work` ends. It lives a tenth longer each time, so that something is done between two kills on
    /// a slow host, too.
    async fn with_kills<T>(&self, work: impl Future<Output = T>) -> T {
        // Steps of the reconciler are shorter than the orders of hundreds of clients.
        let mut interval = Duration::from_millis(if self.reconciles { 15 } else { 150 });
        let kills = async {
            loop {
                tokio::time::sleep(interval).await;
                interval = interval.mul_f64(1.1);
                self.kills.fetch_add(1, Ordering::Relaxed);
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
    let stored = bench.instances().records.page("", "", 1000).await.unwrap().0;
    let stored: BTreeSet<_> = stored.iter().map(|it| (&it.hardware_id, &it.id)).collect();
    assert_eq!(stored, machines.into_iter().collect());
    assert!(bench.instances().records.check(false).await.unwrap().is_clean());
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

/// A machine of the location, which reserves no address.
fn bootable(n: u32) -> hw::Hardware {
    let interface = hw::Interface { mac: format!("52:54:00:00:01:{n:02x}"), ..Default::default() };
    let uuid = format!("4c4c4544-0051-3610-8052-b4c04f4d35{n:02x}");
    let inventory = Some(Box::new(hw::Inventory { uuid, ..Default::default() }));
    hw::Hardware { interfaces: vec![interface], inventory, ..machine([]) }
}

fn platform_order(n: u32) -> pb::CreateInstanceRequest {
    let placement = pb::Placement { location_id: LOCATION.0.into(), ..Default::default() };
    let mut order = order(placement, format!("order-{n}"));
    let instance = order.instance.as_mut().unwrap();
    instance.os = Some(pb::instance::Os::Platform(pb::PlatformBoot::default()));
    instance.external_id = format!("ial/{n}");
    order
}

impl Bench {
    async fn stored(&self) -> Vec<pb::Instance> {
        self.instances().records.page("", "", 1000).await.unwrap().0
    }

    /// Waits until `condition` holds for the stored instances.
    async fn until(&self, condition: impl Fn(&[pb::Instance]) -> bool) -> Vec<pb::Instance> {
        let follow = async {
            loop {
                let stored = self.stored().await;
                if condition(&stored) {
                    return stored;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), follow).await.expect("within a minute")
    }
}

/// Asserts that no two of the fifty instances have a value in common.
fn assert_distinct(values: impl Iterator<Item = String>) {
    assert_eq!(values.collect::<BTreeSet<_>>().len(), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_systems_of_platforms_get_a_machine_a_gate_and_an_address_each_and_leave_nothing() {
    let bench = Bench::with_server((0..50).map(bootable).collect(), true);
    let orders: Vec<_> = (0..50).map(platform_order).collect();
    let thrice = orders.iter().chain(&orders).chain(&orders);
    let sent = join_all(thrice.map(|order| bench.send(order.clone())));
    let has_booted = |it: &pb::Instance| it.install_time.is_some();
    let booted = |all: &[pb::Instance]| all.len() == 50 && all.iter().all(has_booted);
    let work = async { (sent.await, bench.until(booted).await) };
    let (responses, stored) = bench.with_kills(work).await;
    let (kills, interrupted) = (&bench.kills, bench.interrupted.load(Ordering::Relaxed));
    assert!(interrupted > 0, "no call was interrupted");
    let kills_before = kills.load(Ordering::Relaxed);
    for (n, first) in responses[..50].iter().enumerate() {
        let ids = [50 + n, 100 + n].map(|n| &responses[n].as_ref().unwrap().id);
        assert_eq!(ids, [&first.as_ref().unwrap().id; 2], "one order, one instance");
    }
    let gates: Vec<_> = stored.iter().filter_map(|it| it.boot_gate.clone()).collect();
    assert!(gates.iter().all(|gate| gate.open && gate.initial_ips.len() == 1));
    assert_distinct(stored.iter().map(|it| it.hardware_id.clone()));
    assert_distinct(gates.iter().map(|gate| gate.uuid.clone()));
    assert_distinct(gates.iter().map(|gate| gate.mac.clone()));
    assert_distinct(gates.iter().map(|gate| gate.initial_ips[0].clone()));
    {
        let state = bench.site.state();
        for instance in &stored {
            let machine = state.rack.iter().find(|it| it.id == instance.hardware_id).unwrap();
            let gate = instance.boot_gate.as_ref().unwrap();
            assert_eq!(gate.mac, machine.interfaces[0].mac, "of its own machine");
        }
        assert_eq!((state.jobs.len(), state.grants.len()), (50, 50));
    }
    let deletes = async {
        for instance in &stored {
            let id = instance.id.parse().unwrap();
            let deleted = bench.instances().delete(id, 0, false).await.unwrap();
            assert!(!deleted.boot_gate.unwrap().open);
        }
        bench
            .until(|all| {
                bench.site.end_released();
                all.is_empty()
            })
            .await
    };
    Box::pin(bench.with_kills(deletes)).await;
    let kills = (kills_before, kills.load(Ordering::Relaxed) - kills_before);
    assert!(kills.0 > 5 && kills.1 > 1, "the server was killed {kills:?} times");
    let released = |it: &tinwright::address::v1::Grant| {
        it.state() == tinwright::address::v1::GrantState::Released
    };
    assert!(bench.site.state().grants.iter().all(released));
    assert!(bench.instances().records.check(false).await.unwrap().is_clean());
    let kept = bench.store.list("instance/gate_", "", 10).await.unwrap().pairs;
    assert!(kept.is_empty(), "{kept:?}");
}
