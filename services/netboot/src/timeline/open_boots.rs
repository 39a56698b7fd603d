//! The boots that are held: those that may still grow, one a machine, and those that have yet to be kept.
//!
//! ```text
//! event ─▶ open ◀─▶ open, waiting ─┐
//!                        │ the machine boots again, or too many do at once
//!                        ▼         ├─▶ a batch ─▶ kept: open again, or let go
//!                  ended, waiting ─┘       └────▶ not kept: waits again
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::merge::BootBuilder;
use super::{BootOwner, Event};

/// How long a boot may still grow: an installed system calls home late.
const OPEN: Duration = Duration::from_secs(2 * 60 * 60);
/// How many boots are held open at most, and how many that have ended: those of a site of ten thousand machines, in about
/// 20 MB.
const HELD: usize = 16_384;

/// A boot on its way to being kept.
#[derive(Debug)]
pub struct PendingBoot {
    /// As it is to be kept.
    pub growing: BootBuilder,
    /// Whether it was never kept.
    pub fresh: bool,
    ended: bool,
}

/// A boot that may still grow.
#[derive(Debug)]
struct Open {
    growing: BootBuilder,
    fresh: bool,
    /// Whether it has grown since it was kept: then it waits.
    grown: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct OpenBoots {
    open: HashMap<BootOwner, Open>,
    /// The owners of the open ones that wait, longest first. Some of them may wait no more.
    waiting: VecDeque<BootOwner>,
    ended: VecDeque<PendingBoot>,
}

impl OpenBoots {
    /// Takes `event` into the boot it belongs to. Answers how many events were given up to make room.
    pub fn take(&mut self, event: Event) -> usize {
        let owner = event.who.owner();
        let open = self.open.get_mut(&owner);
        if let Some(open) = open.filter(|open| !open.growing.ends_before(&event)) {
            open.growing.take(event);
            if !std::mem::replace(&mut open.grown, true) {
                self.waiting.push_back(owner);
            }
            return 0;
        }
        let old = self.open.remove(&owner);
        // Whose last boot waits is in the queue, and stays there.
        let queued = old.as_ref().is_some_and(|old| old.grown);
        let lost = match old {
            Some(old) => self.end(old),
            None => self.make_room(),
        };
        if !queued {
            self.waiting.push_back(owner);
        }
        let mut growing = BootBuilder::new(&event);
        growing.take(event);
        self.open.insert(owner, Open { growing, fresh: true, grown: true });
        lost
    }

    /// Takes out at most `most` boots to be kept: the ended ones, then those that have waited longest. They come back by
    /// [`Held::kept`] or [`Held::put_back`] before the next event is taken.
    pub fn batch(&mut self, most: usize) -> Vec<PendingBoot> {
        let ended = self.ended.len().min(most);
        let mut batch: Vec<_> = self.ended.drain(..ended).collect();
        batch.iter_mut().for_each(|waiting| waiting.growing.name());
        while batch.len() < most
            && let Some(owner) = self.waiting.pop_front()
        {
            let waits = self.open.remove(&owner);
            match waits {
                Some(Open { mut growing, fresh, grown: true }) => {
                    growing.name();
                    batch.push(PendingBoot { growing, fresh, ended: false });
                }
                Some(rests) => drop(self.open.insert(owner, rests)),
                None => {}
            }
        }
        batch
    }

    /// These are kept: those that have not ended may grow again.
    pub fn kept(&mut self, batch: Vec<PendingBoot>) {
        for PendingBoot { growing, .. } in batch.into_iter().filter(|waiting| !waiting.ended) {
            self.open.insert(growing.owner, Open { growing, fresh: false, grown: false });
        }
    }

    /// These could not be kept: they are the first to be tried again.
    pub fn requeue(&mut self, batch: Vec<PendingBoot>) {
        for waiting in batch.into_iter().rev() {
            let PendingBoot { growing, fresh, ended } = waiting;
            if ended {
                self.ended.push_front(PendingBoot { growing, fresh, ended });
                continue;
            }
            let owner = growing.owner;
            self.waiting.push_front(owner);
            self.open.insert(owner, Open { growing, fresh, grown: true });
        }
    }

    /// Lets go of what is kept and can no longer grow at `now`.
    pub fn forget(&mut self, now: SystemTime) {
        self.open.retain(|_, open| {
            let since = now.duration_since(open.growing.last);
            open.grown || since.is_ok_and(|since| since < OPEN)
        });
    }

    /// Answers how many events were given up.
    fn end(&mut self, open: Open) -> usize {
        let Open { growing, fresh, grown } = open;
        match grown {
            true if self.ended.len() >= HELD => growing.events(),
            true => {
                self.ended.push_back(PendingBoot { growing, fresh, ended: true });
                0
            }
            false => 0,
        }
    }

    /// Where too many machines boot at once, those that were silent longest have their boots ended: an eighth of all, so that
    /// not every new boot has to look at all the others.
    fn make_room(&mut self) -> usize {
        if self.open.len() < HELD {
            return 0;
        }
        let mut last: Vec<_> = self.open.values().map(|open| open.growing.last).collect();
        let (_, silent, _) = last.select_nth_unstable(HELD / 8);
        let silent = *silent;
        let ended: Vec<_> = self
            .open
            .extract_if(|_, open| open.growing.last <= silent)
            .map(|(_, open)| open)
            .collect();
        self.waiting.retain(|owner| self.open.contains_key(owner));
        ended.into_iter().map(|open| self.end(open)).sum()
    }
}

#[cfg(test)]
mod tests;
