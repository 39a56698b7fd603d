//! BMCs that accept connections and never answer, and BMCs that accept every change and do nothing: each job ends within its deadline, for a
//! reason that says which it was.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use power::{Login, Timing};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::operation::{Drive, InsertMedia, Power, What};
use tinwright::power::v1::power_job::State;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::emulator::Emulator;
use crate::proxy::{Extras, Proxy};
use crate::site::{self, TIMING, boot, power, work};

/// The time that a request has even after the deadline of its operation, since the effect may be there.
const LATE_REQUEST: Duration = Duration::from_secs(10);
/// The time that a loaded host may need beside the deadlines.
const MARGIN: Duration = Duration::from_secs(60);

/// A BMC that accepts connections and never answers. It ends when it is dropped.
struct HangingBmc {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HangingBmc {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                open.push(listener.accept().await.unwrap());
            }
        });
        Self { address, task }
    }
}

impl Drop for HangingBmc {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries out `operation` on `bmc`, which is not logged in to before, and returns the job with the time that it took.
async fn ended(bmc: pb::Bmc, operation: pb::Operation, timing: Timing) -> (pb::PowerJob, Duration) {
    let hardware: HardwareId = bmc.hardware_id.parse().unwrap();
    let jobs = site::jobs(Arc::new(MemoryStore::default()));
    jobs.bmcs.create(bmc, Login::Skip, None).await.unwrap();
    let made = jobs.create(site::job(hardware, vec![operation]), None).await.unwrap();
    let begin = Instant::now();
    work(&jobs, hardware, timing).await.unwrap();
    (jobs.get(made.id.parse().unwrap()).await.unwrap(), begin.elapsed())
}

/// Checks that a job failed for a reason with `text`, within `limit`.
fn assert_failed((job, took): &(pb::PowerJob, Duration), text: &str, limit: Duration) {
    assert_eq!(job.state(), State::Failed, "{}", job.state_reason);
    assert!(job.state_reason.contains(text), "{}", job.state_reason);
    assert!(*took < limit + MARGIN, "after {took:?}: {}", job.state_reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_hangs_fails_a_job_at_its_deadline() {
    let bmc = HangingBmc::start().await;
    let timing = Timing { operation_timeout: Duration::from_secs(1), ..TIMING };
    let redfish =
        |scheme: &str| site::bmc(HardwareId::new(), &format!("{scheme}://{}", bmc.address), "");
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let ipmi = crate::ipmi::bmc(HardwareId::new(), port, "secret");
    let (plain, tls, ipmi) = tokio::join!(
        ended(redfish("http"), power(Power::On), timing),
        ended(redfish("https"), power(Power::On), timing),
        ended(ipmi, power(Power::On), timing),
    );
    assert_failed(&plain, "the BMC did not answer in 10 seconds", LATE_REQUEST);
    // The limits of the request and of the connection are both ten seconds: either may be the first.
    assert_failed(&tls, " in 10 seconds", LATE_REQUEST);
    assert_failed(&ipmi, "the BMC d", LATE_REQUEST);
    assert!(ipmi.0.state_reason.contains("not answer"), "{}", ipmi.0.state_reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_hangs_is_not_created_and_the_caller_is_told_to_repeat() {
    let bmc = HangingBmc::start().await;
    let refused = async |scheme: &str| {
        let jobs = site::jobs(Arc::new(MemoryStore::default()));
        let record = site::bmc(HardwareId::new(), &format!("{scheme}://{}", bmc.address), "");
        let begin = Instant::now();
        let error = jobs.bmcs.create(record, Login::Try, None).await.unwrap_err();
        (Status::from(error), begin.elapsed())
    };
    let (plain, tls) = tokio::join!(refused("http"), refused("https"));
    for ((status, took), text, limit) in [
        (plain, "the BMC did not answer in 30 seconds", 30),
        (tls, "the BMC opened no connection in 10 seconds", 10),
    ] {
        assert_eq!((status.code(), status.message()), (Code::Unavailable, text));
        assert!(took < Duration::from_secs(limit) + MARGIN, "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_stops_answering_in_a_job_fails_it_at_its_deadline() {
    let emulator = Emulator::open(&["node1".into()]);
    let proxy = Proxy::start(&emulator.url, Extras { sessions: true, ..Extras::default() }).await;
    proxy.hold(true);
    let timing = Timing { operation_timeout: Duration::from_secs(1), ..TIMING };
    let bmc = site::bmc(HardwareId::new(), &proxy.url, "");
    let job = ended(bmc, power(Power::On), timing).await;
    assert_failed(&job, "the BMC did not answer in 10 seconds", LATE_REQUEST);
    assert_eq!(proxy.sessions(), 1, "it answered the login");
}

/// Operations that the emulator would carry out on a machine that is off, each with the first and the second request for it.
fn operations() -> [(pb::Operation, [&'static str; 2]); 3] {
    let image_url = "http://127.0.0.1:1/SecretToken.iso".to_owned();
    let media = InsertMedia { image_url, drive: Drive::Cd.into() };
    let insert = pb::Operation { what: Some(What::InsertMedia(media)), ..Default::default() };
    [
        (power(Power::On), ["On", "ForceOn"]),
        (boot(Device::Pxe), ["boot", "boot in former mode"]),
        (insert, ["insert", "insert without options"]),
    ]
}

/// Carries out the job of each of [`operations`] on a BMC that answers 204 and does nothing.
async fn ignored(timing: Timing) -> Vec<((pb::PowerJob, Duration), [&'static str; 2])> {
    let systems: Vec<_> = (0..operations().len()).map(|n| format!("node{n}")).collect();
    let emulator = Emulator::open(&systems);
    let proxy = Proxy::start(&emulator.url, Extras::default()).await;
    proxy.ignore_changes();
    let runs = operations().into_iter().enumerate().map(|(n, (operation, requests))| {
        let bmc = site::bmc(HardwareId::new(), &proxy.url, &crate::emulator::id(n));
        async move { (ended(bmc, operation, timing).await, requests) }
    });
    futures_util::future::join_all(runs).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_accepts_changes_and_does_nothing_fails_a_job_after_its_attempts() {
    let effect_timeout = Duration::from_millis(300);
    let timing = Timing { effect_timeout, max_attempts: 2, ..TIMING };
    for (job, [_, second]) in ignored(timing).await {
        assert_failed(&job, "", Duration::from_secs(1));
        let reason = format!("failed 2 times; the BMC accepted {second}, which had no effect");
        assert_eq!(job.0.state_reason, reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_accepts_changes_and_does_nothing_fails_a_job_at_its_deadline() {
    // One request, whose effect is awaited for longer than the operation has.
    let timing = Timing { operation_timeout: Duration::from_secs(15), ..TIMING };
    for (job, [first, _]) in ignored(timing).await {
        assert_failed(&job, "", timing.operation_timeout);
        let reason =
            format!("not done in 15 seconds; the BMC accepted {first}, which had no effect");
        assert_eq!(job.0.state_reason, reason);
    }
}
