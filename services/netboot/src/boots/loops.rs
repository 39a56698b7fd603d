//! Machines that boot again and again (netboot specification, section 13.1).

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// More scripts than this within [`SPAN`] are a loop.
const MOST: usize = 10;
const SPAN: Duration = Duration::from_secs(10 * 60);

/// When machines were given scripts, by hardware id: of machines that there are only, so it is bounded by the site's size.
#[derive(Debug, Default)]
pub struct Loops(Mutex<HashMap<String, VecDeque<SystemTime>>>);

impl Loops {
    /// Whether the machine, given one more at `now`, is in a loop.
    pub fn would_loop(&self, hardware: &str, now: SystemTime) -> bool {
        let all = self.all();
        let Some(given) = all.get(hardware) else { return false };
        given.iter().filter(|at| is_recent(**at, now)).count() >= MOST
    }

    /// Notes that the machine was given one.
    pub fn note(&self, hardware: &str, now: SystemTime) {
        let mut all = self.all();
        let Some(given) = all.get_mut(hardware) else {
            all.insert(hardware.to_owned(), VecDeque::from([now]));
            return;
        };
        given.retain(|at| is_recent(*at, now));
        given.push_back(now);
        if given.len() > MOST {
            given.pop_front();
        }
    }

    /// Forgets a machine.
    pub fn forget(&self, hardware: &str) {
        self.all().remove(hardware);
    }

    /// Forgets the machines that are not `there`.
    pub fn retain(&self, there: impl Fn(&str) -> bool) {
        self.all().retain(|hardware, _| there(hardware));
    }

    /// How many machines are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, VecDeque<SystemTime>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clock that was set back makes what was before forgotten, and nothing worse.
fn is_recent(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).is_ok_and(|since| since < SPAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eleventh_script_in_ten_minutes_is_a_loop_until_the_first_is_old() {
        let (loops, now) = (Loops::default(), SystemTime::UNIX_EPOCH);
        for n in 0..10 {
            assert!(!loops.would_loop("a", now + Duration::from_secs(n)));
            loops.note("a", now + Duration::from_secs(n));
        }
        assert!(loops.would_loop("a", now + Duration::from_secs(599)));
        assert!(!loops.would_loop("b", now + Duration::from_secs(599)));
        assert!(!loops.would_loop("a", now + Duration::from_secs(600)));
    }
}
