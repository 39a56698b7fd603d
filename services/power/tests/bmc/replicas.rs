//! Two processes on one store, and one BMC that must not notice.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::Method;
use power::reconcile::{Outcome, Worker};
use power::{Error, Jobs, Timing};
use store::memory::MemoryStore;
use store::records;
use tinwright::HardwareId;
use tinwright::power::v1::PowerJob;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;

use crate::emulator::Emulator;
use crate::proxy::{Extras, Fault, Proxy};
use crate::site::{self, PACE, bmc, boot, power};

/// So short that what a BMC is asked here outlasts it.
const CLAIM: Duration = Duration::from_secs(5);

/// One machine with a job, its BMC, and the processes `a` and `b`.
struct Rig {
    proxy: Proxy,
    hardware: HardwareId,
    job: PowerJob,
    a: Jobs,
    b: Jobs,
    _emulator: Emulator,
}

impl Rig {
    async fn new() -> Self {
        let emulator = Emulator::open(&["node1".into()]);
        let proxy = Proxy::start(&emulator.url, Extras::default()).await;
        let store = Arc::new(MemoryStore::default());
        let (a, b) = (site::jobs_of("a", store.clone()), site::jobs_of("b", store));
        let hardware = HardwareId::new();
        a.bmcs().create(bmc(hardware, &proxy.url, ""), None).await.unwrap();
        let operations = vec![boot(Device::Pxe), power(Power::On), power(Power::Cycle)];
        let job = a.create(hardware, operations, Default::default(), None).await.unwrap();
        Self { proxy, hardware, job, a, b, _emulator: emulator }
    }

    fn worker(&self, jobs: &Jobs, pace: Timing) -> Worker {
        Worker::new(jobs.clone(), self.hardware.to_string(), pace)
    }

    /// The job's end, and all that was asked for it, the second of two that are the same left out as often as given.
    async fn succeeded(&self, again: usize) {
        let job = self.a.get(self.job.id.parse().unwrap()).await.unwrap();
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        let mut asked = self.proxy.asked();
        let all = asked.len();
        asked.dedup();
        assert_eq!(asked, ["PATCH Pxe", "POST On", "POST ForceOff", "POST On"]);
        assert!(all - asked.len() <= again, "{:?}", self.proxy.asked());
    }
}

/// Carries jobs out until there are none, as the service does.
async fn work(mut worker: Worker) {
    let ended = async {
        loop {
            match worker.turn(SystemTime::now()).await {
                Ok(Outcome::Idle) => return,
                Ok(Outcome::Again(pause)) => tokio::time::sleep(pause).await,
                Err(Error::Records(records::Error::Changed { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ended).await.expect("an end");
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_at_once_ask_a_bmc_once_however_long_it_takes() {
    let rig = Rig::new().await;
    rig.proxy.fail(Method::POST, Fault::LongTask(7));
    let pace = Timing { claim: CLAIM, patience: Duration::from_secs(40), ..PACE };
    tokio::join!(work(rig.worker(&rig.a, pace)), work(rig.worker(&rig.b, pace)));
    rig.succeeded(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_that_died_had_begun_another_finishes_once_the_claim_has_lapsed() {
    let rig = Rig::new().await;
    let pace = Timing { claim: CLAIM, patience: Duration::from_secs(40), ..PACE };
    let mut dies = rig.worker(&rig.a, pace);
    while rig.proxy.asked().is_empty() {
        dies.turn(SystemTime::now()).await.unwrap();
    }
    drop(dies);
    let mut other = rig.worker(&rig.b, pace);
    assert_eq!(other.turn(SystemTime::now()).await.unwrap(), Outcome::Again(pace.poll));
    assert_eq!(rig.proxy.asked(), ["PATCH Pxe"]);
    work(other).await;
    rig.succeeded(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_in_order_lets_another_go_on_at_once() {
    let rig = Rig::new().await;
    let for_ever = Timing { claim: Duration::from_secs(100_000), ..PACE };
    let mut ends = rig.worker(&rig.a, for_ever);
    while rig.proxy.asked().is_empty() {
        ends.turn(SystemTime::now()).await.unwrap();
    }
    ends.close().await;
    work(rig.worker(&rig.b, for_ever)).await;
    rig.succeeded(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_added_while_the_bmc_answers_does_not_have_it_asked_again() {
    let rig = Rig::new().await;
    rig.proxy.fail(Method::POST, Fault::Task);
    let pace = Timing { patience: Duration::from_secs(40), ..PACE };
    let adds = async {
        while !rig.proxy.asked().contains(&"POST On".to_owned()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig.b.create(rig.hardware, vec![power(Power::On)], Default::default(), None).await.unwrap();
    };
    tokio::join!(work(rig.worker(&rig.a, pace)), adds);
    rig.succeeded(0).await;
}
