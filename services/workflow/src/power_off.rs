//! The end of an action that switches the machine off: no worker reports it, so the machine's BMC is asked.
//!
//! Without a BMC the action ends after ten minutes, as every action that leaves the machine's boot.

use std::time::Duration;

use tinwright::workflow::v1 as pb;

/// The built-in action that switches the machine off.
const POWER_OFF: &str = "poweroff";
/// Interval of the readings of the machine's power state.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// True if the action that runs has begun to switch the machine off.
pub(crate) fn is_awaited(workflow: &pb::Workflow) -> bool {
    let running = workflow.actions.iter().find(|action| action.state() == pb::ActionState::Running);
    running.is_some_and(|action| {
        action.terminal_time.is_some() && actions::short_name(&action.image) == POWER_OFF
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_started_power_off_that_leaves_the_boot_is_awaited() {
        let with = |image: &str, state: pb::ActionState, is_terminal: bool| {
            let terminal_time = is_terminal.then(prost_types::Timestamp::default);
            let image = image.to_owned();
            let mut action = pb::Action { image, terminal_time, ..pb::Action::default() };
            action.set_state(state);
            pb::Workflow { actions: vec![action], ..pb::Workflow::default() }
        };
        use pb::ActionState::{Pending, Running, Success};
        assert!(is_awaited(&with("poweroff", Running, true)));
        assert!(is_awaited(&with("quay.io/site/poweroff:v1", Running, true)));
        assert!(!is_awaited(&with("poweroff", Running, false)));
        assert!(!is_awaited(&with("reboot", Running, true)));
        assert!(!is_awaited(&with("poweroff", Success, true)));
        assert!(!is_awaited(&with("poweroff", Pending, false)));
    }
}
