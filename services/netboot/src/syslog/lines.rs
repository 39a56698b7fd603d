//! Syslog lines in memory: the last 2000 of each machine, and the last 1000 in all from addresses of no machine. The total size
//! is at most 64 MiB; the lines of the machine whose last line is oldest are evicted first.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use syslog::Message;
use tokio::sync::watch;

/// The number of lines that are stored of one machine.
const MAX_PER_MACHINE: usize = 2000;
/// The number of lines that are stored from addresses of no machine.
const MAX_UNKNOWN: usize = 1000;
/// The total size of all lines.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// The approximate size of a line without its texts.
const LINE_OVERHEAD_BYTES: usize = 200;

/// A received line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The sequence number. Later lines have higher numbers, also after a restart.
    pub sequence: u64,
    /// The time of receipt.
    pub received: SystemTime,
    /// The address of the sender.
    pub source: IpAddr,
    /// The message.
    pub message: Message,
}

/// Stored lines. Each new line wakes the subscribers of `latest`.
#[derive(Debug)]
pub struct Lines {
    stored: Mutex<StoredLines>,
    /// The sequence of the latest line of any machine.
    pub latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct StoredLines {
    /// The lines by the id of the machine; the empty id is for addresses of no machine.
    rings: HashMap<String, VecDeque<Line>>,
    size: usize,
    next: u64,
}

impl Lines {
    /// Creates a buffer without lines. Sequence numbers begin with the microseconds of `now`.
    pub fn new(now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let next = u64::try_from(since.as_micros()).unwrap_or(0);
        let stored = StoredLines { rings: HashMap::new(), size: 0, next };
        Self { stored: Mutex::new(stored), latest: watch::Sender::new(next) }
    }

    fn state(&self) -> MutexGuard<'_, StoredLines> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a message from `source`, which is an address of `machine`; none if it is an address of no machine.
    pub fn store(
        &self,
        machine: Option<&str>,
        source: IpAddr,
        message: Message,
        received: SystemTime,
    ) {
        let mut stored = self.state();
        let sequence = stored.next;
        stored.next += 1;
        stored.put(machine.unwrap_or_default(), Line { sequence, received, source, message });
        drop(stored);
        self.latest.send_replace(sequence);
    }

    /// Returns the last `most` lines of `machine` with a sequence number above `after`. An empty `machine` stands for addresses
    /// of no machine.
    pub fn after(&self, machine: &str, after: u64, most: usize) -> Vec<Line> {
        let stored = self.state();
        let Some(ring) = stored.rings.get(machine) else { return Vec::new() };
        let first = ring.partition_point(|line| line.sequence <= after);
        let first = first.max(ring.len().saturating_sub(most));
        ring.iter().skip(first).cloned().collect()
    }
}

impl StoredLines {
    fn put(&mut self, machine: &str, line: Line) {
        let most = if machine.is_empty() { MAX_UNKNOWN } else { MAX_PER_MACHINE };
        self.size += size(&line);
        let ring = match self.rings.get_mut(machine) {
            Some(ring) => ring,
            None => self.rings.entry(machine.to_owned()).or_default(),
        };
        ring.push_back(line);
        if ring.len() > most {
            self.size -= ring.pop_front().as_ref().map_or(0, size);
        }
        while self.size > MAX_TOTAL_BYTES {
            self.evict_some();
        }
    }

    /// Evicts the lines of a machine, or the oldest if there is only one machine.
    fn evict_some(&mut self) {
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
    LINE_OVERHEAD_BYTES + hostname.len() + app.len() + process.len() + text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn store(lines: &Lines, machine: Option<&str>, text: &str) {
        let message = syslog::parse(text.as_bytes());
        lines.store(machine, [192, 0, 2, 1].into(), message, SystemTime::now());
    }

    #[test]
    fn the_latest_lines_are_stored_and_read_after_any_sequence() {
        let lines = Lines::new(SystemTime::UNIX_EPOCH);
        for n in 0..2500 {
            store(&lines, Some("a"), &n.to_string());
            store(&lines, None, &n.to_string());
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
    fn the_lines_of_the_machine_silent_longest_are_evicted() {
        let lines = Lines::new(SystemTime::UNIX_EPOCH);
        let long = "x".repeat(8000);
        for machine in 0..6 {
            for _ in 0..MAX_PER_MACHINE {
                store(&lines, Some(&machine.to_string()), &long);
            }
        }
        assert!(lines.after("0", 0, 9).is_empty());
        assert_eq!(lines.after("5", 0, 9999).len(), MAX_PER_MACHINE);
        assert!(lines.state().size <= MAX_TOTAL_BYTES);
    }

    #[test]
    fn one_machine_alone_stays_within_the_total_limit() {
        let lines = Lines::new(SystemTime::UNIX_EPOCH);
        let long = "\x1b".repeat(8000);
        (0..MAX_PER_MACHINE).for_each(|_| store(&lines, Some("a"), &long));
        let stored = lines.after("a", 0, 9999);
        let octets: usize = stored.iter().map(|line| line.message.text.capacity()).sum();
        assert!(octets <= MAX_TOTAL_BYTES && octets > MAX_TOTAL_BYTES / 2, "{octets}");
        assert_eq!(stored.last().unwrap().message.text.len(), 6 * 8000);
    }

    #[test]
    fn sequences_increase_across_a_restart() {
        let now = SystemTime::now();
        let first = Lines::new(now);
        store(&first, Some("a"), "one");
        let second = Lines::new(now + std::time::Duration::from_secs(1));
        store(&second, Some("a"), "two");
        let after = first.after("a", 0, 9)[0].sequence;
        assert_eq!(second.after("a", after, 9).len(), 1);
    }
}
