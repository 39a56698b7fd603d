//! Boots in memory: open boots, which still accept events (at most one per machine), and boots that are not stored yet.
//!
//! ```text
//! event ─▶ open ◀─▶ open, waiting ─┐
//!                        │ the machine boots again, or too many boots are open
//!                        ▼         ├─▶ a batch ─▶ stored: open again, or dropped
//!                  ended, waiting ─┘       └────▶ not stored: waits again
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::merge::OpenBoot;
use super::{BootOwner, Event};

/// A boot stays open for this time after its last event: an installed system phones home late.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// Maximum number of open boots, and of ended boots that wait: enough for a site of ten thousand machines, in about 40 MB.
const MAX_BOOTS: usize = 16_384;

/// Boots in memory.
#[derive(Debug, Default)]
pub struct OpenBoots {
    open: HashMap<BootOwner, OpenBoot>,
    /// Owners of the open boots that wait to be stored, oldest first. It may contain owners whose boot no longer waits.
    waiting: VecDeque<BootOwner>,
    ended: VecDeque<OpenBoot>,
}

impl OpenBoots {
    /// Adds `event` to the boot that it belongs to. Returns the number of events that were dropped to make room.
    pub fn add(&mut self, event: Event) -> u64 {
        let owner = event.owner;
        let open = self.open.get_mut(&owner);
        if let Some(open) = open.filter(|open| !open.ends_before(&event)) {
            open.add(event);
            if !std::mem::replace(&mut open.is_changed, true) {
                self.waiting.push_back(owner);
            }
            return 0;
        }
        let old = self.open.remove(&owner);
        // If the owner's last boot waits, the owner is already in the queue.
        let queued = old.as_ref().is_some_and(|old| old.is_changed);
        let lost = match old {
            Some(old) => self.end(old),
            None => self.make_room(),
        };
        if !queued {
            self.waiting.push_back(owner);
        }
        self.open.insert(owner, OpenBoot::new(event));
        lost
    }

    /// Removes and returns at most `max` boots to be stored: ended ones, then the longest waiting ones.
    /// Before the next event is added, the caller must pass them to [`OpenBoots::stored`] or [`OpenBoots::requeue`].
    pub fn batch(&mut self, max: usize) -> Vec<OpenBoot> {
        let ended = self.ended.len().min(max);
        let mut batch: Vec<_> = self.ended.drain(..ended).collect();
        while batch.len() < max
            && let Some(owner) = self.waiting.pop_front()
        {
            match self.open.remove(&owner) {
                Some(open) if open.is_changed => batch.push(open),
                Some(unchanged) => drop(self.open.insert(owner, unchanged)),
                None => {}
            }
        }
        batch.iter_mut().for_each(|open| open.assign_id());
        batch
    }

    /// Takes back stored boots. Boots that have not ended are open again.
    pub fn stored(&mut self, batch: Vec<OpenBoot>) {
        let growing = batch.into_iter().filter(|open| !open.has_ended);
        let stored = |open| OpenBoot { is_new: false, is_changed: false, ..open };
        self.open.extend(growing.map(|open| (open.owner, stored(open))));
    }

    /// Takes back boots that could not be stored. They come first in the next batch.
    pub fn requeue(&mut self, batch: Vec<OpenBoot>) {
        for open in batch.into_iter().rev() {
            if open.has_ended {
                self.ended.push_front(open);
            } else {
                self.waiting.push_front(open.owner);
                self.open.insert(open.owner, open);
            }
        }
    }

    /// Drops stored boots that have had no event for `OPEN_TIMEOUT` at `now`.
    pub fn evict(&mut self, now: SystemTime) {
        self.open.retain(|_, open| {
            let since = now.duration_since(open.last);
            open.is_changed || since.is_ok_and(|since| since < OPEN_TIMEOUT)
        });
    }

    /// Ends a boot. Returns the number of events that were dropped.
    fn end(&mut self, open: OpenBoot) -> u64 {
        match open.is_changed {
            true if self.ended.len() >= MAX_BOOTS => return open.record.events.len() as u64,
            true => self.ended.push_back(OpenBoot { has_ended: true, ..open }),
            false => {}
        }
        0
    }

    /// Ends the eighth of the open boots with the oldest last events if there are `MAX_BOOTS`. Ending many at once avoids a
    /// scan of all boots for each new one. Returns the number of events that were dropped.
    fn make_room(&mut self) -> u64 {
        if self.open.len() < MAX_BOOTS {
            return 0;
        }
        let mut last: Vec<_> = self.open.values().map(|open| open.last).collect();
        let (_, silent, _) = last.select_nth_unstable(MAX_BOOTS / 8);
        let silent = *silent;
        let ended: Vec<_> = self.open.extract_if(|_, open| open.last <= silent).collect();
        self.waiting.retain(|owner| self.open.contains_key(owner));
        ended.into_iter().map(|(_, open)| self.end(open)).sum()
    }
}

#[cfg(test)]
mod tests;
