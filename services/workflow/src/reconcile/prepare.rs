//! The preparation before the actions: switches the machine off, sets it to boot from the network once, and switches it on. As
//! soon as the BMC reports the machine as off, a boot epoch begins. A machine whose policy says so boots from an image instead, which the
//! BMC shows as a CD.
//!
//! A job names the boot mode of the firmware that the worker was last seen on: some BMCs fall back to another one whenever an override is set.

use tinwright::hardware::v1::FirmwareMode;
use tinwright::power::v1 as power_api;
use tinwright::power::v1::operation::{Power, boot::Device, boot::Mode};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;

use super::Reconciler;
use super::bmc::{PowerJobError, boot_once, insert_cd, power};
use crate::lifecycle::Event;
use crate::workflows::Error;

/// The number of operations after which the BMC has reported the machine as off.
const POWER_OFF_OPERATIONS: i32 = 1;

/// Prepares the machine of `workflow`, and returns the event that follows. Each preparation of a workflow has a `number`, and
/// with it a power job of its own.
pub(super) async fn prepare(
    reconciler: &Reconciler,
    workflow: &pb::Workflow,
    number: u32,
) -> Result<Event, Error> {
    let request_id = format!("{}/prepare/{number}", workflow.id);
    let operations = operations(workflow);
    let bmcs = &reconciler.bmcs;
    let job = match bmcs.create_job(&workflow.hardware_id, &operations, request_id).await {
        Ok(job) => job,
        Err(error) => return Ok(failure(error)),
    };
    tokio::select! {
        event = follow(reconciler, workflow, &job.id) => event,
        () = left_preparing(reconciler, &workflow.id) => {
            bmcs.cancel(&job.id).await;
            Ok(Event::Tick)
        }
    }
}

/// Returns the operations that prepare the machine of `workflow`. They depend on its record only: a repeated request must not differ.
fn operations(workflow: &pb::Workflow) -> Vec<power_api::Operation> {
    let mode = match workflow.firmware_mode() {
        FirmwareMode::Unspecified => Mode::Unspecified,
        FirmwareMode::Bios => Mode::Legacy,
        FirmwareMode::Uefi => Mode::Uefi,
    };
    if workflow.boot_image_url.is_empty() {
        return vec![power(Power::Off), boot_once(Device::Pxe, mode), power(Power::On)];
    }
    let insert = insert_cd(workflow.boot_image_url.clone());
    vec![power(Power::Off), insert, boot_once(Device::Cdrom, mode), power(Power::On)]
}

/// Waits for the end of the power job `job`, and returns the event that follows.
async fn follow(
    reconciler: &Reconciler,
    workflow: &pb::Workflow,
    job: &str,
) -> Result<Event, Error> {
    let bmcs = &reconciler.bmcs;
    if let Err(error) = bmcs.wait_for_operations(job, POWER_OFF_OPERATIONS).await {
        return Ok(failure(error));
    }
    if workflow.boot_epoch == 0
        && let Ok(id) = workflow.id.parse()
    {
        let begun = reconciler.workflows.begin_epoch(id).await?;
        tracing::info!(
            hardware.id = begun.hardware_id,
            epoch = begun.boot_epoch,
            "boot epoch began"
        );
    }
    Ok(match bmcs.wait(job).await {
        Ok(()) => Event::Prepared,
        Err(error) => failure(error),
    })
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
