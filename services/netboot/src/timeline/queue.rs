//! Events that wait to be merged.
//!
//! Events are recorded far more often than boots are read. So recording only appends an event to the queue; the recorder is
//! woken once for many events, and also polls the queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Event;

/// Maximum number of waiting events: enough for a rack that is powered on at once.
pub(super) const MAX_WAITING: usize = 8192;
/// The number of events that wakes the recorder: so few that merging them delays no DHCP reply.
const WAKE_THRESHOLD: usize = 256;

/// Recorded events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: Mutex<Vec<Event>>,
    /// Notified once there are enough events to merge.
    pub(super) enough: Notify,
}

impl Queue {
    /// Adds `event`. False if there is no room.
    pub(super) fn push(&self, event: Event) -> bool {
        let mut events = self.events();
        if events.len() >= MAX_WAITING {
            return false;
        }
        events.push(event);
        if events.len() == WAKE_THRESHOLD {
            self.enough.notify_one();
        }
        true
    }

    /// Takes out the waiting events, and leaves `empty` in their place.
    pub(super) fn swap(&self, empty: &mut Vec<Event>) {
        std::mem::swap(&mut *self.events(), empty);
    }

    /// Takes out the first event.
    #[cfg(test)]
    pub(crate) fn next(&self) -> Option<Event> {
        let mut events = self.events();
        if events.is_empty() { None } else { Some(events.remove(0)) }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use futures_util::FutureExt as _;

    use super::super::{BootOwner, BootStep};
    use super::*;
    use crate::Mac;
    use tinwright::netboot::v1::BootEventKind as Kind;

    #[test]
    fn merging_is_woken_once_for_many_events() {
        let queue = Queue::default();
        let (mac, step) = (Mac([2; 6]), BootStep::new(Kind::Started, ""));
        let owner = BootOwner::UnknownClient(mac);
        let event = Event { owner, mac, step, source: None, at: SystemTime::UNIX_EPOCH };
        let fill = |count: usize| (0..count).all(|_| queue.push(event.clone()));
        let woken = || queue.enough.notified().now_or_never().is_some();
        assert!(fill(WAKE_THRESHOLD - 1) && !woken());
        assert!(fill(1) && woken());
        assert!(fill(7) && !woken());
        let mut taken = Vec::new();
        queue.swap(&mut taken);
        assert_eq!(taken.len(), WAKE_THRESHOLD + 7);
        assert!(fill(WAKE_THRESHOLD) && woken());
    }
}
