//! Machines that come up in the worker's environment with nothing to do, though it is their disk's turn.
//!
//! ```text
//! new boot ─▶ fewer than three so far? ─▶ counted, told to reboot
//!          └▶ left waiting: what keeps it from its disk is no matter of rebooting, and a person has to look
//! ```
//!
//! The boots are counted in the record of the workflow that ended last on the machine. So the count outlives the server,
//! begins anew with the next workflow, and goes with its own. A boot that asks again is told the same and not counted again.

use tinwright::workflow::v1 as pb;

use crate::ids::BootId;

/// How many boots after a workflow are told to reboot.
pub const REBOOTS: usize = 3;

/// What a stray boot is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To reboot: the disk may come next time.
    Reboot,
    /// Nothing: it stays, and waits for work.
    Idle,
}

/// What `boot`, after the workflow `last`, was told; nothing if it is new.
pub fn known(last: &pb::Workflow, boot: &BootId) -> Option<Verdict> {
    if last.stray_boot_ids.contains(&boot.0) {
        Some(Verdict::Reboot)
    } else {
        (last.idle_boot_id == boot.0).then_some(Verdict::Idle)
    }
}

/// Counts `boot` after the workflow `last`.
pub fn count(last: &mut pb::Workflow, boot: &BootId) {
    if known(last, boot).is_some() {
        return;
    }
    match last.stray_boot_ids.len() {
        0..REBOOTS => last.stray_boot_ids.push(boot.0.clone()),
        _ => last.idle_boot_id.clone_from(&boot.0),
    }
}

/// What people are to know of a machine that was left waiting after the workflow `last`.
pub fn told(last: &pb::Workflow) -> Option<String> {
    let left = !last.idle_boot_id.is_empty();
    left.then(|| format!("the machine does not boot its disk: rebooted {REBOOTS} times, now left"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_boots_are_told_to_reboot_and_those_after_them_are_not() {
        let mut last = pb::Workflow::default();
        let verdicts = ["b1", "b1", "b2", "b3", "b4", "b4", "b5", "b2"].map(|boot| {
            count(&mut last, &boot.into());
            known(&last, &boot.into()).unwrap()
        });
        use Verdict::{Idle, Reboot};
        assert_eq!(verdicts, [Reboot, Reboot, Reboot, Reboot, Idle, Idle, Idle, Reboot]);
        assert_eq!((last.stray_boot_ids.len(), last.idle_boot_id.as_str()), (3, "b5"));
    }
}
