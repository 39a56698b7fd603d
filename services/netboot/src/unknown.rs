//! Machines without a record that asked for an address: remembered for whoever wants to make one.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tinwright::netboot::v1 as pb;

use crate::Mac;

/// How many are remembered; for a new one the one that was silent longest is forgotten.
const MOST: usize = 4096;
/// How often the log tells of one.
const TOLD: Duration = Duration::from_secs(60);
/// How many clients that have nothing yet are enrolled in a second.
const ENROLLED: u32 = 20;
/// The longest vendor class that is kept, in octets.
const VENDOR_CLASS: usize = 255;
/// The most architectures that are kept; firmware names one to four.
const ARCHITECTURES: usize = 16;

/// One of them, as its last request had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its interface.
    pub mac: Mac,
    /// The relay it asked through.
    pub relay: Option<Ipv4Addr>,
    /// The port that the relay names.
    pub circuit_id: Vec<u8>,
    /// Option 93.
    pub architectures: Vec<u16>,
    /// Option 60.
    pub vendor_class: String,
}

/// A machine, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The machine.
    pub machine: Machine,
    /// When it asked first.
    pub first: SystemTime,
    /// When it asked last.
    pub last: SystemTime,
    /// How often it asked.
    pub requests: u64,
    told: SystemTime,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Machines(Mutex<HashMap<Mac, Seen>>);

impl Machines {
    /// Remembers that `machine` asked at `now`. Answers whether it is time to tell somebody.
    pub fn note(&self, mut machine: Machine, now: SystemTime) -> bool {
        let mac = machine.mac;
        machine.circuit_id.truncate(VENDOR_CLASS);
        machine.circuit_id.shrink_to_fit();
        machine.architectures.truncate(ARCHITECTURES);
        machine.architectures.shrink_to_fit();
        machine.vendor_class = machine.vendor_class.chars().take(VENDOR_CLASS).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = all.get_mut(&mac) {
            let tell = now.duration_since(seen.told).is_ok_and(|since| since >= TOLD);
            let told = if tell { now } else { seen.told };
            let requests = seen.requests.saturating_add(1);
            *seen = Seen { machine, last: now, requests, told, first: seen.first };
            return tell;
        }
        if all.len() >= MOST
            && let Some(oldest) = all.values().min_by_key(|seen| seen.last).map(|s| s.machine.mac)
        {
            all.remove(&oldest);
        }
        all.insert(mac, Seen { machine, first: now, last: now, requests: 1, told: now });
        true
    }

    /// At most `limit` of them in the order of their MACs, beginning after `after`; and after which the next part begins, if
    /// there is one.
    pub fn page(&self, after: Option<Mac>, limit: usize) -> (Vec<Seen>, Option<Mac>) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest: Vec<_> = all
            .values()
            .filter(|seen| after.is_none_or(|after| seen.machine.mac > after))
            .collect();
        rest.sort_by_key(|seen| seen.machine.mac);
        let more = rest.len() > limit;
        let page: Vec<_> = rest.into_iter().take(limit).cloned().collect();
        let next = page.last().filter(|_| more).map(|seen| seen.machine.mac);
        (page, next)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Seen> for pb::UnknownMachine {
    fn from(seen: Seen) -> Self {
        let Seen { machine, first, last, requests, told: _ } = seen;
        Self {
            mac: machine.mac.to_string(),
            relay: machine.relay.map_or_else(String::new, |relay| relay.to_string()),
            circuit_id: machine.circuit_id,
            architectures: machine.architectures.into_iter().map(u32::from).collect(),
            vendor_class: machine.vendor_class,
            first_seen_time: Some(first.into()),
            last_seen_time: Some(last.into()),
            requests: i64::try_from(requests).unwrap_or(i64::MAX),
        }
    }
}

/// How many machines are enrolled in each second: somebody who makes up addresses shall not have the whole pool at once.
#[derive(Debug, Default)]
pub struct Rate(Mutex<(u64, u32)>);

impl Rate {
    /// Whether one more is enrolled at `now`.
    pub fn admits(&self, now: SystemTime) -> bool {
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, count) = *window;
        let count = if of == second { count } else { 0 };
        let admitted = count < ENROLLED;
        *window = (second, count + u32::from(admitted));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(n: u32) -> Machine {
        let [_, a, b, c] = n.to_be_bytes();
        Machine {
            mac: Mac([2, 0, 0, a, b, c]),
            relay: None,
            circuit_id: Vec::new(),
            architectures: vec![7],
            vendor_class: "PXEClient".into(),
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_longest_silent_is_forgotten_for_a_new_one() {
        let all = Machines::default();
        for n in 0..4096 {
            all.note(machine(n), at(n.into()));
        }
        all.note(machine(0), at(5000));
        all.note(machine(9999), at(5001));
        let (seen, next) = all.page(None, 2);
        assert_eq!(all.len(), 4096);
        assert_eq!(seen[0].machine, machine(0));
        assert_eq!((seen[0].first, seen[0].last, seen[0].requests), (at(0), at(5000), 2));
        assert_eq!(seen[1].machine, machine(2), "the one after the first had been silent longest");
        assert_eq!(next, Some(machine(2).mac));
        assert_eq!(all.page(Some(machine(4095).mac), 9).0[0].machine, machine(9999));
    }

    #[test]
    fn of_what_a_machine_says_little_is_kept() {
        let (all, much) = (Machines::default(), machine(1));
        let circuit_id = vec![7; 4000];
        let (architectures, vendor_class) = (vec![7; 2000], "x".repeat(4000));
        all.note(Machine { circuit_id, architectures, vendor_class, ..much }, at(1));
        let Machine { circuit_id, architectures, vendor_class, .. } =
            &all.page(None, 1).0[0].machine;
        assert_eq!((circuit_id.len(), architectures.len(), vendor_class.len()), (255, 16, 255));
    }

    #[test]
    fn somebody_is_told_of_a_machine_once_a_minute() {
        let all = Machines::default();
        let told: Vec<_> = [0, 1, 59, 60, 61, 119, 120]
            .into_iter()
            .filter(|seconds| all.note(machine(1), at(*seconds)))
            .collect();
        assert_eq!(told, [0, 60, 120]);
    }

    #[test]
    fn twenty_are_enrolled_in_a_second() {
        let rate = Rate::default();
        let in_a_second = |second| (0..100).filter(|_| rate.admits(at(second))).count();
        assert_eq!((in_a_second(1), in_a_second(1), in_a_second(2)), (20, 0, 20));
    }
}
