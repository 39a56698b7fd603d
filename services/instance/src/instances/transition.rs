//! The changes that an event makes to an instance's record besides its state.

use std::time::SystemTime;

use tinwright::instance::v1 as pb;

use super::{Error, boot_gate};
use crate::state::{Event, State};

/// Returns `old` after `event` at `now`, with `reason` as the new state's reason. An event that changes no state changes
/// nothing.
pub(super) fn after(
    old: &pb::Instance,
    event: Event,
    reason: &str,
    now: SystemTime,
) -> Result<pb::Instance, Error> {
    let from = State::try_from(old)?;
    let to = from.after(event)?;
    let mut new = old.clone();
    if from == to {
        return Ok(new);
    }
    to.write(&mut new);
    new.state_reason = reason.to_owned();
    new.workflow_id.clear();
    match to {
        State::Queued | State::Reinstalling => {
            new.generation += 1;
            (new.install_time, new.phone_home_time) = (None, None);
            (new.script_time, new.stack_time) = (None, None);
            new.host_keys.clear();
            new.power_job_id.clear();
        }
        State::Provisioning => new.begin_time = new.begin_time.or(Some(now.into())),
        State::Active => new.install_time = new.install_time.or(Some(now.into())),
        State::Deprovisioning => new.generation += 1,
        State::Failed | State::Released | State::DeprovisionFailed | State::Gone => {}
    }
    if to.is_being_deleted() || !to.occupies() {
        boot_gate::close(&mut new);
    }
    Ok(new)
}
