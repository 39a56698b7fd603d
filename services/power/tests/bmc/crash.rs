//! A process that is killed between any two writes, and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::emulator::{self, Emulator};
use crate::proxy::{Extras, Proxy};
use crate::site::{self, bmc, boot, power, work};
use async_trait::async_trait;
use power::Timing;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Store, Versioned};
use tinwright::HardwareId;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;

/// So many jobs at once keep the emulator busy: whatever it is asked may take its time.
const PACE: Timing = Timing { patience: Duration::from_secs(40), ..site::PACE };

/// When the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Before this commit, counted from 0, is made.
    Before(usize),
    /// After it is made, and before that is known.
    After(usize),
}

/// A store that lets nothing through once its process is dead.
struct Mortal {
    store: Arc<MemoryStore>,
    cut: Cut,
    commits: AtomicUsize,
}

fn dead<T>() -> Result<T, Error> {
    Err(Error::Unavailable("killed".into()))
}

impl Mortal {
    fn is_dead(&self) -> bool {
        let (Cut::Before(at) | Cut::After(at)) = self.cut;
        self.commits.load(Ordering::SeqCst) > at
    }
}

#[async_trait]
impl Store for Mortal {
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
            Cut::After(at) if count == at => {
                self.store.commit(commit).await?;
                dead()
            }
            Cut::Before(_) | Cut::After(_) => self.store.commit(commit).await,
        }
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }
}

/// What a BMC was asked by a job whose process was killed at `cut` and started again; nothing if the job ended before.
async fn asked(emulator: &str, system: usize, cut: Cut) -> Option<Vec<String>> {
    let proxy = Proxy::start(emulator, Extras::default()).await;
    let store = Arc::new(MemoryStore::default());
    let (jobs, hardware) = (site::jobs(store.clone()), HardwareId::new());
    // By id: looking for a name reads the other systems, and the emulator loses a change that is made during a reading.
    let record = bmc(hardware, &proxy.url, &emulator::id(system));
    jobs.bmcs().create(record, None).await.unwrap();
    let operations = vec![boot(Device::Pxe), power(Power::On), power(Power::Cycle)];
    let made = jobs.create(hardware, operations, Default::default(), None).await.unwrap();

    let mortal = Mortal { store: store.clone(), cut, commits: AtomicUsize::new(0) };
    let killed = work(&site::jobs(Arc::new(mortal)), hardware, PACE).await.is_err();

    let jobs = site::jobs(store);
    work(&jobs, hardware, PACE).await.unwrap();
    let job = jobs.get(made.id.parse().unwrap()).await.unwrap();
    assert_eq!(job.state(), State::Success, "{cut:?}: {}", job.state_reason);
    assert_eq!((job.completed_operations, job.downgrades.len()), (3, 1), "{cut:?}");
    assert_eq!(jobs.head(&hardware.to_string()).await.unwrap(), None, "{cut:?}");
    killed.then(|| proxy.asked())
}

/// How many commits are cut at: more than the job needs.
const CUTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_killed_anywhere_is_finished_and_only_what_was_in_flight_is_asked_again() {
    let cuts: Vec<_> = (0..CUTS).flat_map(|at| [Cut::Before(at), Cut::After(at)]).collect();
    let names: Vec<_> = (0..cuts.len()).map(|n| format!("node{n}")).collect();
    let emulator = Emulator::open(&names);
    let runs = cuts.iter().enumerate().map(|(n, cut)| asked(&emulator.url, n, *cut));
    let asked = futures_util::future::join_all(runs).await;
    let plain = ["PATCH Pxe", "POST On", "POST ForceOff", "POST On"];
    let mut killed = 0;
    for (cut, asked) in cuts.iter().zip(asked) {
        let Some(mut asked) = asked else { continue };
        killed += 1;
        let again = asked.len() - plain.len();
        assert!(again <= 1, "{cut:?}: {asked:?}");
        asked.dedup();
        assert_eq!(asked, plain, "{cut:?}");
    }
    assert!((20..2 * CUTS).contains(&killed), "{killed} of {} cuts killed", cuts.len());
}

#[tokio::test]
async fn nothing_is_asked_before_it_is_stored_that_it_will_be() {
    let emulator = Emulator::open(&["node0".into()]);
    let proxy = Proxy::start(&emulator.url, Extras::default()).await;
    let store = Arc::new(MemoryStore::default());
    let (jobs, hardware) = (site::jobs(store.clone()), HardwareId::new());
    jobs.bmcs().create(bmc(hardware, &proxy.url, ""), None).await.unwrap();
    jobs.create(hardware, vec![power(Power::On)], Default::default(), None).await.unwrap();
    // The first commit takes the machine, the second begins the job, the third is the intent.
    let mortal = Mortal { store, cut: Cut::Before(2), commits: AtomicUsize::new(0) };
    assert!(work(&site::jobs(Arc::new(mortal)), hardware, PACE).await.is_err());
    assert!(proxy.asked().is_empty());
}
