//! The clean-up after the actions, whatever the outcome: clears the boot override and switches the power off, as requested.

use tinwright::power::v1::Operation;
use tinwright::power::v1::operation::{Power, boot::Device};
use tinwright::workflow::v1 as pb;

use super::bmc::{BmcClient, PowerJobFailed, boot, power};
use crate::lifecycle::Event;

/// Cleans up after `workflow`, and returns the event that follows.
pub(super) async fn post(bmcs: &BmcClient, workflow: &pb::Workflow) -> Event {
    match clean_up(bmcs, workflow).await {
        Ok(()) => Event::PostDone,
        Err(failed) => Event::PostFailed(failed.to_string()),
    }
}

async fn clean_up(bmcs: &BmcClient, workflow: &pb::Workflow) -> Result<(), PowerJobFailed> {
    let options = workflow.boot_options.unwrap_or_default();
    let off = options.power_off_after.then(|| power(Power::Off));
    if options.mode() != pb::boot_options::Mode::Netboot {
        return match off {
            Some(off) => run_job(bmcs, workflow, "power-off", &[off]).await,
            None => Ok(()),
        };
    }
    let with = |first: Operation| -> Vec<_> { [first].into_iter().chain(off).collect() };
    match run_job(bmcs, workflow, "post", &with(boot(Device::None, false))).await {
        Ok(()) => Ok(()),
        // Some BMCs cannot clear an override, only replace it.
        Err(failed) => {
            let disk = with(boot(Device::Disk, true));
            run_job(bmcs, workflow, "post-disk", &disk).await.map_err(|_| failed)
        }
    }
}

async fn run_job(
    bmcs: &BmcClient,
    workflow: &pb::Workflow,
    step: &str,
    operations: &[Operation],
) -> Result<(), PowerJobFailed> {
    let request_id = format!("{}/{step}/1", workflow.id);
    let job = bmcs.create_job(&workflow.hardware_id, operations, request_id).await?;
    bmcs.wait(&job.id).await
}
