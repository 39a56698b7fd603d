//! Machines that boot again and again (netboot specification, section 13.1).

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tinwright::HardwareId;

/// More scripts than this within [`SPAN`] are a loop.
const MOST: usize = 10;
const SPAN: Duration = Duration::from_secs(10 * 60);

/// When machines were given their last scripts: of machines that there are only, so it is bounded by the site's size.
#[derive(Debug, Default)]
pub struct BootLoops(Mutex<HashMap<HardwareId, VecDeque<SystemTime>>>);

impl BootLoops {
    /// Whether the machine, given one more at `now`, is in a loop.
    pub fn would_loop(&self, machine: HardwareId, now: SystemTime) -> bool {
        let all = self.all();
        let Some(given) = all.get(&machine) else { return false };
        given.iter().filter(|at| is_recent(**at, now)).count() >= MOST
    }

    /// Notes that the machine was given one.
    pub fn note(&self, machine: HardwareId, now: SystemTime) {
        let mut all = self.all();
        let given = all.entry(machine).or_default();
        if given.len() >= MOST {
            given.pop_front();
        }
        given.push_back(now);
    }

    /// Forgets a machine.
    pub fn forget(&self, machine: HardwareId) {
        self.all().remove(&machine);
    }

    /// Forgets the machines that are not `there`.
    pub fn retain(&self, there: impl Fn(HardwareId) -> bool) {
        self.all().retain(|machine, _| there(*machine));
    }

    /// How many machines are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<HardwareId, VecDeque<SystemTime>>> {
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
        let (loops, now) = (BootLoops::default(), SystemTime::UNIX_EPOCH);
        let [a, b] = [HardwareId::new(), HardwareId::new()];
        for n in 0..10 {
            assert!(!loops.would_loop(a, now + Duration::from_secs(n)));
            loops.note(a, now + Duration::from_secs(n));
        }
        assert!(loops.would_loop(a, now + Duration::from_secs(599)));
        assert!(!loops.would_loop(b, now + Duration::from_secs(599)));
        assert!(!loops.would_loop(a, now + Duration::from_secs(600)));
    }
}
