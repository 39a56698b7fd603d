//! Which instance is looked at when. Pure: the loop around it has the clock.
//!
//! An instance is looked at by one task at a time; who asks meanwhile is remembered. Failures are paused for, longer each
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The pause after a failure; doubled up to [`LONGEST`].
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after failures.
const LONGEST: Duration = Duration::from_secs(60);

/// What is to happen to an instance that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It was moved on: look again at once.
    Again,
    /// Somebody else's turn: look when something is heard of it, but after this time at the latest.
    Wait(Duration),
    /// Nothing, until it changes.
    Idle,
}

/// Looking at it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

/// Who is due, and who is being looked at.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BTreeMap<String, Entry>,
    due: BTreeSet<(Instant, String)>,
}

#[derive(Debug, Default)]
struct Entry {
    /// When it is due; nothing while it is being looked at.
    at: Option<Instant>,
    /// Somebody asked while it was being looked at.
    asked: bool,
    failures: u32,
}

impl Agenda {
    /// `id` has to be looked at from `at` on, if it is not due before.
    pub(super) fn ask(&mut self, id: &str, at: Instant) {
        let Some(entry) = self.entries.get_mut(id) else {
            return self.plan(id, at, 0);
        };
        match entry.at {
            None => entry.asked = true,
            Some(due) if due <= at => {}
            Some(due) => {
                let failures = entry.failures;
                self.due.remove(&(due, id.to_owned()));
                self.plan(id, at, failures);
            }
        }
    }

    /// One that is due at `now`, to be looked at by the caller.
    pub(super) fn take(&mut self, now: Instant) -> Option<String> {
        let first = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.due.remove(&first);
        let entry = self.entries.get_mut(&first.1)?;
        (entry.at, entry.asked) = (None, false);
        Some(first.1)
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// `id` was looked at.
    pub(super) fn done(&mut self, id: &str, outcome: Result<Then, Failed>, now: Instant) {
        let Some(entry) = self.entries.remove(id) else { return };
        let (pause, failures) = match outcome {
            Ok(Then::Again) => (Some(Duration::ZERO), 0),
            Ok(_) if entry.asked => (Some(Duration::ZERO), 0),
            Ok(Then::Wait(pause)) => (Some(pause), 0),
            Ok(Then::Idle) => (None, 0),
            // What was asked meanwhile would fail as well: it waits with the rest.
            Err(Failed) => (Some(after(entry.failures)), entry.failures.saturating_add(1)),
        };
        if let Some(pause) = pause {
            self.plan(id, now + pause, failures);
        }
    }

    fn plan(&mut self, id: &str, at: Instant, failures: u32) {
        self.due.insert((at, id.to_owned()));
        self.entries.insert(id.to_owned(), Entry { at: Some(at), asked: false, failures });
    }
}

/// The pause after so many failures before this one.
fn after(failures: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_is_looked_at_by_one_task_and_again_when_asked_meanwhile() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        agenda.ask("a", now);
        assert_eq!(agenda.take(now).as_deref(), Some("a"));
        agenda.ask("a", now);
        assert_eq!(agenda.take(now), None);
        agenda.done("a", Ok(Then::Idle), now);
        assert_eq!(agenda.take(now).as_deref(), Some("a"));
        agenda.done("a", Ok(Then::Idle), now);
        assert_eq!((agenda.take(now), agenda.next()), (None, None));
    }

    #[test]
    fn who_waits_is_looked_at_when_heard_of_or_in_time() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        agenda.ask("a", now);
        agenda.take(now);
        agenda.done("a", Ok(Then::Wait(9 * SECOND)), now);
        assert_eq!((agenda.take(now), agenda.next()), (None, Some(now + 9 * SECOND)));
        agenda.ask("a", now + SECOND);
        assert_eq!(agenda.next(), Some(now + SECOND));
        agenda.ask("a", now + 5 * SECOND);
        assert_eq!(agenda.next(), Some(now + SECOND), "later than due changes nothing");
    }

    #[test]
    fn failures_are_paused_for_longer_each_time_and_then_forgotten() {
        let (mut agenda, mut now) = (Agenda::default(), Instant::now());
        agenda.ask("a", now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(agenda.take(now).as_deref(), Some("a"));
            agenda.done("a", Err(Failed), now);
            let next = agenda.next().unwrap();
            pauses.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        agenda.take(now);
        agenda.done("a", Ok(Then::Again), now);
        agenda.take(now);
        agenda.done("a", Err(Failed), now);
        assert_eq!(agenda.next(), Some(now + SECOND));
    }
}
