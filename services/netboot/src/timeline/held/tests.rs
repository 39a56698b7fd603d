//! Which boots are held, and in which order they are kept.
#![allow(clippy::unwrap_used)]

use super::super::{What, Who};
use super::*;
use crate::Mac;

/// `owner`'s machine was started; each such event is one of the same boot.
fn event(owner: &str, seconds: u64) -> Event {
    Event {
        who: Who::Machine(owner.into(), Mac([2; 6])),
        what: What::Started,
        source: None,
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds),
    }
}

/// A script: each is of a boot of its own.
fn script(owner: &str, seconds: u64) -> Event {
    let what = What::Script { kind: "worker", fact: "its workflow waits".into() };
    Event { what, ..event(owner, seconds) }
}

fn held(events: impl IntoIterator<Item = Event>) -> Held {
    let mut held = Held::default();
    for event in events {
        assert_eq!(held.take(event), 0);
    }
    held
}

fn ids(batch: &[Waiting]) -> Vec<String> {
    batch.iter().map(|waiting| waiting.growing.boot.id.clone()).collect()
}

fn owners(batch: &[Waiting]) -> Vec<&str> {
    batch.iter().map(|waiting| waiting.growing.owner.as_str()).collect()
}

#[test]
fn more_machines_than_are_held_cost_the_oldest_what_was_not_kept() {
    let mut held = Held::default();
    let mut lost = 0;
    for n in 0..3 * HELD as u64 {
        lost += held.take(event(&n.to_string(), n));
    }
    assert_eq!(held.waiting.len(), held.open.len(), "who is held no more does not wait");
    let left = held.batch(usize::MAX).len();
    assert_eq!(lost + left, 3 * HELD, "what is not held is said to be lost");
    assert!((2 * HELD - HELD / 4..=2 * HELD).contains(&left), "{left}");
}

#[test]
fn a_boot_that_grows_all_the_time_keeps_nobody_waiting() {
    let mut held = held([event("a", 0), event("b", 0), event("c", 0)]);
    for (n, owner) in ["a", "b", "c", "a"].into_iter().enumerate() {
        let batch = held.batch(1);
        assert_eq!(owners(&batch), [owner]);
        held.kept(batch);
        held.take(event("a", n as u64));
    }
}

#[test]
fn what_could_not_be_kept_is_tried_again_first_and_in_the_same_order() {
    let mut held = held([script("a", 0), event("b", 0), script("a", 1), event("c", 1)]);
    let batch = held.batch(3);
    assert_eq!(owners(&batch), ["a", "a", "b"], "one that ended, then those that wait");
    let tried = ids(&batch);
    held.put_back(batch);
    assert_eq!(held.take(event("b", 2)), 0);
    let batch = held.batch(9);
    assert_eq!(owners(&batch), ["a", "a", "b", "c"]);
    let again = ids(&batch);
    assert_eq!(again[..3], tried, "what was committed unheard of is not kept twice");
    assert!(
        again.iter().zip(owners(&batch)).all(|(id, owner)| id.starts_with(&format!("{owner}.")))
    );
    assert_eq!(batch[2].growing.boot.events[0].count, 2, "it went on growing");
    assert!(batch.iter().all(|waiting| waiting.fresh));
    held.kept(batch);
    assert!(held.batch(9).is_empty());
}

#[test]
fn one_that_was_kept_is_kept_again_under_the_same_id_when_it_grows() {
    let mut held = held([event("a", 0)]);
    let first = held.batch(9);
    let id = first[0].growing.boot.id.clone();
    held.kept(first);
    held.take(event("a", 1));
    let again = held.batch(9);
    assert_eq!((again[0].growing.boot.id.as_str(), again[0].fresh), (id.as_str(), false));
}

#[test]
fn what_is_kept_is_forgotten_once_it_cannot_grow() {
    let mut held = held([event("a", 0)]);
    let later = event("a", 0).at + OPEN;
    held.forget(later);
    let batch = held.batch(9);
    assert_eq!(batch.len(), 1, "it was not kept yet");
    held.kept(batch);
    held.forget(later);
    assert!(held.open.is_empty());
}
