//! BMCs that are busy, forgetful, slow or wrong: a real emulator behind a proxy that makes the faults.

use std::sync::Arc;
use std::time::Duration;

use crate::emulator::Emulator;
use crate::proxy::{Extras, Fault, Proxy};
use crate::site::{self, PACE, bmc, boot, power, work};
use axum::http::Method;
use power::{Jobs, Timing};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::{Operation, PowerJob};

/// One machine, its BMC, and the proxy between.
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
        jobs.bmcs().create(bmc(hardware, &proxy.url, ""), None).await.unwrap();
        Self { proxy, jobs, hardware, _emulator: emulator }
    }

    /// The job that does `operations`, at its end.
    async fn job(&self, operations: Vec<Operation>) -> PowerJob {
        let made =
            self.jobs.create(self.hardware, operations, Default::default(), None).await.unwrap();
        work(&self.jobs, self.hardware, PACE).await.unwrap();
        self.jobs.get(made.id.parse().unwrap()).await.unwrap()
    }

    /// As [`job`](Self::job), which must succeed.
    async fn done(&self, operations: Vec<Operation>) -> PowerJob {
        let job = self.job(operations).await;
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        job
    }
}

#[tokio::test]
async fn a_busy_bmc_is_asked_again() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::GET, Fault::Busy);
    rig.proxy.fail(Method::POST, Fault::Busy);
    rig.done(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.asked(), ["POST On", "POST On"]);
}

#[tokio::test]
async fn an_answer_that_is_lost_does_not_repeat_what_was_done() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::PATCH, Fault::Cut);
    let job = rig.done(vec![boot(Device::Cdrom)]).await;
    // The emulator reads back "Continuous", which counts only after a yes: so it is asked once more, and not thrice.
    assert_eq!(rig.proxy.asked(), ["PATCH Cd", "PATCH Cd"]);
    assert_eq!(job.downgrades, ["operation 0: boot once reads back as continuous"]);
}

#[tokio::test]
async fn a_task_is_followed_to_its_end() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::Task);
    rig.done(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.asked(), ["POST On"]);
}

#[tokio::test]
async fn a_task_that_fails_is_a_refusal_and_the_next_way_is_tried() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::FailedTask);
    rig.done(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.asked(), ["POST On", "POST ForceOn"]);
}

#[tokio::test]
async fn a_yes_without_an_act_is_not_believed() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::Nothing);
    rig.done(vec![power(Power::On)]).await;
    assert_eq!(rig.proxy.asked(), ["POST On", "POST ForceOn"]);
}

#[tokio::test]
async fn a_version_is_sent_back_and_one_that_is_overtaken_is_read_again() {
    let rig = Rig::new(Extras { versions: true, ..Extras::default() }).await;
    rig.proxy.fail(Method::PATCH, Fault::Overtaken);
    rig.done(vec![boot(Device::Pxe)]).await;
    assert_eq!(rig.proxy.asked(), ["PATCH Pxe", "PATCH Pxe"]);
}

#[tokio::test]
async fn a_session_serves_a_whole_job_is_renewed_when_forgotten_and_ended_after() {
    let rig = Rig::new(Extras { sessions: true, ..Extras::default() }).await;
    rig.proxy.fail(Method::POST, Fault::Forgotten);
    rig.done(vec![power(Power::On), boot(Device::Pxe)]).await;
    assert_eq!(rig.proxy.sessions(), 2);
    assert!(!rig.proxy.is_open());
}

#[tokio::test]
async fn a_refusal_is_told_in_the_words_of_the_bmc_when_no_way_is_left() {
    let rig = Rig::new(Extras::default()).await;
    for _ in 0..2 {
        rig.proxy.fail(Method::POST, Fault::Refused("The chassis is locked."));
    }
    let job = rig.job(vec![power(Power::On)]).await;
    assert_eq!((job.state(), job.completed_operations), (State::Failed, 0));
    let said = "operation 0: the BMC refused On, ForceOn; ForceOn: the BMC refused with 400 Bad Request: The chassis is locked.";
    assert_eq!(job.state_reason, said);
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let rig = Rig::new(Extras::default()).await;
    rig.proxy.fail(Method::POST, Fault::Elsewhere);
    let job = rig.job(vec![power(Power::On)]).await;
    assert_eq!(job.state(), State::Failed);
    assert!(job.state_reason.ends_with("leads away from the BMC"), "{}", job.state_reason);
}

#[tokio::test]
async fn a_bmc_that_stays_away_fails_the_job_after_ten_tries() {
    let rig = Rig::new(Extras::default()).await;
    let Rig { jobs, hardware, proxy, _emulator } = rig;
    drop((proxy, _emulator));
    jobs.create(hardware, vec![power(Power::On)], Default::default(), None).await.unwrap();
    work(&jobs, hardware, PACE).await.unwrap();
    let job = jobs.list("", 1, None, &Default::default()).await.unwrap().records.remove(0);
    assert_eq!((job.state(), job.attempt), (State::Failed, 10));
    assert!(job.state_reason.contains("the BMC cannot be reached"), "{}", job.state_reason);
}

#[tokio::test]
async fn a_cycle_falls_back_on_off_and_on_and_a_soft_off_needs_no_force() {
    let rig = Rig::new(Extras::default()).await;
    rig.done(vec![power(Power::On), power(Power::Cycle), power(Power::SoftOff)]).await;
    let asked = ["POST On", "POST ForceOff", "POST On", "POST GracefulShutdown"];
    assert_eq!(rig.proxy.asked(), asked);
}

#[tokio::test]
async fn a_system_that_ignores_the_button_loses_its_power() {
    let rig = Rig::new(Extras::default()).await;
    rig.done(vec![power(Power::On)]).await;
    rig.proxy.fail(Method::POST, Fault::Nothing);
    let job = rig.done(vec![power(Power::SoftOff)]).await;
    let cut = "operation 0: the system did not shut down: its power was cut";
    assert_eq!(job.downgrades, [cut]);
}

#[tokio::test]
async fn a_reset_and_a_cleared_override_are_done_on_a_real_peer() {
    let rig = Rig::new(Extras::default()).await;
    rig.done(vec![power(Power::On), power(Power::Reset), boot(Device::None)]).await;
    let asked = ["POST On", "POST ForceRestart", "PATCH ", "PATCH None"];
    assert_eq!(rig.proxy.asked(), asked);
}

#[tokio::test]
async fn an_operation_has_until_its_deadline_and_one_that_is_done_by_then_is_done() {
    let rig = Rig::new(Extras::default()).await;
    let late = Timing { deadline: Duration::ZERO, ..PACE };
    rig.jobs
        .create(rig.hardware, vec![power(Power::Off), power(Power::On)], Default::default(), None)
        .await
        .unwrap();
    work(&rig.jobs, rig.hardware, late).await.unwrap();
    let job = rig.jobs.list("", 1, None, &Default::default()).await.unwrap().records.remove(0);
    assert_eq!((job.state(), job.completed_operations), (State::Failed, 1));
    assert!(job.state_reason.starts_with("operation 1: not done in 0 seconds"));
    assert!(rig.proxy.asked().is_empty());
}
