//! A process is killed before or after any of its writes, and started again; or one of its writes fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::emulator::{self, Emulator};
use crate::proxy::{Extras, Proxy};
use crate::site::{self, TIMING, bmc, boot, power, work};
use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use power::Login;
use power::reconcile::Worker;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;

/// The failure of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The process is killed before the commit of this number, counted from 0.
    Before(usize),
    /// It is killed after that commit, before its result arrives.
    After(usize),
    /// That commit fails, and the process continues.
    Once(usize),
}

/// A store that refuses all calls after the process was killed, or one commit.
struct KilledStore {
    store: Arc<MemoryStore>,
    cut: Cut,
    commits: AtomicUsize,
}

fn dead<T>() -> Result<T, Error> {
    Err(Error::Unavailable("killed".into()))
}

impl KilledStore {
    fn is_dead(&self) -> bool {
        let commits = self.commits.load(Ordering::SeqCst);
        matches!(self.cut, Cut::Before(at) | Cut::After(at) if commits > at)
    }
}

#[async_trait]
impl Store for KilledStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        if self.is_dead() { dead() } else { self.store.get(key).await }
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        if self.is_dead() { dead() } else { self.store.list(prefix, after, limit).await }
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        let count = self.commits.fetch_add(1, Ordering::SeqCst);
        match self.cut {
            Cut::Before(at) if count >= at => dead(),
            Cut::After(at) if count > at => dead(),
            Cut::Once(at) if count == at => dead(),
            Cut::After(at) if count == at => {
                self.store.commit(commit).await?;
                dead()
            }
            Cut::Before(_) | Cut::After(_) | Cut::Once(_) => self.store.commit(commit).await,
        }
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }
}

/// Returns the requests of a job whose process was killed at `cut` and started again; none if the job ended before.
async fn requests(emulator: &str, system: usize, cut: Cut) -> Option<Vec<String>> {
    let proxy = Proxy::start(emulator, Extras::default()).await;
    let store = Arc::new(MemoryStore::default());
    let (jobs, hardware) = (site::jobs(store.clone()), HardwareId::new());
    // By id: a search by name reads the other systems, and the emulator loses a change that is made during a reading.
    let record = bmc(hardware, &proxy.url, &emulator::id(system));
    jobs.bmcs.create(record, Login::Skip, None).await.unwrap();
    let operations = vec![boot(Device::Pxe), power(Power::On), power(Power::Cycle)];
    let created = jobs.create(site::job(hardware, operations), None).await.unwrap();

    let killed_store = KilledStore { store: store.clone(), cut, commits: AtomicUsize::new(0) };
    let killed = work(&site::jobs(Arc::new(killed_store)), hardware, TIMING).await.is_err();

    let jobs = site::jobs(store);
    work(&jobs, hardware, TIMING).await.unwrap();
    let job = jobs.get(created.id.parse().unwrap()).await.unwrap();
    assert_eq!(job.state(), State::Success, "{cut:?}: {}", job.state_reason);
    assert_eq!((job.completed_operations, job.downgrades.len()), (3, 1), "{cut:?}");
    assert_eq!(jobs.queue(&hardware.to_string()).await.unwrap(), None, "{cut:?}");
    killed.then(|| proxy.requests())
}

/// The commits at which the process is killed: more than the job makes.
const CUTS: usize = 20;
/// The jobs that run at the same time.
const PARALLEL_RUNS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_job_is_finished_and_at_most_one_request_is_repeated() {
    let cuts: Vec<_> = (0..CUTS).flat_map(|at| [Cut::Before(at), Cut::After(at)]).collect();
    let names: Vec<_> = (0..cuts.len()).map(|n| format!("node{n}")).collect();
    let emulator = Emulator::open(&names);
    let runs = cuts.iter().enumerate().map(|(n, cut)| requests(&emulator.url, n, *cut));
    // More at once are too many for the emulator: a request that it answers late is repeated.
    let results: Vec<_> = stream::iter(runs).buffered(PARALLEL_RUNS).collect().await;
    let plain = ["PATCH Pxe", "POST On", "POST ForceOff", "POST On"];
    let mut killed = 0;
    for (cut, requests) in cuts.iter().zip(results) {
        let Some(mut requests) = requests else { continue };
        killed += 1;
        let repeated = requests.len() - plain.len();
        assert!(repeated <= 1, "{cut:?}: {requests:?}");
        requests.dedup();
        assert_eq!(requests, plain, "{cut:?}");
    }
    assert!((20..2 * CUTS).contains(&killed), "{killed} of {} cuts killed", cuts.len());
}

#[tokio::test]
async fn a_request_is_stored_before_it_is_sent() {
    let emulator = Emulator::open(&["node0".into()]);
    let proxy = Proxy::start(&emulator.url, Extras::default()).await;
    let store = Arc::new(MemoryStore::default());
    let (jobs, hardware) = (site::jobs(store.clone()), HardwareId::new());
    jobs.bmcs.create(bmc(hardware, &proxy.url, ""), Login::Skip, None).await.unwrap();
    jobs.create(site::job(hardware, vec![power(Power::On)]), None).await.unwrap();
    // The first commit claims the machine, the second begins the job, the third stores the request.
    let killed_store = KilledStore { store, cut: Cut::Before(2), commits: AtomicUsize::new(0) };
    assert!(work(&site::jobs(Arc::new(killed_store)), hardware, TIMING).await.is_err());
    assert!(proxy.requests().is_empty());
}

#[tokio::test]
async fn after_an_error_of_the_store_a_job_continues_in_the_same_session() {
    let emulator = Emulator::open(&["node0".into()]);
    let proxy = Proxy::start(&emulator.url, Extras { sessions: true, ..Extras::default() }).await;
    let store = Arc::new(MemoryStore::default());
    let (jobs, hardware) = (site::jobs(store.clone()), HardwareId::new());
    jobs.bmcs.create(bmc(hardware, &proxy.url, ""), Login::Skip, None).await.unwrap();
    let created = jobs.create(site::job(hardware, vec![power(Power::On)]), None).await.unwrap();
    // The fourth commit stores the response to the request.
    let failing = KilledStore { store, cut: Cut::Once(3), commits: AtomicUsize::new(0) };
    let failing = site::jobs(Arc::new(failing));
    let mut worker = Worker::new(failing, hardware.to_string(), TIMING);
    tokio::time::timeout(Duration::from_secs(60), worker.run()).await.expect("the job ends");
    worker.close().await;
    let job = jobs.get(created.id.parse().unwrap()).await.unwrap();
    assert_eq!(job.state(), State::Success, "{}", job.state_reason);
    assert_eq!(proxy.sessions(), 1);
    assert!(!proxy.is_open());
}
