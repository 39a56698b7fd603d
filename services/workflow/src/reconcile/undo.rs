//! After the actions, however they ended: the boot override is cleared and the power switched off, as far as that was
//! asked for.

use tinwright::power::v1::Operation;
use tinwright::power::v1::operation::{Power, boot::Device};
use tinwright::workflow::v1 as pb;

use super::bmc::{Bmcs, Failed, boot, power};
use crate::lifecycle::Event;

/// What comes of cleaning up after `workflow`.
pub(super) async fn undo(bmcs: &Bmcs, workflow: &pb::Workflow) -> Event {
    match cleared(bmcs, workflow).await {
        Ok(()) => Event::PostDone,
        Err(failed) => Event::PostFailed(failed.to_string()),
    }
}

async fn cleared(bmcs: &Bmcs, workflow: &pb::Workflow) -> Result<(), Failed> {
    let options = workflow.boot_options.unwrap_or_default();
    let off = options.power_off_after.then(|| power(Power::Off));
    if options.mode() != pb::boot_options::Mode::Netboot {
        return match off {
            Some(off) => carried_out(bmcs, workflow, "power-off", &[off]).await,
            None => Ok(()),
        };
    }
    let with = |first: Operation| -> Vec<_> { [first].into_iter().chain(off).collect() };
    match carried_out(bmcs, workflow, "post", &with(boot(Device::None, false))).await {
        Ok(()) => Ok(()),
        // Some BMCs cannot clear an override, only replace it.
        Err(failed) => {
            let disk = with(boot(Device::Disk, true));
            carried_out(bmcs, workflow, "post-disk", &disk).await.map_err(|_| failed)
        }
    }
}

async fn carried_out(
    bmcs: &Bmcs,
    workflow: &pb::Workflow,
    step: &str,
    operations: &[Operation],
) -> Result<(), Failed> {
    let request_id = format!("{}/{step}/1", workflow.id);
    let job = bmcs.job(&workflow.hardware_id, operations, request_id).await?;
    bmcs.done(&job.id).await
}
