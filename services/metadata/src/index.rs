//! Finds a machine by its source address. All machines are in memory, so a lookup waits for no other service.
//!
//! Changes are atomic: after an address moved to another machine, no reader gets data of both. If the records of two machines
//! have the same address, the fleet decides between them.
//!
//! An address in no record may be leased: until the lease ends, it belongs to the machine with the lease's MAC.

mod free;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::{
    BoundLease, FeedKind, FeedStates, FleetMachine, Freshness, MachineChange, MachineProjection,
    Observer, Snapshot, ViewIndex,
};
use tinwright::{HardwareId, Mac};

pub use self::free::{FreeMachine, FreeMachines};
use crate::machine::Machine;
use crate::records;

/// The time for which secrets are still served after the control plane was last reached.
pub const SECRETS_AFTER_DISCONNECT: Duration = Duration::from_secs(15 * 60);

/// The feeds that a machine's document is made from.
const FEEDS: [FeedKind; 2] = [FeedKind::Hardware, FeedKind::Instance];

/// Reports changes of an [`Index`].
pub type Changes = fleet::views::Changes<Machine>;

/// The machines. The fleet updates them, requests read them.
#[derive(Debug, Default)]
pub struct Index {
    /// The machines by id, MAC, address and lookup id.
    pub views: ViewIndex<Machine>,
    /// The machines that no instance occupies.
    pub free: FreeMachines,
}

/// The result of looking a machine up.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The address belongs to this machine.
    Found {
        /// The machine.
        machine: Arc<Machine>,
        /// True if the records are recent enough to serve secrets.
        secrets: bool,
    },
    /// The address belongs to no machine.
    Unknown,
    /// The feeds have not reported everything yet.
    NotReady,
}

impl MachineProjection for Machine {
    /// The lookup id of the instance.
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
        self.free.apply(changes);
    }

    fn leases(&self, update: Option<&fleet::leases::LeaseUpdate>, feeds: &FeedStates) {
        self.views.leases(update, feeds);
    }
}

impl Index {
    /// Returns the machine of the source address `address`.
    pub fn lookup(&self, address: IpAddr, now: Instant) -> Lookup {
        let snapshot = self.views.read();
        let address = address.to_canonical();
        match lookup_in(&snapshot, snapshot.by_address(address), now) {
            Lookup::Unknown => lookup_lease(&snapshot, address, now),
            found @ (Lookup::Found { .. } | Lookup::NotReady) => found,
        }
    }

    /// Returns the machine whose instance has the lookup id `id`.
    pub fn lookup_named(&self, id: &str, now: Instant) -> Lookup {
        let snapshot = self.views.read();
        lookup_in(&snapshot, snapshot.by_key(id.to_ascii_lowercase().as_str()).first(), now)
    }

    /// Resolves once the feeds have reported everything once.
    pub async fn ready(&self) {
        self.views.ready(&FEEDS).await;
    }

    /// Returns the machine with this host name; the oldest record's, if there are several. Looks at all machines.
    pub fn by_hostname(&self, hostname: &str) -> Option<Arc<Machine>> {
        let snapshot = self.views.read();
        let named = snapshot.machines().filter(|machine| machine.hostname() == hostname);
        named.min_by_key(|machine| (machine.created, machine.id)).cloned()
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
        age(self.views.freshness(&FEEDS), now)
    }

    /// True if the feeds are connected.
    pub fn is_live(&self) -> bool {
        self.views.freshness(&FEEDS) == Freshness::Live
    }
}

/// Returns the age of records with this freshness: zero while their feeds are live, none if there are no records yet or a feed
/// is not followed.
fn age(freshness: Freshness, now: Instant) -> Option<Duration> {
    match freshness {
        Freshness::NeverSynced | Freshness::Unused => None,
        Freshness::Live => Some(Duration::ZERO),
        Freshness::StaleSince(when) => Some(now.saturating_duration_since(when)),
    }
}

fn lookup_in(snapshot: &Snapshot<Machine>, found: Option<&Arc<Machine>>, now: Instant) -> Lookup {
    match (age(snapshot.feeds.combined(&FEEDS), now), found) {
        (None, _) => Lookup::NotReady,
        (Some(_), None) => Lookup::Unknown,
        (Some(age), Some(machine)) => {
            Lookup::Found { machine: machine.clone(), secrets: age <= SECRETS_AFTER_DISCONNECT }
        }
    }
}

/// Returns the machine that leases `address`, which is in no record.
fn lookup_lease(snapshot: &Snapshot<Machine>, address: IpAddr, now: Instant) -> Lookup {
    let freshness = snapshot.feeds.get(FeedKind::Lease);
    if freshness == Freshness::Unused {
        return Lookup::Unknown;
    }
    let Some(lease_age) = age(freshness, now) else { return Lookup::NotReady };
    let lease = snapshot.leases.get(address, now);
    match lookup_in(snapshot, lease.and_then(|lease| snapshot.by_mac(lease.mac)), now) {
        Lookup::Found { machine, secrets } => {
            let secrets = secrets && lease_age <= SECRETS_AFTER_DISCONNECT;
            Lookup::Found { machine, secrets }
        }
        other @ (Lookup::Unknown | Lookup::NotReady) => other,
    }
}

#[cfg(test)]
mod tests;
