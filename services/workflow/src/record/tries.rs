//! What is remembered of an action's earlier tries. These are facts for people: they decide nothing.
//!
//! A try ends by its worker's word, which settles its lease, or without it: the machine rebooted, the worker fell silent,
//! time was up. What a worker says after that is superseded: kept, the first word of each try, and without effect.

use tinwright::workflow::v1 as pb;

/// How many earlier leases, and how many late results, an action remembers.
pub const REMEMBERED: usize = 5;
/// The most of a late result's reason that is kept, in bytes.
pub const REASON: usize = 256;

/// The present try's lease becomes an earlier one: another is to take its place.
pub(super) fn retire(action: &mut pb::Action) {
    action.past_leases.extend(action.lease.take());
    forget(&mut action.past_leases);
}

/// The try that `action` is or was under has ended by its worker's word.
pub fn settle(action: &mut pb::Action) {
    if let Some(lease) = &mut action.lease {
        lease.settled = true;
    }
}

/// Remembers `result`, if it is the first word on a try that ended without one. Of which try that was is filled in.
pub fn late(workflow: &mut pb::Workflow, result: pb::LateResult) {
    let under = |lease: &&pb::Lease| lease.id == result.lease_id && !lease.settled;
    for action in &mut workflow.actions {
        let Some(lease) = action.past_leases.iter().chain(&action.lease).find(under) else {
            continue;
        };
        if action.late_results.iter().all(|known| known.lease_id != result.lease_id) {
            let mut reason = result.reason;
            reason.truncate(reason.floor_char_boundary(REASON));
            let attempt = lease.attempt;
            action.late_results.push(pb::LateResult { attempt, reason, ..result });
            forget(&mut action.late_results);
        }
        return;
    }
}

/// The oldest go.
fn forget<T>(all: &mut Vec<T>) {
    all.drain(..all.len().saturating_sub(REMEMBERED));
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

    /// A workflow whose only action had these tries.
    fn tried(ids: std::ops::Range<usize>) -> pb::Workflow {
        let mut action = pb::Action::default();
        for id in ids {
            retire(&mut action);
            action.lease = Some(lease(id));
        }
        pb::Workflow { actions: vec![action], ..Default::default() }
    }

    #[test]
    fn the_first_word_on_a_try_that_ended_without_one_is_kept() {
        let mut workflow = tried(0..2);
        for (id, reason) in [(0, "first"), (0, "second"), (1, "present"), (9, "nobody's")] {
            late(&mut workflow, result(id, reason));
        }
        let kept = &workflow.actions[0].late_results;
        let told: Vec<_> = kept.iter().map(|it| (it.attempt, it.reason.as_str())).collect();
        assert_eq!(told, [(7, "first"), (7, "present")]);
    }

    #[test]
    fn what_a_worker_says_again_of_a_try_it_settled_is_not_late() {
        let mut workflow = tried(0..1);
        settle(&mut workflow.actions[0]);
        retire(&mut workflow.actions[0]);
        late(&mut workflow, result(0, "again"));
        assert!(workflow.actions[0].late_results.is_empty());
    }

    #[test]
    fn however_many_tries_there_were_five_are_remembered_and_reasons_cut() {
        let mut workflow = tried(0..1);
        for id in 1..50 {
            late(&mut workflow, result(id - 1, &"é".repeat(300)));
            retire(&mut workflow.actions[0]);
            workflow.actions[0].lease = Some(lease(id));
        }
        let action = &workflow.actions[0];
        let ids: Vec<_> = action.past_leases.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["l44", "l45", "l46", "l47", "l48"]);
        assert_eq!((action.late_results.len(), action.late_results[0].reason.len()), (5, 256));
        late(&mut workflow, result(3, "forgotten"));
        assert_eq!(workflow.actions[0].late_results.len(), 5);
    }
}
