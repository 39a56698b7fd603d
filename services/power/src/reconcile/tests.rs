//! Jobs carried out while the store fails, or the BMC cannot be reached.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;
use crate::bmcs::{Bmcs, Login, PlaintextHttp};
use crate::state::Event;
use crate::stored::Progress;
use crate::test_store::{FlakyStore, redfish};
use runtime::Clock;
use runtime::seal::Seal;
use runtime::secret::SiteKey;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{Power, What};
use tinwright::power::v1::power_job::State;

fn jobs_of(process: &str, store: &Arc<FlakyStore>) -> Jobs {
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    let bmcs = Bmcs::new(store.clone(), seal, PlaintextHttp::Refused, Clock::system());
    Jobs::new(bmcs, process.into())
}

/// Creates a job for a machine whose BMC cannot be reached.
async fn job(jobs: &Jobs) -> pb::PowerJob {
    let hardware = HardwareId::new();
    let bmc = pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(redfish("https://127.0.0.1:1")),
        ..pb::Bmc::default()
    };
    jobs.bmcs.create(bmc, Login::Skip, None).await.unwrap();
    let on =
        vec![pb::Operation { what: Some(What::Power(Power::On.into())), ..Default::default() }];
    let job = pb::PowerJob {
        hardware_id: hardware.to_string(),
        operations: on,
        ..pb::PowerJob::default()
    };
    jobs.create(job, None).await.unwrap()
}

/// Creates a job for a machine that `jobs` claims and then leaves alone, as a process that is
/// killed does.
async fn abandoned_job(jobs: &Jobs) -> pb::PowerJob {
    let job = job(jobs).await;
    let queue = jobs.queue(&job.hardware_id).await.unwrap().unwrap();
    jobs.claim(&queue).await.unwrap();
    job
}

#[tokio::test(start_paused = true)]
async fn store_errors_do_not_prolong_the_wait_for_the_claim_of_a_dead_process() {
    const SECOND: Duration = Duration::from_secs(1);
    let store = Arc::new(FlakyStore::default());
    let (dead, jobs) = (jobs_of("dead", &store), jobs_of("alive", &store));
    let job = abandoned_job(&dead).await;
    let (mirror, stop) = (Mirror::new(jobs.records.clone()), CancellationToken::new());
    let timing = Timing { claim: 300 * SECOND, ..Timing::default() };
    let follow = tokio::spawn({
        let (mirror, stop) = (mirror.clone(), stop.clone());
        async move { mirror.run(stop).await }
    });
    let work = tokio::spawn(run(jobs.clone(), mirror, timing, stop.clone()));
    for _ in 0..15 {
        tokio::time::sleep(15 * SECOND).await;
        store.is_away.store(true, Ordering::SeqCst);
        tokio::time::sleep(5 * SECOND).await;
        store.is_away.store(false, Ordering::SeqCst);
    }
    assert_eq!(jobs.get(job.id.parse().unwrap()).await.unwrap().state(), State::Pending);
    // A step is due 8 seconds after an outage of 5 seconds at the latest. If earlier outages counted, it would be due after 10.
    tokio::time::sleep(9 * SECOND).await;
    assert_ne!(jobs.get(job.id.parse().unwrap()).await.unwrap().state(), State::Pending);
    stop.cancel();
    follow.await.unwrap();
    work.await.unwrap();
}

/// Makes the next step of a job after `attempts` attempts, of which `refusals` were refused.
/// Returns its state and the pause.
async fn step_after(attempts: usize, refusals: i32) -> (State, Option<Duration>) {
    let jobs = jobs_of("a", &Arc::default());
    let job = job(&jobs).await;
    let queue = jobs.queue(&job.hardware_id).await.unwrap().unwrap();
    let mut head = jobs.first(queue).await.unwrap().unwrap();
    let progress = Some(Progress { deadline: i64::MAX, refusals, ..Progress::default() });
    let tries = std::iter::repeat_n(Event::Try("again".into()), attempts);
    for event in std::iter::once(Event::Begin).chain(tries) {
        head = jobs.record(&head, event, progress.clone()).await.unwrap();
    }
    let mut worker = Worker::new(jobs.clone(), job.hardware_id.clone(), Timing::default());
    let pause = worker.step().await.unwrap();
    worker.close().await;
    (jobs.get(job.id.parse().unwrap()).await.unwrap().state(), pause)
}

#[tokio::test]
async fn refusals_are_no_attempts_if_a_reading_fails() {
    let most = Timing::default().max_attempts;
    let attempts = usize::try_from(most).unwrap();
    assert_eq!(step_after(attempts, 0).await.0, State::Failed);
    let first = Timing::default().retry_delay(1, Duration::ZERO);
    assert_eq!(step_after(attempts, most).await, (State::Running, Some(first)));
}
