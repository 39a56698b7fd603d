//! Two processes on one store send each request to the BMC once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use power::reconcile::Worker;
use power::{Jobs, Login, Timing};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1::PowerJob;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;

use crate::emulator::Emulator;
use crate::proxy::{Extras, Fault, Proxy};
use crate::site::{self, TIMING, bmc, boot, power};

/// Shorter than the slowest request of these tests.
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
        a.bmcs.create(bmc(hardware, &proxy.url, ""), Login::Skip, None).await.unwrap();
        let operations = vec![boot(Device::Pxe), power(Power::On), power(Power::Cycle)];
        let job = a.create(site::job(hardware, operations), None).await.unwrap();
        Self { proxy, hardware, job, a, b, _emulator: emulator }
    }

    fn worker(&self, jobs: &Jobs, timing: Timing) -> Worker {
        Worker::new(jobs.clone(), self.hardware.to_string(), timing)
    }

    /// Asserts that the job succeeded, and that at most `repeated` of its requests were sent twice.
    async fn assert_success(&self, repeated: usize) {
        let job = self.a.get(self.job.id.parse().unwrap()).await.unwrap();
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        let mut requests = self.proxy.requests();
        let all = requests.len();
        requests.dedup();
        assert_eq!(requests, ["PATCH Pxe", "POST On", "POST ForceOff", "POST On"]);
        assert!(all - requests.len() <= repeated, "{:?}", self.proxy.requests());
    }
}

/// Carries out jobs until there are none.
async fn work(mut worker: Worker) {
    let result = tokio::time::timeout(Duration::from_secs(300), worker.run()).await;
    result.expect("all jobs end");
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_send_a_slow_request_once() {
    let rig = Rig::new().await;
    rig.proxy.fail(Method::POST, Fault::LongTask(7));
    let timing = Timing { claim: CLAIM, ..TIMING };
    tokio::join!(work(rig.worker(&rig.a, timing)), work(rig.worker(&rig.b, timing)));
    rig.assert_success(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_finishes_the_job_of_a_dead_one_after_its_claim_lapsed() {
    let rig = Rig::new().await;
    let timing = Timing { claim: CLAIM, ..TIMING };
    let mut dying = rig.worker(&rig.a, timing);
    while rig.proxy.requests().is_empty() {
        dying.step().await.unwrap();
    }
    drop(dying);
    let mut other = rig.worker(&rig.b, timing);
    assert_eq!(other.step().await.unwrap(), Some(timing.poll));
    assert_eq!(rig.proxy.requests(), ["PATCH Pxe"]);
    work(other).await;
    rig.assert_success(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stops_releases_its_claim() {
    let rig = Rig::new().await;
    let endless = Timing { claim: Duration::from_secs(100_000), ..TIMING };
    let mut stopping = rig.worker(&rig.a, endless);
    while rig.proxy.requests().is_empty() {
        stopping.step().await.unwrap();
    }
    stopping.close().await;
    work(rig.worker(&rig.b, endless)).await;
    rig.assert_success(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_added_during_a_request_does_not_repeat_the_request() {
    let rig = Rig::new().await;
    rig.proxy.fail(Method::POST, Fault::Task);
    let add = async {
        while !rig.proxy.requests().contains(&"POST On".to_owned()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig.b.create(site::job(rig.hardware, vec![power(Power::On)]), None).await.unwrap();
    };
    tokio::join!(work(rig.worker(&rig.a, TIMING)), add);
    rig.assert_success(0).await;
}
