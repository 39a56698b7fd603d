//! Deletes that were interrupted: their process ended, or the store failed, while the machine was marked as deleting.
//!
//! A delete takes much less than a minute. A machine whose record stays marked and unchanged for that time is deleted by each
//! process that finds it; the commits of all but one fail.

use std::time::Duration;

use runtime::retry::Backoff;
use runtime::work_queue::{Outcome, WorkQueue};
use store::mirror::Mirror;
use store::records;
use tinwright::hardware::v1::State;
use tinwright::watch::WatchEvent;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::peers::Peers;
use crate::records::{HardwareKind, HardwareRecords};

/// The time without a change after which a delete counts as interrupted.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(60);
/// The delays after failed attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Machines that are deleted at the same time.
const MAX_TASKS: usize = 8;

/// Continues interrupted deletes until `stop`.
pub(crate) async fn run(
    records: HardwareRecords,
    mirror: Mirror<HardwareKind>,
    peers: Peers,
    stop: CancellationToken,
) {
    let mut queue = WorkQueue::new(BACKOFF, MAX_TASKS);
    let mut watcher = mirror.watch();
    let work = move |marked| resume(records.clone(), peers.clone(), marked);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            event = watcher.next() => match event {
                Ok(WatchEvent::Put(machine)) if machine.state() == State::Deleting => {
                    queue.add_after((machine.id, machine.revision), INTERRUPTED_AFTER);
                }
                Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_) | WatchEvent::Synced) => {}
                Err(_) => watcher = mirror.watch(),
            },
            () = queue.drive(&work) => {}
        }
    }
    queue.drain().await;
}

/// Continues the delete of the machine with this id, if it still has this revision.
async fn resume(records: HardwareRecords, peers: Peers, (id, revision): (String, i64)) -> Outcome {
    match records.resume_delete(&id, revision, &peers).await {
        Ok(()) => tracing::info!(hardware.id = id, "interrupted delete completed"),
        Err(Error::Records(records::Error::Changed { .. } | records::Error::Missing { .. })) => {}
        Err(error) if error.is_refusal() => {
            tracing::warn!(reason = %error, hardware.id = id, "interrupted delete refused");
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                hardware.id = id,
                "interrupted delete not continued; trying again"
            );
            return Outcome::Failed;
        }
    }
    Outcome::Done
}

#[cfg(test)]
mod tests;
