//! The events that wait to be merged.
//!
//! Machines are answered far more often than anybody looks at their boots. So whoever notes an event only leaves it here;
//! merging is woken once for many of them, and looks by itself from time to time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Event;

/// How many events may wait: those of a rack that is powered on at once.
pub(super) const MOST: usize = 8192;
/// How many are worth being merged at once: so few that nobody who asks for an address meanwhile notices.
const ENOUGH: usize = 256;

/// Events, in the order in which they were noted.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: Mutex<Vec<Event>>,
    enough: Notify,
}

impl Queue {
    /// Adds `event`, unless there is no room.
    pub(super) fn push(&self, event: Event) -> bool {
        let mut events = self.events();
        if events.len() >= MOST {
            return false;
        }
        events.push(event);
        if events.len() == ENOUGH {
            self.enough.notify_one();
        }
        true
    }

    /// Resolves once there are enough to be merged.
    pub(super) async fn enough(&self) {
        self.enough.notified().await;
    }

    /// Takes out what waits; `room` is what is taken in its place.
    pub(super) fn swap(&self, room: &mut Vec<Event>) {
        std::mem::swap(&mut *self.events(), room);
    }

    /// Takes out the first one.
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

    use super::super::{BootStep, BootSubject};
    use super::*;
    use crate::Mac;

    #[test]
    fn who_merges_is_woken_once_for_many() {
        let queue = Queue::default();
        let (who, what) = (BootSubject::UnknownClient(Mac([2; 6])), BootStep::Started);
        let event = Event { who, what, source: None, at: SystemTime::UNIX_EPOCH };
        let fill = |count: usize| (0..count).all(|_| queue.push(event.clone()));
        let woken = || queue.enough().now_or_never().is_some();
        assert!(fill(ENOUGH - 1) && !woken());
        assert!(fill(1) && woken());
        assert!(fill(7) && !woken());
        let mut taken = Vec::new();
        queue.swap(&mut taken);
        assert_eq!(taken.len(), ENOUGH + 7);
        assert!(fill(ENOUGH) && woken());
    }
}
