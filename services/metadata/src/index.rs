//! Which machine an address speaks for: all of them in memory, so that no answer waits for anybody.
//!
//! A change is applied under one lock, so a reader sees all of it or nothing: an address that moves to another machine
//! never shows the old one's data beside the new one's. Two machines may claim an address for a while, when two records
//! change one after the other; the older record has it, and the younger one as soon as the older lets go.
//!
//! An address that no record has may be lent: it speaks for the machine with the lease's Ethernet address, while the lease
//! lasts.

mod lent;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tinwright::{HardwareId, Mac};
use tokio::sync::watch;

pub use self::lent::Lease;
use self::lent::Lent;
use crate::machine::Machine;

/// How long secrets are still told once the control plane is out of reach.
pub const SECRETS_LAST: Duration = Duration::from_secs(15 * 60);

/// The machines, and how fresh they are. Shared by those who answer and the one who keeps it up to date.
#[derive(Debug)]
pub struct Index {
    machines: watch::Sender<Machines>,
}

/// What is known of an address.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// It speaks for this machine.
    Known {
        /// The machine, as it was last heard of.
        machine: Arc<Machine>,
        /// Whether that is recent enough to tell secrets by.
        secrets: bool,
    },
    /// It speaks for none.
    Unknown,
    /// Nothing was heard from the control plane yet.
    NotReady,
}

#[derive(Debug, Default)]
struct Machines {
    by_id: HashMap<HardwareId, Arc<Machine>>,
    /// Those who claim an address, the oldest record first; never empty.
    by_address: HashMap<IpAddr, Vec<Arc<Machine>>>,
    /// Those whose instance has a secret name.
    by_name: HashMap<String, Arc<Machine>>,
    by_mac: HashMap<Mac, HardwareId>,
    lent: Lent,
    feed: Feed,
}

#[derive(Clone, Copy, Debug, Default)]
enum Feed {
    #[default]
    NeverHeard,
    Live,
    CutAt(Instant),
}

impl Feed {
    /// Whether it was heard recently enough to tell secrets by; nothing where it never was.
    fn tells_secrets(self, now: Instant) -> Option<bool> {
        match self {
            Self::NeverHeard => None,
            Self::Live => Some(true),
            Self::CutAt(when) => Some(now.saturating_duration_since(when) <= SECRETS_LAST),
        }
    }

    fn cut(&mut self, now: Instant) {
        if let Self::Live = self {
            *self = Self::CutAt(now);
        }
    }
}

/// One thing that happened to the machines.
#[derive(Clone, Debug)]
pub enum Change {
    /// This machine is there, new or changed.
    Put(Arc<Machine>),
    /// This one is gone.
    Remove(HardwareId),
    /// This address is lent, or no longer.
    Lend(IpAddr, Option<Lease>),
}

/// Waits for changes of an [`Index`].
#[derive(Debug)]
pub struct Changes(watch::Receiver<Machines>);

impl Changes {
    /// Resolves once there was a change since it was last asked. Several at once are one.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The index is gone, and nothing will change any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An index that is not ready yet.
    pub fn new() -> Self {
        Self { machines: watch::Sender::default() }
    }

    /// What `address` speaks for, whatever form it is in.
    pub fn lookup(&self, address: IpAddr, now: Instant) -> Lookup {
        let machines = self.machines.borrow();
        let Some(secrets) = machines.feed.tells_secrets(now) else { return Lookup::NotReady };
        let address = address.to_canonical();
        let claims = machines.by_address.get(&address);
        match claims.and_then(|claims| claims.first()) {
            Some(machine) => Lookup::Known { machine: machine.clone(), secrets },
            None => machines.borrower(address, secrets, now),
        }
    }

    /// Tells of changes from now on: that there was one, to whichever machine.
    pub fn changes(&self) -> Changes {
        Changes(self.machines.subscribe())
    }

    /// Resolves once everything was told once.
    pub async fn ready(&self) {
        let mut machines = self.machines.subscribe();
        // The sender lives as long as the index does.
        let _ready = machines.wait_for(|known| !matches!(known.feed, Feed::NeverHeard)).await;
    }

    /// The machine with this id.
    pub fn machine(&self, id: HardwareId) -> Option<Arc<Machine>> {
        self.machines.borrow().by_id.get(&id).cloned()
    }

    /// The machine that is told this host name; the oldest record's, if more are. Looks at all of them.
    pub fn named(&self, hostname: &str) -> Option<Arc<Machine>> {
        let machines = self.machines.borrow();
        let named = machines.by_id.values().filter(|one| one.hostname() == hostname);
        named.min_by_key(|machine| age(machine)).cloned()
    }

    /// The lease of `address`, while it lasts.
    pub fn lease(&self, address: IpAddr, now: Instant) -> Option<Lease> {
        self.machines.borrow().lent.of(address.to_canonical(), now)
    }

    /// The addresses that the machine with this id is lent. Looks at all leases.
    pub fn lent_to(&self, id: HardwareId, now: Instant) -> Vec<IpAddr> {
        let machines = self.machines.borrow();
        let macs: Vec<_> = machines.by_id.get(&id).iter().flat_map(|one| one.macs()).collect();
        machines.lent.to(&macs, now)
    }

    /// How long the feed has been cut: nothing while it is live, `None` before anything was heard.
    pub fn feed_age(&self, now: Instant) -> Option<Duration> {
        match self.machines.borrow().feed {
            Feed::NeverHeard => None,
            Feed::Live => Some(Duration::ZERO),
            Feed::CutAt(when) => Some(now.saturating_duration_since(when)),
        }
    }

