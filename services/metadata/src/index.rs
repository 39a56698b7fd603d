//! The machine that an address speaks for: all of them in memory, so that no answer waits for another service.
//!
//! Readers see all of a change or nothing of it: an address that moves to another machine never shows the old one's data
//! beside the new one's. Of two machines whose records claim an address, the fleet says which has it.
//!
//! An address that no record has may be leased: it speaks for the machine with the lease's interface while the lease lasts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fleet::{
    BoundLease, FeedKind, FeedStates, FleetMachine, Freshness, MachineChange, MachineProjection,
    Observer, Snapshot, ViewIndex,
};
use tinwright::{HardwareId, Mac};

use crate::machine::Machine;
use crate::records;

/// The time for which secrets are still told after the control plane was last reached.
pub const SECRETS_AFTER_DISCONNECT: Duration = Duration::from_secs(15 * 60);

/// The feeds that a machine's document is made from.
const FEEDS: [FeedKind; 2] = [FeedKind::Hardware, FeedKind::Instance];

/// Reports changes of an [`Index`].
pub type Changes = fleet::views::Changes<Machine>;

/// The machines, shared by those who answer and the fleet that keeps them up to date.
#[derive(Debug, Default)]
pub struct Index {
    /// The machines by id, MAC, address and secret name.
    pub views: ViewIndex<Machine>,
}

/// The result of looking a machine up.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The address speaks for this machine.
    Found {
        /// The machine.
        machine: Arc<Machine>,
        /// True if the records are recent enough to tell secrets by.
        secrets: bool,
    },
    /// The address speaks for no machine.
    Unknown,
    /// The feeds have not reported everything yet.
    NotReady,
}

impl MachineProjection for Machine {
    /// The secret name of the instance.
    type Key = String;

    const USES_LEASES: bool = true;

    fn project(machine: &Arc<FleetMachine>) -> Vec<Self> {
        let instance = machine.instance.as_ref();
        records::machine(&machine.hardware, instance).into_iter().collect()
    }

    fn macs(&self) -> impl Iterator<Item = Mac> {
        Machine::macs(self)
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        Machine::addresses(self)
    }

    fn key(&self) -> Option<String> {
        self.lookup_id()
    }
}

impl Observer for Index {
    fn machines(&self, changes: &[MachineChange], feeds: &FeedStates) {
        self.views.machines(changes, feeds);
    }

    fn leases(&self, update: Option<&fleet::leases::LeaseUpdate>, feeds: &FeedStates) {
        self.views.leases(update, feeds);
    }
}

impl Index {
    /// Returns the machine that `address` speaks for, whatever form it is in.
    pub fn lookup(&self, address: IpAddr, now: Instant) -> Lookup {
        let snapshot = self.views.read();
        let freshness = snapshot.feeds.combined(&FEEDS);
        let Some(secrets) = tells_secrets(freshness, now) else { return Lookup::NotReady };
        let address = address.to_canonical();
        match snapshot.by_address(address) {
            Some(machine) => Lookup::Found { machine: machine.clone(), secrets },
            None => lookup_lease(&snapshot, address, secrets, now),
        }
    }

    /// Returns the machine whose instance has the secret name `name` (its lookup id).
    pub fn lookup_named(&self, name: &str, now: Instant) -> Lookup {
        let snapshot = self.views.read();
        let freshness = snapshot.feeds.combined(&FEEDS);
        let Some(secrets) = tells_secrets(freshness, now) else { return Lookup::NotReady };
        match snapshot.by_key(name.to_ascii_lowercase().as_str()).first() {
            Some(machine) => Lookup::Found { machine: machine.clone(), secrets },
            None => Lookup::Unknown,
        }
    }

    /// Reports changes from now on: that there was one, of whichever machine.
    pub fn changes(&self) -> Changes {
        self.views.changes()
    }

    /// Resolves once the feeds have reported everything once.
    pub async fn ready(&self) {
        self.views.ready(&FEEDS).await;
    }

    /// Returns the machine with this id.
    pub fn machine(&self, id: HardwareId) -> Option<Arc<Machine>> {
        self.views.by_id(id)
    }

    /// Returns the machine with this host name; the oldest record's, if there are several. Looks at all machines.
    pub fn by_hostname(&self, hostname: &str) -> Option<Arc<Machine>> {
        let snapshot = self.views.read();
        let named = snapshot.machines().filter(|machine| machine.hostname() == hostname);
        named.min_by_key(|machine| age(machine)).cloned()
    }

    /// Returns the lease of `address`, if it has not ended.
    pub fn lease(&self, address: IpAddr, now: Instant) -> Option<BoundLease> {
        self.views.read().leases.get(address.to_canonical(), now)
    }

    /// Returns the addresses that the machine with this id leases. Looks at all leases.
    pub fn leased_by(&self, id: HardwareId, now: Instant) -> Vec<IpAddr> {
        let snapshot = self.views.read();
        let macs: Vec<_> = snapshot.by_id(id).into_iter().flat_map(|one| one.macs()).collect();
        snapshot.leases.addresses_of(&macs, now)
    }

    /// Returns the time since the feeds were disconnected: zero while they are live, none before they reported everything.
    pub fn feed_age(&self, now: Instant) -> Option<Duration> {
        match self.views.freshness(&FEEDS) {
            Freshness::NeverSynced => None,
            Freshness::Live | Freshness::Unused => Some(Duration::ZERO),
            Freshness::StaleSince(when) => Some(now.saturating_duration_since(when)),
        }
    }

    /// True if the feeds are connected.
    pub fn is_live(&self) -> bool {
        self.views.freshness(&FEEDS) == Freshness::Live
    }
}

/// Returns true if records of this freshness are recent enough to tell secrets by; none if there are none yet.
fn tells_secrets(freshness: Freshness, now: Instant) -> Option<bool> {
    match freshness {
        Freshness::NeverSynced => None,
        Freshness::Live | Freshness::Unused => Some(true),
        Freshness::StaleSince(when) => {
            Some(now.saturating_duration_since(when) <= SECRETS_AFTER_DISCONNECT)
        }
    }
}

/// Returns the machine that leases `address`, which no record has.
fn lookup_lease(
    snapshot: &Snapshot<Machine>,
    address: IpAddr,
    secrets: bool,
    now: Instant,
) -> Lookup {
    let freshness = snapshot.feeds.get(FeedKind::Lease);
    if freshness == Freshness::Unused {
        return Lookup::Unknown;
    }
    let Some(fresh) = tells_secrets(freshness, now) else { return Lookup::NotReady };
    let lease = snapshot.leases.get(address, now);
    match lease.and_then(|lease| snapshot.by_mac(lease.mac)) {
        Some(machine) => Lookup::Found { machine: machine.clone(), secrets: secrets && fresh },
        None => Lookup::Unknown,
    }
}

/// Smaller for older records; of two made at once one is smaller all the same.
fn age(machine: &Machine) -> (SystemTime, HardwareId) {
    (machine.created, machine.id)
}

#[cfg(test)]
mod tests;
