//! Boots in the worker's environment with no action to run, though the machine should have booted its disk.
//!
//! ```text
//! new boot ─▶ fewer than three so far? ─▶ counted, told to reboot
//!          └▶ left waiting: rebooting does not help, and a person has to look
//! ```
//!
//! The boots are counted in the record of the workflow that ended last on the machine. So the count survives a restart of the
//! server, starts again with the next workflow, and is deleted with its own. A boot that asks again gets the same instruction and is
//! not counted again.

use tinwright::BootId;
use tinwright::workflow::v1 as pb;

/// The number of boots after a workflow that are told to reboot.
pub const MAX_REBOOTS: usize = 3;

/// The instruction for an unexpected boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnexpectedBoot {
    /// Reboot: the machine may boot its disk next time.
    Reboot,
    /// Wait for work.
    Wait,
}

/// Returns the instruction that `boot` was given after the workflow `last`; none if it is new.
pub fn instruction(last: &pb::Workflow, boot: &BootId) -> Option<UnexpectedBoot> {
    if last.unexpected_boot_ids.contains(&boot.0) {
        Some(UnexpectedBoot::Reboot)
    } else {
        (last.idle_boot_id == boot.0).then_some(UnexpectedBoot::Wait)
    }
}

/// Counts `boot` after the workflow `last`, unless it is counted already.
pub fn count(last: &mut pb::Workflow, boot: &BootId) {
    if instruction(last, boot).is_some() {
        return;
    }
    match last.unexpected_boot_ids.len() {
        0..MAX_REBOOTS => last.unexpected_boot_ids.push(boot.0.clone()),
        _ => last.idle_boot_id.clone_from(&boot.0),
    }
}

/// Returns a warning for people, if the machine was left waiting after the workflow `last`.
pub fn warning(last: &pb::Workflow) -> Option<String> {
    let left = !last.idle_boot_id.is_empty();
    left.then(|| {
        format!(
            "the machine does not boot its disk: rebooted {MAX_REBOOTS} times, now left waiting"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_boots_are_told_to_reboot_and_later_ones_to_wait() {
        let mut last = pb::Workflow::default();
        let instructions = ["b1", "b1", "b2", "b3", "b4", "b4", "b5", "b2"].map(|boot| {
            count(&mut last, &boot.into());
            instruction(&last, &boot.into()).unwrap()
        });
        use UnexpectedBoot::{Reboot, Wait};
        assert_eq!(instructions, [Reboot, Reboot, Reboot, Reboot, Wait, Wait, Wait, Reboot]);
        assert_eq!((last.unexpected_boot_ids.len(), last.idle_boot_id.as_str()), (3, "b5"));
    }
}
