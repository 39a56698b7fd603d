//! How much one client, and all of them together, may ask for.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Netboot specification, T19.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers at a time.
    pub transfers: usize,
    /// Of these, by one address.
    pub by_source: usize,
    /// Requests by one address within a second.
    pub per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        // A thousand machines that are powered on at once have up to two each: one that only asked for the size counts
        // until its end has been heard.
        Self { transfers: 4096, by_source: 8, per_second: 64 }
    }
}

impl Limits {
    /// As much as there is room for.
    pub const NONE: Self =
        Self { transfers: usize::MAX, by_source: usize::MAX, per_second: u32::MAX };
}

/// How many addresses are counted at a time; a forger's flood must not fill the memory.
const SOURCES: usize = 4096;
const SECOND: Duration = Duration::from_secs(1);

/// One limit or another is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("busy")]
pub struct Busy;

/// Counts requests and transfers.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    running: usize,
    sources: HashMap<Ipv4Addr, Source>,
}

#[derive(Debug)]
struct Source {
    running: usize,
    second: Instant,
    requests: u32,
}

impl Source {
    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && now.saturating_duration_since(self.second) >= SECOND
    }
}

impl Admission {
    /// Nothing counted yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, running: 0, sources: HashMap::new() }
    }

    /// Counts a request by `source`, whatever it asks.
    pub fn request(&mut self, source: Ipv4Addr, now: Instant) -> Result<(), Busy> {
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, source| !source.is_idle(now));
            if self.sources.len() >= SOURCES {
                return Err(Busy);
            }
        }
        let fresh = Source { running: 0, second: now, requests: 0 };
        let source = self.sources.entry(source).or_insert(fresh);
        if now.saturating_duration_since(source.second) >= SECOND {
            (source.second, source.requests) = (now, 0);
        }
        source.requests = source.requests.saturating_add(1);
        if source.requests > self.limits.per_second { Err(Busy) } else { Ok(()) }
    }

    /// Counts a transfer that begins, for a `source` whose request was counted.
    pub fn begin(&mut self, source: Ipv4Addr) -> Result<(), Busy> {
        let all = self.running;
        let source = self.sources.get_mut(&source).ok_or(Busy)?;
        if all >= self.limits.transfers || source.running >= self.limits.by_source {
            return Err(Busy);
        }
        source.running += 1;
        self.running += 1;
        Ok(())
    }

    /// Counts a transfer that has ended.
    pub fn end(&mut self, source: Ipv4Addr) {
        self.running = self.running.saturating_sub(1);
        if let Some(source) = self.sources.get_mut(&source) {
            source.running = source.running.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    fn admission() -> Admission {
        Admission::new(Limits { transfers: 3, by_source: 2, per_second: 4 })
    }

    fn ask(admission: &mut Admission, source: Ipv4Addr, now: Instant) -> Result<(), Busy> {
        admission.request(source, now).and_then(|()| admission.begin(source))
    }

    #[test]
    fn one_address_cannot_take_all_and_all_cannot_take_more_than_there_is() {
        let (mut admission, now) = (admission(), Instant::now());
        let took = [ONE, ONE, ONE, TWO, TWO].map(|source| ask(&mut admission, source, now).is_ok());
        assert_eq!(took, [true, true, false, true, false]);
    }

    #[test]
    fn what_ends_makes_room() {
        let (mut admission, now) = (admission(), Instant::now());
        assert_eq!([(); 3].map(|()| ask(&mut admission, ONE, now)), [Ok(()), Ok(()), Err(Busy)]);
        admission.end(ONE);
        assert_eq!(ask(&mut admission, ONE, now), Ok(()));
    }

    #[test]
    fn requests_are_counted_by_the_second() {
        let (mut admission, now) = (admission(), Instant::now());
        let first = [(); 5].map(|()| admission.request(ONE, now).is_ok());
        assert_eq!(first, [true, true, true, true, false]);
        assert_eq!(admission.request(ONE, now + SECOND), Ok(()));
    }

    #[test]
    fn forged_addresses_do_not_fill_the_memory() {
        let (mut admission, now) = (admission(), Instant::now());
        let forged = (0..10_000_u32).map(Ipv4Addr::from);
        assert_eq!(
            forged.filter(|source| admission.request(*source, now).is_ok()).count(),
            SOURCES
        );
        assert_eq!(admission.request(ONE, now + SECOND), Ok(()));
        assert_eq!(admission.sources.len(), 1);
    }
}
