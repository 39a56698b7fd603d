//! Machines that boot again and again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tinwright::HardwareId;

/// Scripts within [`WINDOW`] above which a machine is in a boot loop.
const MAX_SCRIPTS: usize = 10;
const WINDOW: Duration = Duration::from_secs(10 * 60);

/// Times at which machines were given their last scripts. Bounded by the number of records: deleted machines are evicted.
#[derive(Debug, Default)]
pub struct BootLoops(Mutex<HashMap<HardwareId, VecDeque<SystemTime>>>);

impl BootLoops {
    /// True if the machine, given one more script at `now`, is in a loop.
    pub fn would_loop(&self, machine: HardwareId, now: SystemTime) -> bool {
        let all = self.all();
        let Some(times) = all.get(&machine) else { return false };
        times.iter().filter(|at| is_recent(**at, now)).count() >= MAX_SCRIPTS
    }

    /// Records that the machine was given a script.
    pub fn record(&self, machine: HardwareId, now: SystemTime) {
        let mut all = self.all();
        let times = all.entry(machine).or_default();
        if times.len() >= MAX_SCRIPTS {
            times.pop_front();
        }
        times.push_back(now);
    }

    /// Evicts a machine.
    pub fn evict(&self, machine: HardwareId) {
        self.all().remove(&machine);
    }

    /// Evicts the machines that do not `exist`.
    pub fn retain(&self, exist: impl Fn(HardwareId) -> bool) {
        self.all().retain(|machine, _| exist(*machine));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<HardwareId, VecDeque<SystemTime>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clock that was set back makes earlier scripts not count, and nothing worse.
fn is_recent(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).is_ok_and(|since| since < WINDOW)
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
            loops.record(a, now + Duration::from_secs(n));
        }
        assert!(loops.would_loop(a, now + Duration::from_secs(599)));
        assert!(!loops.would_loop(b, now + Duration::from_secs(599)));
        assert!(!loops.would_loop(a, now + Duration::from_secs(600)));
    }
}
