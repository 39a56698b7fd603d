//! A small site under random events: what must hold whatever happens, in whatever order, however often.

#![allow(clippy::unwrap_used)]

mod site;

use proptest::prelude::*;
use site::{Site, any_move};
use workflow::lifecycle::{Outcome, State};

proptest! {
    #[test]
    fn the_rules_hold_after_every_event_and_everything_ends(moves in prop::collection::vec(any_move(), 0..120)) {
        let mut site = Site::new();
        for one in moves {
            site.play(&one);
            site.check();
        }
        for _ in 0..200 {
            site.work();
            site.check();
        }
        for run in &site.runs {
            let State::Ended { outcome, .. } = &run.workflow.state else { panic!("{run:?} does not end") };
            let touched = run.touched || *outcome != Outcome::Cancelled;
            prop_assert_eq!(run.posts, usize::from(touched), "{:?}", run);
        }
    }
}
