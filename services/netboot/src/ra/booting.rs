//! The machines that boot: those whose iPXE was answered by DHCP lately.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::bounded_map::ExpiringMap;

use crate::Mac;

/// The time for which a machine counts as booting after DHCP answered it.
const BOOTING_TIME: Duration = Duration::from_secs(60);
/// The number of machines that are remembered.
const MAX_MACHINES: usize = 65_536;

/// The machines that boot. Clones share them.
#[derive(Clone, Debug)]
pub struct Booting(Arc<Mutex<ExpiringMap<Mac, ()>>>);

impl Default for Booting {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(ExpiringMap::new(MAX_MACHINES, BOOTING_TIME))))
    }
}

impl Booting {
    /// Records that DHCP answered iPXE at `mac`.
    pub fn record(&self, mac: Mac, now: Instant) {
        self.machines().insert(mac, (), now);
    }

    /// True if the machine at `mac` boots at `now`.
    pub fn is_booting(&self, mac: Mac, now: Instant) -> bool {
        self.machines().get(&mac, now).is_some()
    }

    fn machines(&self) -> MutexGuard<'_, ExpiringMap<Mac, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_boots_for_a_minute_after_its_reply_and_is_then_forgotten() {
        let (booting, now) = (Booting::default(), Instant::now());
        let mac = |n: u16| Mac([2, 0, 0, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        (0..2000).for_each(|n| booting.record(mac(n), now));
        assert!(booting.is_booting(mac(7), now + BOOTING_TIME - Duration::from_secs(1)));
        assert!(!booting.is_booting(mac(7), now + BOOTING_TIME));
        booting.record(mac(7), now + BOOTING_TIME);
        assert_eq!(booting.machines().len(), 1);
    }
}
