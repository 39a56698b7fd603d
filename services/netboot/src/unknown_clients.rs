//! Clients without a record: remembered until they are reported to the hardware service, which stores them.
//!
//! ```text
//! DHCP request ─▶ UnknownClients ─at most 10 machines, every 2 s─▶ RecordUnknownMachines
//! ```
//!
//! Anybody can invent MACs: memory and reports are bounded. A client that asked more than once, as
//! firmware does, is reported before a client that asked once.

mod report;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use runtime::bounded_map::BoundedMap;
use tinwright::hardware::v1::UnknownMachine;

pub(crate) use self::report::run;
use crate::Mac;

/// The number of clients that are remembered. For a new one the one with the oldest last request is forgotten.
const MAX_CLIENTS: usize = 4096;
/// The time after which a client that makes no more requests is forgotten.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The interval at which the same client is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the same client is reported, unless why it has no record, or where it asks, changes.
const REPORT_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// The longest vendor class and circuit id that are stored.
const MAX_TEXT_OCTETS: usize = 255;
/// The number of architectures that are stored; firmware sends one to four.
const MAX_ARCHITECTURES: usize = 16;

/// All clients without a record.
#[derive(Debug)]
pub struct UnknownClients(Mutex<BoundedMap<Mac, Client>>);

#[derive(Debug)]
struct Client {
    /// Its requests are those since the last report.
    machine: UnknownMachine,
    logged: SystemTime,
    reported: Option<SystemTime>,
}

impl Default for UnknownClients {
    fn default() -> Self {
        Self(Mutex::new(BoundedMap::new(MAX_CLIENTS)))
    }
}

impl UnknownClients {
    /// Records a request of the client at `mac`, which `machine` describes. Returns true if it is to be logged.
    pub fn record(&self, mac: Mac, mut machine: UnknownMachine, now: SystemTime) -> bool {
        // The hardware service refuses a report with such an address.
        if !mac.is_unicast() {
            return false;
        }
        machine.circuit_id.truncate(MAX_TEXT_OCTETS);
        machine.circuit_id.shrink_to_fit();
        machine.architectures.truncate(MAX_ARCHITECTURES);
        machine.architectures.shrink_to_fit();
        machine.vendor_class = machine.vendor_class.chars().take(MAX_TEXT_OCTETS).collect();
        let mut all = self.all();
        let before = all.remove(&mac);
        let logged = before.as_ref().map(|before| before.logged);
        let logged = logged.filter(|logged| age(*logged, now) < LOG_INTERVAL);
        let is_as_before = |before: &Client| {
            // Not the relay: of two redundant ones each passes on every request.
            let place = |it: &UnknownMachine| (it.reason, it.subnet.clone());
            place(&before.machine) == place(&machine)
        };
        let reported = before.as_ref().filter(|it| is_as_before(it)).and_then(|it| it.reported);
        let before = before.map(|before| before.machine).unwrap_or_default();
        machine.mac = mac.to_string();
        machine.first_seen_time = before.first_seen_time.or(Some(now.into()));
        machine.last_seen_time = Some(now.into());
        machine.requests = before.requests.saturating_add(1);
        all.insert(mac, Client { machine, logged: logged.unwrap_or(now), reported });
        logged.is_none()
    }

    /// Returns at most `limit` clients to be reported, and counts them as reported. Clients that asked
    /// more than once come first, then the longest waiting ones.
    fn take_due(&self, limit: usize, now: SystemTime) -> Vec<UnknownMachine> {
        let mut all = self.all();
        let is_due = |client: &Client| {
            let is_recent = |reported| age(reported, now) < REPORT_INTERVAL;
            client.machine.requests > 0 && !client.reported.is_some_and(is_recent)
        };
        // From the oldest request to the latest one, so that the order among equals is that of the requests.
        let due = all.iter().filter(|(_, client)| is_due(client));
        let mut due: Vec<_> = due.map(|(mac, it)| (it.machine.requests < 2, *mac)).collect();
        due.sort_by_key(|(asked_once, _)| *asked_once);
        due.truncate(limit);
        let mut taken = Vec::new();
        for (_, mac) in due {
            let Some(client) = all.get_mut(&mac) else { continue };
            client.reported = Some(now);
            taken.push(client.machine.clone());
            client.machine.requests = 0;
        }
        taken
    }

    /// Makes clients due again after their report failed.
    fn put_back(&self, machines: &[UnknownMachine]) {
        let mut all = self.all();
        for machine in machines {
            let Some(client) = machine.mac.parse().ok().and_then(|mac| all.get_mut(&mac)) else {
                continue;
            };
            client.machine.requests = client.machine.requests.saturating_add(machine.requests);
            client.reported = None;
        }
    }

    /// Forgets clients with a record, as `is_known` says, and clients without a request for a week.
    fn forget(&self, is_known: impl Fn(Mac) -> bool, now: SystemTime) {
        let last = |client: &Client| client.machine.last_seen_time?.try_into().ok();
        self.all().retain(|mac, client| {
            !is_known(*mac) && last(client).is_some_and(|last| age(last, now) <= MAX_AGE)
        });
    }

    /// Returns all clients that are due to be reported, and counts them as reported.
    #[cfg(test)]
    pub(crate) fn due(&self, now: SystemTime) -> Vec<UnknownMachine> {
        self.take_due(usize::MAX, now)
    }

    /// Returns the number of clients.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, BoundedMap<Mac, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time since `then`; none if the clock was set back.
fn age(then: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}

#[cfg(test)]
mod tests;