    /// The machine whose instance has the secret name `name` (its lookup id).
    pub fn lookup_named(&self, name: &str, now: Instant) -> Lookup {
        let machines = self.machines.borrow();
        let Some(secrets) = machines.feed.tells_secrets(now) else { return Lookup::NotReady };
        match machines.by_name.get(&name.to_ascii_lowercase()) {
            Some(machine) => Lookup::Known { machine: machine.clone(), secrets },
            None => Lookup::Unknown,
        }
    }

    /// Whether the control plane is being heard.
    pub fn is_live(&self) -> bool {
        matches!(self.machines.borrow().feed, Feed::Live)
    }

    /// These are all the machines there are: the feed has caught up, and is live from now on.
    pub fn replace(&self, machines: impl IntoIterator<Item = Arc<Machine>>) {
        self.set(machines, Feed::Live);
    }

    /// These are all the machines there were when the feed was cut, at `cut`.
    pub fn restore(&self, machines: impl IntoIterator<Item = Arc<Machine>>, cut: Instant) {
        self.set(machines, Feed::CutAt(cut));
    }

    fn set(&self, all: impl IntoIterator<Item = Arc<Machine>>, feed: Feed) {
        let mut new = Machines { feed, ..Machines::default() };
        all.into_iter().for_each(|machine| new.put(machine));
        self.machines.send_modify(|machines| {
            new.lent = std::mem::take(&mut machines.lent);
            *machines = new;
        });
    }

    /// Addresses are lent, too: until it is told which, one that no record has may be anybody's.
    pub fn expect_leases(&self) {
        let none = Lent::new([], Feed::NeverHeard);
        self.machines.send_modify(|machines| machines.lent = none);
    }

    /// These are all the leases there are: their feed has caught up, and is live from now on.
    pub fn replace_leases(&self, leases: impl IntoIterator<Item = (IpAddr, Lease)>) {
        let new = Lent::new(leases, Feed::Live);
        self.machines.send_modify(|machines| machines.lent = new);
    }

    /// These are all the leases there were when their feed was cut, at `cut`.
    pub fn restore_leases(&self, leases: impl IntoIterator<Item = (IpAddr, Lease)>, cut: Instant) {
        let old = Lent::new(leases, Feed::CutAt(cut));
        self.machines.send_modify(|machines| machines.lent = old);
    }

    /// Who lends addresses is out of reach. Said again, it counts from the first time.
    pub fn cut_leases(&self, now: Instant) {
        self.machines.send_modify(|machines| {
            machines.lent.feed.iter_mut().for_each(|feed| feed.cut(now));
        });
    }

    /// Applies `changes` together.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        self.machines.send_modify(|machines| {
            for change in changes {
                match change {
                    Change::Put(machine) => machines.put(machine),
                    Change::Remove(id) => machines.remove(id),
                    Change::Lend(address, lease) => machines.lent.keep(address, lease),
                }
            }
        });
    }

    /// The control plane is out of reach. Said again, it counts from the first time.
    pub fn cut(&self, now: Instant) {
        self.machines.send_modify(|machines| machines.feed.cut(now));
    }
}

impl Machines {
    /// Whom an address speaks for that no record has.
    fn borrower(&self, address: IpAddr, secrets: bool, now: Instant) -> Lookup {
        let Some(feed) = self.lent.feed else { return Lookup::Unknown };
        let Some(fresh) = feed.tells_secrets(now) else { return Lookup::NotReady };
        let lease = self.lent.of(address, now);
        let machine = lease.and_then(|lease| self.by_id.get(self.by_mac.get(&lease.mac)?));
        match machine {
            Some(machine) => Lookup::Known { machine: machine.clone(), secrets: secrets && fresh },
            None => Lookup::Unknown,
        }
    }

    fn put(&mut self, machine: Arc<Machine>) {
        self.remove(machine.id);
        for address in machine.addresses() {
            let claims = self.by_address.entry(address).or_default();
            let older = claims.partition_point(|other| age(other) < age(&machine));
            // A record may name an address twice, on an interface and as the instance's own.
            if claims.get(older).is_none_or(|other| other.id != machine.id) {
                claims.insert(older, machine.clone());
            }
            if claims.len() > 1 {
                tracing::warn!(%address, machine.id = %machine.id, "another machine claims this address too");
            }
        }
        self.by_mac.extend(machine.macs().map(|mac| (mac, machine.id)));
        if let Some(name) = machine.lookup_id() {
            self.by_name.insert(name, machine.clone());
        }
        self.by_id.insert(machine.id, machine);
    }

    fn remove(&mut self, id: HardwareId) {
        let Some(old) = self.by_id.remove(&id) else { return };
        if let Some(name) = old.lookup_id() {
            self.by_name.remove(&name);
        }
        for mac in old.macs() {
            // It may have passed to another machine meanwhile.
            if self.by_mac.get(&mac) == Some(&id) {
                self.by_mac.remove(&mac);
            }
        }
        for address in old.addresses() {
            let Some(claims) = self.by_address.get_mut(&address) else { continue };
            claims.retain(|machine| machine.id != id);
            if claims.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }
}

/// Smaller for older records; of two made at once one is smaller all the same.
fn age(machine: &Machine) -> (SystemTime, HardwareId) {
    (machine.created, machine.id)
}

#[cfg(test)]
mod tests;
