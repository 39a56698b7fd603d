//! The clean-up after the actions, whatever the outcome: clears the boot override, ejects the CD that the preparation inserted, and switches
//! the power off, as requested.

use tinwright::power::v1::Operation;
use tinwright::power::v1::operation::{Power, boot::Device};
use tinwright::workflow::v1 as pb;

use super::bmc::{BmcClient, PowerJobError, boot, eject_cd, power};
use crate::lifecycle::Event;

/// Cleans up after `workflow`, and returns the event that follows.
pub(super) async fn post(bmcs: &BmcClient, workflow: &pb::Workflow) -> Event {
    match clean_up(bmcs, workflow).await {
        Ok(()) => Event::PostDone,
        Err(PowerJobError::Failed(reason)) => Event::PostFailed(reason),
        Err(PowerJobError::Suspended) => Event::Suspend,
    }
}

async fn clean_up(bmcs: &BmcClient, workflow: &pb::Workflow) -> Result<(), PowerJobError> {
    let options = workflow.boot_options.unwrap_or_default();
    let off = options.power_off_after.then(|| power(Power::Off));
    if options.mode() != pb::boot_options::Mode::Netboot {
        return match off {
            Some(off) => run_job(bmcs, workflow, "power-off", &[off]).await,
            None => Ok(()),
        };
    }
    let with = |first: Operation| -> Vec<_> { [first].into_iter().chain(off.clone()).collect() };
    let done = match run_job(bmcs, workflow, "post", &with(boot(Device::None, false))).await {
        // Some BMCs cannot clear an override, only replace it.
        Err(PowerJobError::Failed(first)) => {
            let disk = with(boot(Device::Disk, true));
            match run_job(bmcs, workflow, "post-disk", &disk).await {
                Err(PowerJobError::Failed(_)) => Err(PowerJobError::Failed(first)),
                done => done,
            }
        }
        done => done,
    };
    if done != Err(PowerJobError::Suspended) {
        eject(bmcs, workflow).await?;
    }
    done
}

/// Ejects the CD that the preparation inserted, if it did. A failure does not change the outcome: the next preparation replaces the CD.
async fn eject(bmcs: &BmcClient, workflow: &pb::Workflow) -> Result<(), PowerJobError> {
    if workflow.boot_image_url.is_empty() {
        return Ok(());
    }
    match run_job(bmcs, workflow, "eject", &[eject_cd()]).await {
        Err(PowerJobError::Failed(reason)) => {
            tracing::warn!(workflow.id, reason, "the CD of the preparation was not ejected");
            Ok(())
        }
        done => done,
    }
}

async fn run_job(
    bmcs: &BmcClient,
    workflow: &pb::Workflow,
    step: &str,
    operations: &[Operation],
) -> Result<(), PowerJobError> {
    let request_id = format!("{}/{step}/1", workflow.id);
    let job = bmcs.create_job(&workflow.hardware_id, operations, request_id).await?;
    bmcs.wait(&job.id).await
}
