//! The preparation before the actions: switches the machine off, sets it to boot from the network once, and switches it on.

use tinwright::power::v1::operation::{Power, boot::Device};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;

use super::Reconciler;
use super::bmc::{PowerJobError, boot, power};
use crate::lifecycle::Event;

/// Prepares the machine of `workflow`, and returns the event that follows. Each preparation of a workflow has a `number`, and
/// with it a power job of its own.
pub(super) async fn prepare(
    reconciler: &Reconciler,
    workflow: &pb::Workflow,
    number: u32,
) -> Event {
    let request_id = format!("{}/prepare/{number}", workflow.id);
    let operations = [power(Power::Off), boot(Device::Pxe, false), power(Power::On)];
    let bmcs = &reconciler.bmcs;
    let job = match bmcs.create_job(&workflow.hardware_id, &operations, request_id).await {
        Ok(job) => job,
        Err(error) => return failure(error),
    };
    tokio::select! {
        done = bmcs.wait(&job.id) => match done {
            Ok(()) => Event::Prepared,
            Err(error) => failure(error),
        },
        () = left_preparing(reconciler, &workflow.id) => {
            bmcs.cancel(&job.id).await;
            Event::Tick
        }
    }
}

fn failure(error: PowerJobError) -> Event {
    match error {
        PowerJobError::Failed(reason) => Event::PrepareFailed(reason),
        PowerJobError::Suspended => Event::Suspend,
    }
}

/// Resolves when the workflow has left preparing, as it does when it is cancelled.
async fn left_preparing(reconciler: &Reconciler, id: &str) {
    use pb::WorkflowState as State;
    let mut watcher = reconciler.mirror.watch_one(id);
    loop {
        match watcher.next().await {
            Ok(WatchEvent::Deleted(_)) => return,
            // The mirror may be behind the store, in which the workflow is preparing: earlier states mean nothing.
            Ok(WatchEvent::Put(record)) if record.state() == State::Post => return,
            Ok(WatchEvent::Put(record)) if record.state().is_terminal() => return,
            Ok(WatchEvent::Put(_) | WatchEvent::Synced) => {}
            Err(_) => watcher = reconciler.mirror.watch_one(id),
        }
    }
}
