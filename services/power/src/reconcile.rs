//! Carries jobs out: one task for each machine whose queue is not empty.
//!
//! A task reads the queue, the job and the BMC again at every turn, and stores what it is about to ask before it asks. So it
//! may be cut off anywhere: whoever goes on finds in the store what may have been asked, and in the BMC what became of it.
//! Every process has its own; the one whose [claim](crate::claim) the queue holds does the work, the others look on.

mod turn;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use store::mirror::{Mirror, Watcher};
use store::records;
use tinwright::watch::WatchEvent;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::turn::{Outcome, Worker};
use crate::jobs::Jobs;
use crate::plan::Pace;
use crate::stored::Job;
use crate::{Error, state};

/// The pause after the store failed.
const STORE: Duration = Duration::from_secs(1);
/// How often old jobs are looked for.
const SWEEP: Duration = Duration::from_secs(60 * 60);

/// Carries out whatever is in the queues, at `pace`, until `stop`.
pub async fn run(jobs: Jobs, mirror: Mirror<Job>, pace: Pace, stop: CancellationToken) {
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
                // A panic is a bug of ours; the machine it belongs to waits for the next start.
                let Ok(hardware) = ended else { continue };
                running.remove(&hardware);
            }
        }
        // What came while a task ended is looked at again: one task too many finds an empty queue.
        for hardware in due.extract_if(.., |hardware| running.insert(hardware.clone())) {
            tasks.spawn(carry_out(jobs.clone(), hardware, pace, stop.clone()));
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// The machine of the next job that is told of and has not ended.
async fn next_open(watcher: &mut Watcher<Job>, mirror: &Mirror<Job>) -> String {
    loop {
        match watcher.next().await {
            Ok(WatchEvent::Put(job)) if !state::ended(&job) => return job.hardware_id,
            Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) => {}
            Err(_) => *watcher = mirror.watch(),
        }
    }
}

/// Carries out the jobs of one machine until there are none, and answers whose they were.
async fn carry_out(jobs: Jobs, hardware: String, pace: Pace, stop: CancellationToken) -> String {
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

/// One turn, and the pause after it; nothing once the queue is empty.
#[tracing::instrument(skip_all, fields(hardware.id = worker.hardware()))]
async fn turn(worker: &mut Worker) -> Option<Duration> {
    match worker.turn(SystemTime::now()).await {
        Ok(Outcome::Idle) => None,
        Ok(Outcome::Again(pause)) => Some(pause),
        Err(Error::Records(records::Error::Changed { .. })) => Some(Duration::ZERO),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a power job cannot go on");
            Some(STORE)
        }
    }
}

/// Removes old jobs now and then, until `stop`.
pub async fn sweep(jobs: Jobs, stop: CancellationToken) {
    let endless = async {
        let mut hourly = tokio::time::interval(SWEEP);
        loop {
            hourly.tick().await;
            if let Err(error) = jobs.sweep(SystemTime::now()).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "old power jobs stay");
            }
        }
    };
    stop.run_until_cancelled(endless).await;
}
