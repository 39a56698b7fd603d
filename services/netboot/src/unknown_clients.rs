//! Clients without a record: remembered so that an operator can add them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use runtime::bounded_map::BoundedMap;
use tinwright::netboot::v1::UnknownMachine;

use crate::Mac;

/// The number of clients that are remembered. For a new one the one with the oldest last request is forgotten.
const MAX_CLIENTS: usize = 4096;
/// The time after which a client that makes no more requests is forgotten.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The interval at which the same client is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The longest vendor class and circuit id that are stored.
const MAX_TEXT_OCTETS: usize = 255;
/// The number of architectures that are stored; firmware sends one to four.
const MAX_ARCHITECTURES: usize = 16;

/// All clients without a record, with the time at which they were logged last.
#[derive(Debug)]
pub struct UnknownClients(Mutex<BoundedMap<Mac, (UnknownMachine, SystemTime)>>);

impl Default for UnknownClients {
    fn default() -> Self {
        Self(Mutex::new(BoundedMap::new(MAX_CLIENTS)))
    }
}

impl UnknownClients {
    /// Records a request of the `client` at `mac`. Returns true if it is to be logged.
    pub fn record(&self, mac: Mac, mut client: UnknownMachine, now: SystemTime) -> bool {
        client.circuit_id.truncate(MAX_TEXT_OCTETS);
        client.circuit_id.shrink_to_fit();
        client.architectures.truncate(MAX_ARCHITECTURES);
        client.architectures.shrink_to_fit();
        client.vendor_class = client.vendor_class.chars().take(MAX_TEXT_OCTETS).collect();
        let mut all = self.all();
        let (before, logged) = all.remove(&mac).unzip();
        let recent = |logged| now.duration_since(logged).map_or(true, |age| age < LOG_INTERVAL);
        let logged = logged.filter(|logged| recent(*logged));
        let before = before.unwrap_or_default();
        client.mac = mac.to_string();
        client.first_seen_time = before.first_seen_time.or(Some(now.into()));
        client.last_seen_time = Some(now.into());
        client.requests = before.requests.saturating_add(1);
        all.insert(mac, (client, logged.unwrap_or(now)));
        logged.is_none()
    }

    /// Returns at most `limit` clients in the order of their MACs, beginning after `after`; and the MAC after which the next
    /// page begins, if there is one.
    pub fn page(&self, after: Option<Mac>, limit: usize) -> (Vec<UnknownMachine>, Option<Mac>) {
        let all = self.all();
        let rest = all.iter().filter(|(mac, _)| after.is_none_or(|after| **mac > after));
        let mut page: Vec<_> = rest.collect();
        page.sort_by_key(|(mac, _)| **mac);
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).map(|(mac, _)| **mac);
        (page.into_iter().map(|(_, (client, _))| client.clone()).collect(), next)
    }

    /// Forgets the clients that have a record now, as `is_known` says, and those that made no request for a week.
    pub fn forget(&self, is_known: impl Fn(Mac) -> bool, now: SystemTime) {
        let mut all = self.all();
        let is_over = |client: &UnknownMachine| {
            let last = client.last_seen_time.and_then(|last| SystemTime::try_from(last).ok());
            last.is_none_or(|last| now.duration_since(last).is_ok_and(|age| age > MAX_AGE))
        };
        let gone = all.iter().filter(|(mac, (client, _))| is_known(**mac) || is_over(client));
        let gone: Vec<_> = gone.map(|(mac, _)| *mac).collect();
        for mac in gone {
            all.remove(&mac);
        }
    }

    /// Returns the number of clients.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, BoundedMap<Mac, (UnknownMachine, SystemTime)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn mac(n: u32) -> Mac {
        let [_, a, b, c] = n.to_be_bytes();
        Mac([2, 0, 0, a, b, c])
    }

    fn client() -> UnknownMachine {
        let vendor_class = "PXEClient".into();
        UnknownMachine { architectures: vec![7], vendor_class, ..UnknownMachine::default() }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_client_with_the_oldest_last_request_is_forgotten_for_a_new_one() {
        let all = UnknownClients::default();
        for n in 0..4096 {
            all.record(mac(n), client(), at(n.into()));
        }
        all.record(mac(0), client(), at(5000));
        all.record(mac(9999), client(), at(5001));
        let (page, next) = all.page(None, 2);
        assert_eq!(all.count(), 4096);
        assert_eq!(page[0].mac, mac(0).to_string());
        let first = &page[0];
        assert_eq!(
            (first.first_seen_time, first.last_seen_time),
            (Some(at(0).into()), Some(at(5000).into()))
        );
        assert_eq!(first.requests, 2);
        assert_eq!(
            page[1].mac,
            mac(2).to_string(),
            "the one after the first had the oldest request"
        );
        assert_eq!(next, Some(mac(2)));
        assert_eq!(all.page(Some(mac(4095)), 9).0[0].mac, mac(9999).to_string());
    }

    #[test]
    fn clients_that_got_a_record_or_went_away_are_forgotten() {
        let all = UnknownClients::default();
        let week = 7 * 24 * 60 * 60;
        for (n, seconds) in [(1, 0), (2, 10), (3, 10)] {
            all.record(mac(n), client(), at(seconds));
        }
        all.forget(|known| known == mac(3), at(week + 5));
        let macs: Vec<_> = all.page(None, 9).0.into_iter().map(|it| it.mac).collect();
        assert_eq!(macs, [mac(2).to_string()]);
    }

    #[test]
    fn long_texts_and_lists_are_cut() {
        let all = UnknownClients::default();
        let circuit_id = vec![7; 4000];
        let (architectures, vendor_class) = (vec![7; 2000], "x".repeat(4000));
        let long = UnknownMachine { circuit_id, architectures, vendor_class, ..client() };
        all.record(mac(1), long, at(1));
        let UnknownMachine { circuit_id, architectures, vendor_class, .. } =
            &all.page(None, 1).0[0];
        assert_eq!((circuit_id.len(), architectures.len(), vendor_class.len()), (255, 16, 255));
    }

    #[test]
    fn a_client_is_logged_once_a_minute() {
        let all = UnknownClients::default();
        let logged: Vec<_> = [0, 1, 59, 60, 61, 119, 120]
            .into_iter()
            .filter(|seconds| all.record(mac(1), client(), at(*seconds)))
            .collect();
        assert_eq!(logged, [0, 60, 120]);
    }
}
