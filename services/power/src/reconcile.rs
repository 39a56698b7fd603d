//! Carries out jobs: one task for each machine whose queue is not empty.
//!
//! At each step a task reads the queue, the job and the BMC, and stores the next request before it sends it. So it may be
//! interrupted anywhere: the next step finds the last request in the store, and its effect in the BMC. Each process has a
//! task for the machine; the one that holds the claim on the queue does the work, the others wait.

mod step;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use store::mirror::{Mirror, Watcher};
use store::records;
use tinwright::watch::WatchEvent;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::step::{Outcome, Worker};
use crate::jobs::Jobs;
use crate::plan::Timing;
use crate::stored::Job;
use crate::{Error, state};

/// The pause after an error of the store.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The interval at which old jobs are deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Carries out all jobs at `pace` until `stop`.
pub async fn run(jobs: Jobs, mirror: Mirror<Job>, pace: Timing, stop: CancellationToken) {
    let (mut running, mut tasks) = (BTreeSet::new(), JoinSet::new());
    let mut due = BTreeSet::new();
    let mut watcher = mirror.watch();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            hardware = next_open(&mut watcher, &mirror) => {
                due.insert(hardware);
            }
            Some(ended) = tasks.join_next() => {
                // A panic is a bug; the machine waits for the next start.
                let Ok(hardware) = ended else { continue };
                running.remove(&hardware);
            }
        }
        // A job may arrive while a task ends, so the machine is added again; a needless task finds an empty queue.
        for hardware in due.extract_if(.., |hardware| running.insert(hardware.clone())) {
            tasks.spawn(carry_out(jobs.clone(), hardware, pace, stop.clone()));
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Returns the machine of the next changed job that has not ended.
async fn next_open(watcher: &mut Watcher<Job>, mirror: &Mirror<Job>) -> String {
    loop {
        match watcher.next().await {
            Ok(WatchEvent::Put(job)) if !state::ended(&job) => return job.hardware_id,
            Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) => {}
            Err(_) => *watcher = mirror.watch(),
        }
    }
}

/// Carries out the jobs of one machine until there are none, and returns the machine.
async fn carry_out(jobs: Jobs, hardware: String, pace: Timing, stop: CancellationToken) -> String {
    let mut worker = Worker::new(jobs, hardware.clone(), pace);
    let work = async {
        while let Some(pause) = turn(&mut worker).await {
            tokio::time::sleep(pause).await;
        }
    };
    stop.run_until_cancelled(Box::pin(work)).await;
    worker.close().await;
    hardware
}

/// Makes one step, and returns the pause after it; nothing once the queue is empty.
#[tracing::instrument(skip_all, fields(hardware.id = worker.hardware()))]
async fn turn(worker: &mut Worker) -> Option<Duration> {
    match worker.turn(SystemTime::now()).await {
        Ok(Outcome::Idle) => None,
        Ok(Outcome::Again(pause)) => Some(pause),
        Err(Error::Records(records::Error::Changed { .. })) => Some(Duration::ZERO),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a power job cannot go on");
            Some(STORE_RETRY_DELAY)
        }
    }
}

/// Deletes old jobs at intervals until `stop`.
pub async fn sweep(jobs: Jobs, stop: CancellationToken) {
    let endless = async {
        let mut hourly = tokio::time::interval(CLEANUP_INTERVAL);
        loop {
            hourly.tick().await;
            if let Err(error) = jobs.sweep(SystemTime::now()).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "old power jobs stay");
            }
        }
    };
    stop.run_until_cancelled(endless).await;
}
