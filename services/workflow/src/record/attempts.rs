//! The history of an action's attempts. It is for people: no decision depends on it.
//!
//! An attempt ends by its worker's report, or without one: the machine rebooted, the worker fell silent, its time was over.
//! A report that arrives after that is late. The first one for each attempt is recorded, and has no effect.

use tinwright::workflow::v1 as pb;

/// The number of earlier leases, and of late results, in an action's record.
pub const MAX_HISTORY: usize = 5;
/// The most bytes of a late result's reason.
pub const MAX_LATE_REASON_BYTES: usize = 256;

/// Moves the lease of the latest attempt to the earlier ones.
pub(super) fn archive_lease(action: &mut pb::Action) {
    action.past_leases.extend(action.lease.take());
    remove_oldest(&mut action.past_leases);
}

/// Records `result`, if it is the first report on an attempt that ended without one. Sets its attempt number.
pub fn record_late_result(workflow: &mut pb::Workflow, result: pb::LateResult) {
    let matches = |lease: &&pb::Lease| lease.id == result.lease_id && !lease.reported;
    for action in &mut workflow.actions {
        let Some(lease) = action.past_leases.iter().chain(&action.lease).find(matches) else {
            continue;
        };
        if action.late_results.iter().all(|earlier| earlier.lease_id != result.lease_id) {
            let mut reason = result.reason;
            reason.truncate(reason.floor_char_boundary(MAX_LATE_REASON_BYTES));
            let attempt = lease.attempt;
            action.late_results.push(pb::LateResult { attempt, reason, ..result });
            remove_oldest(&mut action.late_results);
        }
        return;
    }
}

fn remove_oldest<T>(history: &mut Vec<T>) {
    history.drain(..history.len().saturating_sub(MAX_HISTORY));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: usize) -> pb::Lease {
        pb::Lease { id: format!("l{id}"), attempt: 7, ..Default::default() }
    }

    fn result(id: usize, reason: &str) -> pb::LateResult {
        let state = pb::ActionState::Success.into();
        pb::LateResult {
            lease_id: format!("l{id}"),
            reason: reason.into(),
            state,
            ..Default::default()
        }
    }

    /// A workflow with one action and attempts under these leases.
    fn with_attempts(ids: std::ops::Range<usize>) -> pb::Workflow {
        let mut action = pb::Action::default();
        for id in ids {
            archive_lease(&mut action);
            action.lease = Some(lease(id));
        }
        pb::Workflow { actions: vec![action], ..Default::default() }
    }

    #[test]
    fn the_first_late_report_of_each_attempt_is_recorded() {
        let mut workflow = with_attempts(0..2);
        for (id, reason) in [(0, "first"), (0, "second"), (1, "present"), (9, "unknown lease")] {
            record_late_result(&mut workflow, result(id, reason));
        }
        let late = &workflow.actions[0].late_results;
        let recorded: Vec<_> = late.iter().map(|it| (it.attempt, it.reason.as_str())).collect();
        assert_eq!(recorded, [(7, "first"), (7, "present")]);
    }

    #[test]
    fn a_repeated_report_is_not_late() {
        let mut workflow = with_attempts(0..1);
        workflow.actions[0].lease.as_mut().unwrap().reported = true;
        archive_lease(&mut workflow.actions[0]);
        record_late_result(&mut workflow, result(0, "again"));
        assert!(workflow.actions[0].late_results.is_empty());
    }

    #[test]
    fn five_attempts_are_recorded_and_long_reasons_are_cut() {
        let mut workflow = with_attempts(0..1);
        for id in 1..50 {
            record_late_result(&mut workflow, result(id - 1, &"é".repeat(300)));
            archive_lease(&mut workflow.actions[0]);
            workflow.actions[0].lease = Some(lease(id));
        }
        let action = &workflow.actions[0];
        let ids: Vec<_> = action.past_leases.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["l44", "l45", "l46", "l47", "l48"]);
        assert_eq!((action.late_results.len(), action.late_results[0].reason.len()), (5, 256));
        record_late_result(&mut workflow, result(3, "forgotten"));
        assert_eq!(workflow.actions[0].late_results.len(), 5);
    }
}
