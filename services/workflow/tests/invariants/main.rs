//! Invariants of workflows under random events, in any order and number.

#![allow(clippy::unwrap_used)]

mod site;

use proptest::prelude::*;
use site::{Presence, Site, any_move};
use workflow::lifecycle::{State, WorkflowOutcome};

proptest! {
    #[test]
    fn the_invariants_hold_after_every_event_and_every_workflow_ends(
        moves in prop::collection::vec(any_move(), 0..120),
        workers in prop::sample::select(vec![Presence::Everywhere, Presence::BootedByHand]),
    ) {
        let mut site = Site::new();
        for event in moves {
            site.perform(&event);
            site.check();
        }
        for _ in 0..200 {
            site.work(workers);
            site.check();
        }
        for run in &site.runs {
            let State::Ended { outcome, .. } = &run.workflow.state else { panic!("workflow has not ended: {run:?}") };
            let has_begun = run.has_begun || !matches!(outcome, WorkflowOutcome::Cancelled { .. });
            let has_post = has_begun && run.workflow.plan.has_post();
            prop_assert_eq!(run.posts, usize::from(has_post), "{:?}", run);
        }
    }
}
