//! Boots in memory: those that may still grow, one a machine, and those that are not stored yet.
//!
//! ```text
//! event ─▶ open ◀─▶ open, waiting ─┐
//!                        │ the machine boots again, or too many do at once
//!                        ▼         ├─▶ a batch ─▶ stored: open again, or dropped
//!                  ended, waiting ─┘       └────▶ not stored: waits again
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::merge::BootBuilder;
use super::{BootOwner, Event};

/// Time in which a boot may still grow: an installed system phones home late.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// Boots in memory that are open, and that have ended: those of a site of ten thousand machines, in about 20 MB.
const MAX_BOOTS: usize = 16_384;

/// A boot that is to be stored.
#[derive(Debug)]
pub struct PendingBoot {
    /// The boot.
    pub boot: BootBuilder,
    /// True if it was never stored.
    pub is_new: bool,
    ended: bool,
}

/// A boot that may still grow.
#[derive(Debug)]
struct OpenBoot {
    boot: BootBuilder,
    is_new: bool,
    /// True if it has grown since it was stored: then it waits.
    grown: bool,
}

/// Boots in memory.
#[derive(Debug, Default)]
pub struct OpenBoots {
    open: HashMap<BootOwner, OpenBoot>,
    /// Owners of the open boots that wait, longest first. Some of these may no longer wait.
    waiting: VecDeque<BootOwner>,
    ended: VecDeque<PendingBoot>,
}

impl OpenBoots {
    /// Adds `event` to the boot that it belongs to. Returns the number of events that were dropped to make room.
    pub fn add(&mut self, event: Event) -> usize {
        let owner = event.subject.owner();
        let open = self.open.get_mut(&owner);
        if let Some(open) = open.filter(|open| !open.boot.ends_before(&event)) {
            open.boot.add(event);
            if !std::mem::replace(&mut open.grown, true) {
                self.waiting.push_back(owner);
            }
            return 0;
        }
        let old = self.open.remove(&owner);
        // An owner whose last boot waits is in the queue, and stays there.
        let queued = old.as_ref().is_some_and(|old| old.grown);
        let lost = match old {
            Some(old) => self.end(old),
            None => self.make_room(),
        };
        if !queued {
            self.waiting.push_back(owner);
        }
        let mut boot = BootBuilder::new(&event);
        boot.add(event);
        self.open.insert(owner, OpenBoot { boot, is_new: true, grown: true });
        lost
    }

    /// Takes out at most `most` boots to be stored: the ended ones, then those that have waited longest. They come back by
    /// [`OpenBoots::stored`] or [`OpenBoots::requeue`] before the next event is added.
    pub fn batch(&mut self, most: usize) -> Vec<PendingBoot> {
        let ended = self.ended.len().min(most);
        let mut batch: Vec<_> = self.ended.drain(..ended).collect();
        batch.iter_mut().for_each(|waiting| waiting.boot.assign_id());
        while batch.len() < most
            && let Some(owner) = self.waiting.pop_front()
        {
            let waits = self.open.remove(&owner);
            match waits {
                Some(OpenBoot { mut boot, is_new, grown: true }) => {
                    boot.assign_id();
                    batch.push(PendingBoot { boot, is_new, ended: false });
                }
                Some(rests) => drop(self.open.insert(owner, rests)),
                None => {}
            }
        }
        batch
    }

    /// Takes back boots that were stored: those that have not ended may grow again.
    pub fn stored(&mut self, batch: Vec<PendingBoot>) {
        for PendingBoot { boot, .. } in batch.into_iter().filter(|waiting| !waiting.ended) {
            self.open.insert(boot.owner, OpenBoot { boot, is_new: false, grown: false });
        }
    }

    /// Takes back boots that could not be stored: they are the first of the next batch.
    pub fn requeue(&mut self, batch: Vec<PendingBoot>) {
        for waiting in batch.into_iter().rev() {
            let PendingBoot { boot, is_new, ended } = waiting;
            if ended {
                self.ended.push_front(PendingBoot { boot, is_new, ended });
                continue;
            }
            let owner = boot.owner;
            self.waiting.push_front(owner);
            self.open.insert(owner, OpenBoot { boot, is_new, grown: true });
        }
    }

    /// Drops stored boots that can no longer grow at `now`.
    pub fn evict(&mut self, now: SystemTime) {
        self.open.retain(|_, open| {
            let since = now.duration_since(open.boot.last);
            open.grown || since.is_ok_and(|since| since < OPEN_TIMEOUT)
        });
    }

    /// Ends a boot. Returns the number of events that were dropped.
    fn end(&mut self, open: OpenBoot) -> usize {
        let OpenBoot { boot, is_new, grown } = open;
        match grown {
            true if self.ended.len() >= MAX_BOOTS => boot.events(),
            true => {
                self.ended.push_back(PendingBoot { boot, is_new, ended: true });
                0
            }
            false => 0,
        }
    }

    /// Ends the boots of the machines that were silent longest, if too many machines boot at once: an eighth of all, so that
    /// not every new boot has to scan all others.
    fn make_room(&mut self) -> usize {
        if self.open.len() < MAX_BOOTS {
            return 0;
        }
        let mut last: Vec<_> = self.open.values().map(|open| open.boot.last).collect();
        let (_, silent, _) = last.select_nth_unstable(MAX_BOOTS / 8);
        let silent = *silent;
        let ended: Vec<_> = self
            .open
            .extract_if(|_, open| open.boot.last <= silent)
            .map(|(_, open)| open)
            .collect();
        self.waiting.retain(|owner| self.open.contains_key(owner));
        ended.into_iter().map(|open| self.end(open)).sum()
    }
}

#[cfg(test)]
mod tests;
