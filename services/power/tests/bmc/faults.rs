//! BMCs that are busy, slow or faulty: an emulator behind a proxy that injects the faults.

use std::sync::Arc;
use std::time::Duration;

use crate::emulator::Emulator;
use crate::proxy::{Extras, Fault, Proxy};
use crate::site::{self, TIMING, bmc, boot, power, work};
use axum::http::Method;
use power::{Jobs, Login, Timing};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::{Operation, PowerJob};

/// One machine, its BMC, and the proxy in front of it.
struct Rig {
    proxy: Proxy,
    jobs: Jobs,
    hardware: HardwareId,
    _emulator: Emulator,
}

impl Rig {
    async fn new(extras: Extras) -> Self {
        let emulator = Emulator::open(&["node1".into()]);
        let proxy = Proxy::start(&emulator.url, extras).await;
        let jobs = site::jobs(Arc::new(MemoryStore::default()));
        let hardware = HardwareId::new();
        jobs.bmcs.create(bmc(hardware, &proxy.url, ""), Login::Skip, None).await.unwrap();
        Self { proxy, jobs, hardware, _emulator: emulator }
    }

    /// Creates a job of `operations`, carries it out, and returns it.
    async fn job(&self, operations: Vec<Operation>, timing: Timing) -> PowerJob {
        let created = self.jobs.create(site::job(self.hardware, operations), None).await.unwrap();
        work(&self.jobs, self.hardware, timing).await.unwrap();
        self.jobs.get(created.id.parse().unwrap()).await.unwrap()
    }

    /// Creates a job of `operations`, carries it out, and asserts its success.
    async fn success(&self, operations: Vec<Operation>) -> PowerJob {
        self.success_in(operations, TIMING).await
    }

    /// The same with other limits.
    async fn success_in(&self, operations: Vec<Operation>, timing: Timing) -> PowerJob {
        let job = self.job(operations, timing).await;
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        job
    }
}

#[tokio::test]
async fn a_request_to_a_busy_bmc_is_repeated() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::GET, Fault::Busy);
    rig.proxy.fail(Method::POST, Fault::Busy);
    rig.success(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.requests(), ["POST On", "POST On"]);
}

#[tokio::test]
async fn a_lost_response_repeats_the_request_at_most_once() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::PATCH, Fault::Cut);
    let job = rig.success(vec![boot(Device::Cdrom)]).await;
    // The emulator reads back "Continuous", which counts only for an accepted request. So the request is sent once more.
    assert_eq!(rig.proxy.requests(), ["PATCH Cd", "PATCH Cd"]);
    assert_eq!(job.downgrades, ["boot once reads back as continuous"]);
}

#[tokio::test]
async fn a_task_is_followed_to_its_end() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::Task);
    rig.success(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.requests(), ["POST On"]);
}

#[tokio::test]
async fn after_a_failed_task_the_next_request_is_sent() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::FailedTask);
    rig.success(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.requests(), ["POST On", "POST ForceOn"]);
}

#[tokio::test]
async fn after_an_accepted_request_without_effect_the_next_one_is_sent() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::Ignored);
    let timing = Timing { effect_timeout: Duration::from_secs(8), ..TIMING };
    rig.success_in(vec![power(Power::On)], timing).await;
    // More follow if the emulator is slower than the limit.
    assert_eq!(rig.proxy.requests()[..2], ["POST On", "POST ForceOn"]);
}

#[tokio::test]
async fn the_etag_is_sent_and_read_again_after_a_conflict() {
    let rig = Rig::new(Extras { etags: true, ..Extras::default() }).await;
    rig.proxy.fail(Method::PATCH, Fault::Conflict);
    rig.success(vec![boot(Device::Pxe)]).await;
    assert_eq!(rig.proxy.requests(), ["PATCH Pxe", "PATCH Pxe"]);
}

