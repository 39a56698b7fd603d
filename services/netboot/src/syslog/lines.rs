//! The lines that are kept: of each machine the last 2000, of addresses that nobody knows the last 1000 in all; and of all
//! machines together no more than 64 MiB, the machine that was silent longest being forgotten first.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use super::message::Message;

/// Lines of one machine.
const OF_ONE: usize = 2000;
/// Lines of nobody known.
const OF_UNKNOWN: usize = 1000;
/// Octets of all.
const OF_ALL: usize = 64 * 1024 * 1024;
/// What a line takes beside its texts, about.
const LINE: usize = 200;

/// A line that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Later lines have higher numbers, across restarts, too.
    pub sequence: u64,
    /// When it came.
    pub received: SystemTime,
    /// Where from.
    pub source: IpAddr,
    /// What it says.
    pub message: Message,
}

/// The lines. Whoever follows them is told when there is a new one.
#[derive(Debug)]
pub struct Lines {
    kept: Mutex<Kept>,
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept {
    /// By the machine's id; the empty one has those of nobody known.
    rings: HashMap<String, VecDeque<Line>>,
    size: usize,
    next: u64,
}

impl Lines {
    /// None yet; numbers begin with the microseconds of `now`.
    pub fn new(now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let next = u64::try_from(since.as_micros()).unwrap_or(0);
        let kept = Kept { rings: HashMap::new(), size: 0, next };
        Self { kept: Mutex::new(kept), latest: watch::Sender::new(next) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what `source` said at `received`: for the machine that goes by `machine`, if one is known.
    pub fn keep(
        &self,
        machine: Option<&str>,
        source: IpAddr,
        message: Message,
        received: SystemTime,
    ) {
        let mut kept = self.kept();
        let sequence = kept.next;
        kept.next += 1;
        kept.put(machine.unwrap_or_default(), Line { sequence, received, source, message });
        drop(kept);
        self.latest.send_replace(sequence);
    }

    /// The lines of `machine` (empty: of nobody known) after the number `after`: the last `most` of them.
    pub fn after(&self, machine: &str, after: u64, most: usize) -> Vec<Line> {
        let kept = self.kept();
        let Some(ring) = kept.rings.get(machine) else { return Vec::new() };
        let first = ring.partition_point(|line| line.sequence <= after);
        let first = first.max(ring.len().saturating_sub(most));
        ring.iter().skip(first).cloned().collect()
    }

    /// Tells of every new line, whosever it is.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

impl Kept {
    fn put(&mut self, machine: &str, line: Line) {
        let most = if machine.is_empty() { OF_UNKNOWN } else { OF_ONE };
        self.size += size(&line);
        let ring = match self.rings.get_mut(machine) {
            Some(ring) => ring,
            None => self.rings.entry(machine.to_owned()).or_default(),
        };
        ring.push_back(line);
        if ring.len() > most {
            self.size -= ring.pop_front().as_ref().map_or(0, size);
        }
        while self.size > OF_ALL {
            self.forget_some();
        }
    }

    /// A machine's lines, or the oldest where there is only one machine.
    fn forget_some(&mut self) {
        if self.rings.len() == 1 {
            let old = self.rings.values_mut().find_map(VecDeque::pop_front);
            self.size -= old.as_ref().map_or(0, size);
            return;
        }
        let last = |ring: &VecDeque<Line>| ring.back().map_or(0, |line| line.sequence);
        let silent = self.rings.iter().min_by_key(|(_, ring)| last(ring));
        let Some(machine) = silent.map(|(machine, _)| machine.clone()) else { return };
        let gone = self.rings.remove(&machine).unwrap_or_default();
        self.size -= gone.iter().map(size).sum::<usize>();
    }
}

fn size(line: &Line) -> usize {
    let Message { hostname, app, process, text, .. } = &line.message;
    LINE + hostname.len() + app.len() + process.len() + text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn said(lines: &Lines, machine: Option<&str>, text: &str) {
        let message = Message::parse(text.as_bytes());
        lines.keep(machine, [192, 0, 2, 1].into(), message, SystemTime::now());
    }

    #[test]
    fn the_latest_lines_of_each_are_kept_and_read_on_from_any_of_them() {
        let lines = Lines::new(SystemTime::UNIX_EPOCH);
        for n in 0..2500 {
            said(&lines, Some("a"), &n.to_string());
            said(&lines, None, &n.to_string());
        }
        let (known, unknown) = (lines.after("a", 0, 9999), lines.after("", 0, 9999));
        assert_eq!((known.len(), unknown.len()), (2000, 1000));
        assert_eq!(
            (known[0].message.text.as_str(), unknown[0].message.text.as_str()),
            ("500", "1500")
        );
        let last = known.last().unwrap().sequence;
        assert!(lines.after("a", last, 9999).is_empty());
        assert_eq!(lines.after("a", last - 4, 9999).len(), 2);
        assert_eq!(lines.after("a", 0, 3).len(), 3);
        assert!(lines.after("b", 0, 9).is_empty());
    }

    #[test]
    fn the_machine_that_was_silent_longest_makes_room() {
        let lines = Lines::new(SystemTime::UNIX_EPOCH);
        let long = "x".repeat(8000);
        for machine in 0..6 {
            for _ in 0..OF_ONE {
                said(&lines, Some(&machine.to_string()), &long);
            }
        }
        assert!(lines.after("0", 0, 9).is_empty());
        assert_eq!(lines.after("5", 0, 9999).len(), OF_ONE);
        assert!(lines.kept().size <= OF_ALL);
    }

    #[test]
    fn one_machine_alone_has_no_more_than_all_together() {
        let lines = Lines::new(SystemTime::UNIX_EPOCH);
        let long = "\x1b".repeat(8000);
        (0..OF_ONE).for_each(|_| said(&lines, Some("a"), &long));
        let kept = lines.after("a", 0, 9999);
        let octets: usize = kept.iter().map(|line| line.message.text.capacity()).sum();
        assert!(octets <= OF_ALL && octets > OF_ALL / 2, "{octets}");
        assert_eq!(kept.last().unwrap().message.text.len(), 6 * 8000);
    }

    #[test]
    fn numbers_go_on_after_a_restart() {
        let now = SystemTime::now();
        let first = Lines::new(now);
        said(&first, Some("a"), "one");
        let second = Lines::new(now + std::time::Duration::from_secs(1));
        said(&second, Some("a"), "two");
        let after = first.after("a", 0, 9)[0].sequence;
        assert_eq!(second.after("a", after, 9).len(), 1);
    }
}
