//! Clients without a record: remembered so that an operator can add them.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use runtime::bounded_map::BoundedMap;
use tinwright::netboot::v1 as pb;

use crate::Mac;

/// The number of clients that are remembered. For a new one the one with the oldest last request is forgotten.
const MAX_CLIENTS: usize = 4096;
/// The interval at which the same client is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The longest vendor class and circuit id that are stored.
const MAX_TEXT_OCTETS: usize = 255;
/// The number of architectures that are stored; firmware sends one to four.
const MAX_ARCHITECTURES: usize = 16;

/// A client without a record, as of its last request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClient {
    /// Its interface.
    pub mac: Mac,
    /// The relay of its request.
    pub relay: Option<Ipv4Addr>,
    /// The port that the relay names.
    pub circuit_id: Vec<u8>,
    /// Option 93.
    pub architectures: Vec<u16>,
    /// Option 60.
    pub vendor_class: String,
}

/// A client and the times of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHistory {
    /// The client.
    pub client: UnknownClient,
    /// The time of its first request.
    pub first: SystemTime,
    /// The time of its last request.
    pub last: SystemTime,
    /// The number of its requests.
    pub requests: u64,
    logged: SystemTime,
}

/// All clients without a record.
#[derive(Debug)]
pub struct UnknownClients(Mutex<BoundedMap<Mac, ClientHistory>>);

impl Default for UnknownClients {
    fn default() -> Self {
        Self(Mutex::new(BoundedMap::new(MAX_CLIENTS)))
    }
}

impl UnknownClients {
    /// Records a request of `client`. Returns true if it is to be logged.
    pub fn record(&self, mut client: UnknownClient, now: SystemTime) -> bool {
        client.circuit_id.truncate(MAX_TEXT_OCTETS);
        client.circuit_id.shrink_to_fit();
        client.architectures.truncate(MAX_ARCHITECTURES);
        client.architectures.shrink_to_fit();
        client.vendor_class = client.vendor_class.chars().take(MAX_TEXT_OCTETS).collect();
        let (mac, mut all) = (client.mac, self.all());
        let old = all.remove(&mac);
        let is_due = |logged| now.duration_since(logged).is_ok_and(|age| age >= LOG_INTERVAL);
        let is_logged = old.as_ref().is_none_or(|old| is_due(old.logged));
        let (first, logged, before) =
            old.map_or((now, now, 0), |old| (old.first, old.logged, old.requests));
        let logged = if is_logged { now } else { logged };
        let requests = before.saturating_add(1);
        all.insert(mac, ClientHistory { client, first, last: now, requests, logged });
        is_logged
    }

    /// At most `limit` clients in the order of their MACs, beginning after `after`; and the MAC after which the next page
    /// begins, if there is one.
    pub fn page(&self, after: Option<Mac>, limit: usize) -> (Vec<ClientHistory>, Option<Mac>) {
        let all = self.all();
        let mut rest: Vec<_> = all
            .iter()
            .map(|(_, history)| history)
            .filter(|history| after.is_none_or(|after| history.client.mac > after))
            .collect();
        rest.sort_by_key(|history| history.client.mac);
        let more = rest.len() > limit;
        let page: Vec<_> = rest.into_iter().take(limit).cloned().collect();
        let next = page.last().filter(|_| more).map(|history| history.client.mac);
        (page, next)
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn all(&self) -> MutexGuard<'_, BoundedMap<Mac, ClientHistory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<ClientHistory> for pb::UnknownMachine {
    fn from(history: ClientHistory) -> Self {
        let ClientHistory { client, first, last, requests, logged: _ } = history;
        Self {
            mac: client.mac.to_string(),
            relay: client.relay.map_or_else(String::new, |relay| relay.to_string()),
            circuit_id: client.circuit_id,
            architectures: client.architectures.into_iter().map(u32::from).collect(),
            vendor_class: client.vendor_class,
            first_seen_time: Some(first.into()),
            last_seen_time: Some(last.into()),
            requests: i64::try_from(requests).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn client(n: u32) -> UnknownClient {
        let [_, a, b, c] = n.to_be_bytes();
        UnknownClient {
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
    fn the_client_with_the_oldest_last_request_is_forgotten_for_a_new_one() {
        let all = UnknownClients::default();
        for n in 0..4096 {
            all.record(client(n), at(n.into()));
        }
        all.record(client(0), at(5000));
        all.record(client(9999), at(5001));
        let (page, next) = all.page(None, 2);
        assert_eq!(all.len(), 4096);
        assert_eq!(page[0].client, client(0));
        assert_eq!((page[0].first, page[0].last, page[0].requests), (at(0), at(5000), 2));
        assert_eq!(page[1].client, client(2), "the one after the first had the oldest request");
        assert_eq!(next, Some(client(2).mac));
        assert_eq!(all.page(Some(client(4095).mac), 9).0[0].client, client(9999));
    }

    #[test]
    fn long_texts_and_lists_are_cut() {
        let all = UnknownClients::default();
        let circuit_id = vec![7; 4000];
        let (architectures, vendor_class) = (vec![7; 2000], "x".repeat(4000));
        let long = UnknownClient { circuit_id, architectures, vendor_class, ..client(1) };
        all.record(long, at(1));
        let UnknownClient { circuit_id, architectures, vendor_class, .. } =
            &all.page(None, 1).0[0].client;
        assert_eq!((circuit_id.len(), architectures.len(), vendor_class.len()), (255, 16, 255));
    }

    #[test]
    fn a_client_is_logged_once_a_minute() {
        let all = UnknownClients::default();
        let logged: Vec<_> = [0, 1, 59, 60, 61, 119, 120]
            .into_iter()
            .filter(|seconds| all.record(client(1), at(*seconds)))
            .collect();
        assert_eq!(logged, [0, 60, 120]);
    }
}
