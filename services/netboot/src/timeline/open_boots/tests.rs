//! Boots in memory, and the order in which they are stored.
#![allow(clippy::unwrap_used)]

use tinwright::HardwareId;

use tinwright::netboot::v1::ScriptKind;

use super::super::BootStep;
use super::*;
use crate::Mac;
use crate::decision::Fact;
use tinwright::netboot::v1::BootEventKind as Kind;

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;

/// The machine with this number.
fn machine(number: u64) -> HardwareId {
    HardwareId::from_bytes(u128::from(number).to_be_bytes())
}

/// The machine with the number `owner` was started; each such event is one of the same boot.
fn event(owner: u64, seconds: u64) -> Event {
    Event {
        owner: BootOwner::Machine(machine(owner)),
        mac: Mac([2; 6]),
        step: BootStep::new(Kind::Started, ""),
        source: None,
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds),
    }
}

/// A script: each is of a boot of its own.
fn script(owner: u64, seconds: u64) -> Event {
    let what = BootStep::script(ScriptKind::Worker, Fact::WorkflowWaits);
    Event { step: what, ..event(owner, seconds) }
}

fn held(events: impl IntoIterator<Item = Event>) -> OpenBoots {
    let mut held = OpenBoots::default();
    for event in events {
        assert_eq!(held.add(event), 0);
    }
    held
}

fn ids(batch: &[OpenBoot]) -> Vec<String> {
    batch.iter().map(|waiting| waiting.record.id.clone()).collect()
}

/// The numbers of the machines whose boots are in `batch`.
fn owners(batch: &[OpenBoot]) -> Vec<u64> {
    let number = |waiting: &OpenBoot| match waiting.owner {
        BootOwner::Machine(id) => u128::from_be_bytes(id.to_bytes()) as u64,
        BootOwner::UnknownClient(_) => 0,
    };
    batch.iter().map(number).collect()
}

#[test]
fn above_the_maximum_the_oldest_boots_are_evicted_and_their_unstored_events_counted() {
    let mut held = OpenBoots::default();
    let mut lost = 0;
    for n in 0..3 * MAX_BOOTS as u64 {
        lost += held.add(event(n, n));
    }
    assert_eq!(held.waiting.len(), held.open.len(), "a boot that is not in memory does not wait");
    let left = held.batch(usize::MAX).len();
    let lost = usize::try_from(lost).unwrap();
    assert_eq!(lost + left, 3 * MAX_BOOTS, "events that are not in memory are counted as dropped");
    assert!((2 * MAX_BOOTS - MAX_BOOTS / 4..=2 * MAX_BOOTS).contains(&left), "{left}");
}

#[test]
fn a_boot_that_keeps_growing_does_not_delay_others() {
    let mut held = held([event(A, 0), event(B, 0), event(C, 0)]);
    for (n, owner) in [A, B, C, A].into_iter().enumerate() {
        let batch = held.batch(1);
        assert_eq!(owners(&batch), [owner]);
        held.stored(batch);
        held.add(event(A, n as u64));
    }
}

#[test]
fn boots_that_could_not_be_stored_are_retried_first_and_in_order() {
    let mut held = held([script(A, 0), event(B, 0), script(A, 1), event(C, 1)]);
    let batch = held.batch(3);
    assert_eq!(owners(&batch), [A, A, B], "one that ended, then those that wait");
    let tried = ids(&batch);
    held.requeue(batch);
    assert_eq!(held.add(event(B, 2)), 0);
    let batch = held.batch(9);
    assert_eq!(owners(&batch), [A, A, B, C]);
    let again = ids(&batch);
    assert_eq!(again[..3], tried, "a boot whose commit was not confirmed is not stored twice");
    assert!(
        again
            .iter()
            .zip(owners(&batch))
            .all(|(id, owner)| id.starts_with(&format!("{}.", machine(owner))))
    );
    assert_eq!(batch[2].record.events[0].count, 2, "it went on boot");
    assert!(batch.iter().all(|waiting| waiting.is_new));
    held.stored(batch);
    assert!(held.batch(9).is_empty());
}

#[test]
fn a_stored_boot_that_grows_is_stored_again_under_its_id() {
    let mut held = held([event(A, 0)]);
    let first = held.batch(9);
    let id = first[0].record.id.clone();
    held.stored(first);
    held.add(event(A, 1));
    let again = held.batch(9);
    assert_eq!((&again[0].record.id, again[0].is_new), (&id, false));
}

#[test]
fn a_stored_boot_is_evicted_once_it_cannot_grow() {
    let mut held = held([event(A, 0)]);
    let later = event(A, 0).at + OPEN_TIMEOUT;
    held.evict(later);
    let batch = held.batch(9);
    assert_eq!(batch.len(), 1, "it was not kept yet");
    held.stored(batch);
    held.evict(later);
    assert!(held.open.is_empty());
}
