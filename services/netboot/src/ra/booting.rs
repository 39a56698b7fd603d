//! Who is booting: whose iPXE was answered by DHCP a moment ago.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Mac;

/// How long a machine counts as booting after DHCP answered it.
const BOOTING: Duration = Duration::from_secs(60);
/// From how many on those are looked for that no longer boot.
const MANY: usize = 1024;

/// How often that is looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The machines that boot. Cheap to share.
#[derive(Clone, Debug, Default)]
pub struct Booting(Arc<Mutex<Machines>>);

#[derive(Debug, Default)]
struct Machines {
    answered: HashMap<Mac, Instant>,
    swept: Option<Instant>,
}

impl Booting {
    /// DHCP answered iPXE at `mac` at `now`.
    pub fn answered(&self, mac: Mac, now: Instant) {
        let mut machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = machines.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP);
        if quiet && machines.answered.len() >= MANY {
            machines.swept = Some(now);
            machines.answered.retain(|_, at| is_fresh(*at, now));
        }
        machines.answered.insert(mac, now);
    }

    /// Whether the machine at `mac` boots at `now`.
    pub fn is_booting(&self, mac: Mac, now: Instant) -> bool {
        let machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        machines.answered.get(&mac).is_some_and(|at| is_fresh(*at, now))
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < BOOTING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_boots_for_a_minute_after_its_answer_and_is_then_forgotten() {
        let (booting, now) = (Booting::default(), Instant::now());
        let mac = |n: u16| Mac([2, 0, 0, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        (0..2000).for_each(|n| booting.answered(mac(n), now));
        assert!(booting.is_booting(mac(7), now + BOOTING - Duration::from_secs(1)));
        assert!(!booting.is_booting(mac(7), now + BOOTING));
        booting.answered(mac(7), now + BOOTING);
        assert_eq!(booting.0.lock().expect("whole").answered.len(), 1);
    }
}
