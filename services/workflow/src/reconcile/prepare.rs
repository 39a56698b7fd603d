//! Before the actions: the machine is switched off, told to boot from the network once, and switched on.

use tinwright::power::v1::operation::{Power, boot::Device};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;

use super::Reconciler;
use super::bmc::{boot, power};
use crate::lifecycle::Event;

/// What comes of preparing the machine of `workflow`.
pub(super) async fn prepare(reconciler: &Reconciler, workflow: &pb::Workflow) -> Event {
    let request_id = format!("{}/prepare/1", workflow.id);
    let operations = [power(Power::Off), boot(Device::Pxe, false), power(Power::On)];
    let bmcs = &reconciler.bmcs;
    let job = match bmcs.job(&workflow.hardware_id, &operations, request_id).await {
        Ok(job) => job,
        Err(failed) => return Event::PrepareFailed(failed.to_string()),
    };
    tokio::select! {
        done = bmcs.done(&job.id) => match done {
            Ok(()) => Event::Prepared,
            Err(failed) => Event::PrepareFailed(failed.to_string()),
        },
        () = left(reconciler, &workflow.id) => {
            bmcs.cancel(&job.id).await;
            Event::Tick
        }
    }
}

/// Resolves when the workflow has gone past preparing, which it does when it is cancelled.
async fn left(reconciler: &Reconciler, id: &str) {
    use pb::WorkflowState as State;
    let mut watcher = reconciler.mirror.watch_one(id);
    loop {
        match watcher.next().await {
            Ok(WatchEvent::Deleted(_)) => return,
            Ok(WatchEvent::Put(record)) => match record.state() {
                State::Post
                | State::Success
                | State::Failed
                | State::Timeout
                | State::Cancelled => return,
                // The mirror may be behind the store, which said preparing.
                State::Unspecified | State::Pending | State::Preparing | State::Running => {}
            },
            Ok(WatchEvent::Synced) => {}
            Err(_) => watcher = reconciler.mirror.watch_one(id),
        }
    }
}
