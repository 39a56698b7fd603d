//! Carries out jobs: one task for each machine whose queue is not empty.
//!
//! At each step a task reads the queue, the job and the BMC, and stores the next request before it sends it. So it may be
//! interrupted anywhere: the next step finds the last request in the store, and its effect in the BMC. Each process has a
//! task for the machine; the one that holds the claim on the queue does the work, the others wait.

mod step;

use std::time::Duration;

use runtime::work_queue::{Outcome, WorkQueue};
use store::mirror::Mirror;
use tinwright::watch::WatchEvent;
use tokio_util::sync::CancellationToken;

use self::step::STORE_BACKOFF;
pub use self::step::Worker;
use crate::jobs::Jobs;
use crate::plan::Timing;
use crate::stored::Job;

/// The interval at which old jobs are deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Carries out all jobs until `stop`, deletes old ones, and cancels those that nobody released.
pub async fn run(jobs: Jobs, mirror: Mirror<Job>, timing: Timing, stop: CancellationToken) {
    // A task retries by itself; this backoff is for those that panic. A machine that another process has claimed keeps its task waiting, so the number of tasks is not limited.
    let mut queue = WorkQueue::new(STORE_BACKOFF, usize::MAX);
    let mut watcher = mirror.watch();
    let mut cleanup = std::pin::pin!(delete_expired(jobs.clone()));
    let stopped = stop.clone();
    let work = move |hardware| carry_out(jobs.clone(), hardware, timing, stop.clone());
    loop {
        tokio::select! {
            () = stopped.cancelled() => break,
            event = watcher.next() => match event {
                Ok(WatchEvent::Put(job)) if !job.is_terminal() && !job.held => queue.add(job.hardware_id),
                Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) => {}
                Err(_) => watcher = mirror.watch(),
            },
            () = &mut cleanup => {}
            () = queue.drive(&work) => {}
        }
    }
    queue.drain().await;
}

/// Deletes old jobs at intervals. Resolves never.
async fn delete_expired(jobs: Jobs) {
    let mut interval = tokio::time::interval(CLEANUP_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = jobs.delete_expired().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "old power jobs not deleted; trying again in an hour");
        }
    }
}

/// Carries out the jobs of one machine until there are none.
async fn carry_out(
    jobs: Jobs,
    hardware: String,
    timing: Timing,
    stop: CancellationToken,
) -> Outcome {
    let mut worker = Worker::new(jobs, hardware, timing);
    stop.run_until_cancelled(Box::pin(worker.run())).await;
    worker.close().await;
    Outcome::Done
}

#[cfg(test)]
mod tests;