#[tokio::test]
async fn one_session_serves_a_job_is_renewed_when_it_expires_and_is_closed() {
    let rig = Rig::new(Extras { sessions: true, ..Extras::default() }).await;
    rig.proxy.fail(Method::POST, Fault::Expired);
    rig.success(vec![power(Power::On), boot(Device::Pxe)]).await;
    assert_eq!(rig.proxy.sessions(), 2);
    assert!(!rig.proxy.is_open());
}

#[tokio::test]
async fn a_failed_job_quotes_the_refusal_of_the_bmc() {
    let rig = Rig::new(Extras::default()).await;
    for _ in 0..2 {
        rig.proxy.fail(Method::POST, Fault::Refused("The chassis is locked."));
    }
    let job = rig.job(vec![power(Power::On)], TIMING).await;
    assert_eq!((job.state(), job.completed_operations), (State::Failed, 0));
    let reason =
        "the BMC refused On, ForceOn; On: the BMC answered 400 Bad Request: The chassis is locked.";
    assert_eq!(job.state_reason, reason);
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::Redirect);
    let job = rig.job(vec![power(Power::On)], TIMING).await;
    assert_eq!(job.state(), State::Failed);
    assert!(job.state_reason.ends_with("is not on the BMC's origin"), "{}", job.state_reason);
}

#[tokio::test]
async fn an_unreachable_bmc_fails_the_job_after_ten_attempts() {
    let rig = Rig::new(Extras::default()).await;
    let Rig { jobs, hardware, proxy, _emulator } = rig;
    drop((proxy, _emulator));
    jobs.create(site::job(hardware, vec![power(Power::On)]), None).await.unwrap();
    work(&jobs, hardware, TIMING).await.unwrap();
    let job = jobs.list("", 1, &Default::default()).await.unwrap().records.remove(0);
    assert_eq!((job.state(), job.attempt), (State::Failed, 10));
    assert!(job.state_reason.contains("the BMC cannot be reached"), "{}", job.state_reason);
}

#[tokio::test]
async fn a_cycle_falls_back_to_off_and_on_and_a_soft_off_is_not_forced() {
    let rig = Rig::new(Extras::default()).await;
    rig.success(vec![power(Power::On), power(Power::Cycle), power(Power::SoftOff)]).await;
    let requests = ["POST On", "POST ForceOff", "POST On", "POST GracefulShutdown"];
    assert_eq!(rig.proxy.requests(), requests);
}

#[tokio::test]
async fn a_system_that_ignores_a_shutdown_is_forced_off() {
    let rig = Rig::new(Extras::default()).await;
    rig.success(vec![power(Power::On)]).await;
    rig.proxy.fail(Method::POST, Fault::Ignored);
    let timing = Timing { shutdown_timeout: Duration::from_secs(4), ..TIMING };
    let job = rig.success_in(vec![power(Power::SoftOff)], timing).await;
    let cut = "no graceful shutdown in time: the power was cut";
    assert_eq!(job.downgrades, [cut]);
}

#[tokio::test]
async fn a_reset_and_a_cleared_override_succeed() {
    let rig = Rig::new(Extras::default()).await;
    rig.success(vec![power(Power::On), power(Power::Reset), boot(Device::None)]).await;
    let requests = ["POST On", "POST ForceRestart", "PATCH ", "PATCH None"];
    assert_eq!(rig.proxy.requests(), requests);
}

#[tokio::test]
async fn an_operation_fails_at_its_deadline_unless_its_effect_is_there() {
    let rig = Rig::new(Extras::default()).await;
    let late = Timing { operation_timeout: Duration::ZERO, ..TIMING };
    rig.jobs
        .create(site::job(rig.hardware, vec![power(Power::Off), power(Power::On)]), None)
        .await
        .unwrap();
    work(&rig.jobs, rig.hardware, late).await.unwrap();
    let job = rig.jobs.list("", 1, &Default::default()).await.unwrap().records.remove(0);
    assert_eq!((job.state(), job.completed_operations), (State::Failed, 1));
    assert!(job.state_reason.starts_with("operation 2: not done in 0 seconds"));
    assert!(rig.proxy.requests().is_empty());
}
