//! Which machine an address speaks for: all of them in memory, so that no answer waits for anybody.
//!
//! A change is applied under one lock, so a reader sees all of it or nothing: an address that moves to another machine
//! never shows the old one's data beside the new one's. Two machines may claim an address for a while, when two records
//! change one after the other; the older record has it, and the younger one as soon as the older lets go.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tinwright::HardwareId;
use tokio::sync::watch;

use crate::machine::Machine;
use runtime::prefix::normal;

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
    feed: Feed,
}

#[derive(Clone, Copy, Debug, Default)]
enum Feed {
    #[default]
    NeverHeard,
    Live,
    CutAt(Instant),
}

/// One thing that happened to the machines.
#[derive(Clone, Debug)]
pub enum Change {
    /// This machine is there, new or changed.
    Put(Arc<Machine>),
    /// This one is gone.
    Remove(HardwareId),
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
        let secrets = match machines.feed {
            Feed::NeverHeard => return Lookup::NotReady,
            Feed::Live => true,
            Feed::CutAt(when) => now.saturating_duration_since(when) <= SECRETS_LAST,
        };
        let claims = machines.by_address.get(&normal(address));
        match claims.and_then(|claims| claims.first()) {
            Some(machine) => Lookup::Known { machine: machine.clone(), secrets },
            None => Lookup::Unknown,
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
        let secrets = match machines.feed {
            Feed::NeverHeard => return Lookup::NotReady,
            Feed::Live => true,
            Feed::CutAt(when) => now.saturating_duration_since(when) <= SECRETS_LAST,
        };
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
        let mut new = Machines { feed: Feed::Live, ..Machines::default() };
        machines.into_iter().for_each(|machine| new.put(machine));
        self.machines.send_replace(new);
    }

    /// These are all the machines there were when the feed was cut, at `cut`.
    pub fn restore(&self, machines: impl IntoIterator<Item = Arc<Machine>>, cut: Instant) {
        let mut old = Machines { feed: Feed::CutAt(cut), ..Machines::default() };
        machines.into_iter().for_each(|machine| old.put(machine));
        self.machines.send_replace(old);
    }

    /// Applies `changes` together.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        self.machines.send_modify(|machines| {
            for change in changes {
                match change {
                    Change::Put(machine) => machines.put(machine),
                    Change::Remove(id) => machines.remove(id),
                }
            }
        });
    }

    /// The control plane is out of reach. Said again, it counts from the first time.
    pub fn cut(&self, now: Instant) {
        self.machines.send_modify(|machines| {
            if let Feed::Live = machines.feed {
                machines.feed = Feed::CutAt(now);
            }
        });
    }
}

impl Machines {
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
mod tests {
    use super::*;
    use crate::fixture::{address, any_machine, node1, node2};
    use proptest::prelude::*;

    fn index(machines: impl IntoIterator<Item = Machine>) -> Index {
        let index = Index::new();
        index.replace(machines.into_iter().map(Arc::new));
        index
    }

    fn who(index: &Index, address: &str) -> Option<HardwareId> {
        match index.lookup(address.parse().unwrap(), Instant::now()) {
            Lookup::Known { machine, .. } => Some(machine.id),
            Lookup::Unknown | Lookup::NotReady => None,
        }
    }

    fn tells_secrets(index: &Index, now: Instant) -> bool {
        match index.lookup("198.51.100.50".parse().unwrap(), now) {
            Lookup::Known { secrets, .. } => secrets,
            Lookup::Unknown | Lookup::NotReady => panic!("node1 is there"),
        }
    }

    /// `machine` on `ip` alone.
    fn moved(machine: Machine, ip: &str) -> Machine {
        let mut machine = machine;
        machine.instance = None;
        machine.nics[0].addresses = vec![address(ip, 24, false)];
        machine
    }

    #[test]
    fn nobody_is_known_before_the_feed_has_caught_up() {
        let index = Index::new();
        index.apply([Change::Put(Arc::new(node1()))]);
        let lookup = index.lookup("198.51.100.50".parse().unwrap(), Instant::now());
        assert!(matches!(lookup, Lookup::NotReady));
    }

    #[test]
    fn a_machine_answers_for_every_address_it_has() {
        let index = index([node1()]);
        for address in ["198.51.100.50", "192.0.2.9", "2001:db8::50", "::ffff:198.51.100.50"] {
            assert_eq!(who(&index, address), Some(node1().id), "{address}");
        }
        assert_eq!(who(&index, "198.51.100.77"), None);
    }

    #[test]
    fn an_address_given_up_answers_for_nobody() {
        let index = index([node1()]);
        index.apply([Change::Put(Arc::new(moved(node1(), "198.51.100.70")))]);
        assert_eq!(who(&index, "198.51.100.50"), None);
        assert_eq!(who(&index, "198.51.100.70"), Some(node1().id));
        index.apply([Change::Remove(node1().id)]);
        assert_eq!(who(&index, "198.51.100.70"), None);
    }

    #[test]
    fn a_secret_name_is_a_machines_for_as_long_as_its_instance() {
        let (index, name) = (index([node1(), node2()]), crate::fixture::LOOKUP);
        let named = || match index.lookup_named(name, Instant::now()) {
            Lookup::Known { machine, .. } => Some(machine.id),
            Lookup::Unknown | Lookup::NotReady => None,
        };
        assert_eq!(named(), Some(node1().id));
        index.apply([Change::Put(Arc::new(Machine { instance: None, ..node1() }))]);
        assert_eq!(named(), None);
    }

    #[test]
    fn a_contested_address_is_the_older_records_until_it_lets_go() {
        let young = moved(node2(), "198.51.100.50");
        let young = Machine { created: node1().created + Duration::from_secs(1), ..young };
        let index = index([young.clone(), node1()]);
        assert_eq!(who(&index, "198.51.100.50"), Some(node1().id));
        index.apply([Change::Put(Arc::new(moved(node1(), "198.51.100.70")))]);
        assert_eq!(who(&index, "198.51.100.50"), Some(young.id));
    }

    #[test]
    fn what_a_new_listing_does_not_name_is_gone() {
        let index = index([node1(), node2()]);
        index.replace([Arc::new(node2())]);
        assert_eq!(who(&index, "198.51.100.50"), None);
        assert_eq!(who(&index, "198.51.100.60"), Some(node2().id));
    }

    #[test]
    fn secrets_are_told_for_fifteen_minutes_of_silence() {
        let (index, cut) = (index([node1()]), Instant::now());
        assert!(tells_secrets(&index, cut));
        index.cut(cut);
        index.cut(cut + SECRETS_LAST);
        assert!(tells_secrets(&index, cut + SECRETS_LAST));
        assert!(!tells_secrets(&index, cut + SECRETS_LAST + Duration::from_secs(1)));
        index.replace([Arc::new(node1())]);
        assert!(tells_secrets(&index, cut + 2 * SECRETS_LAST));
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let ids = [node1().id, node2().id];
        let machine = (any_machine(), prop::sample::select(ids.to_vec()), 0u64..2);
        prop_oneof![
            3 => machine.prop_map(|(mut machine, id, age)| {
                // Few addresses, so that they are contested.
                let ip = format!("192.0.2.{}", machine.nics.len());
                machine.nics.iter_mut().for_each(|nic| nic.addresses = vec![address(&ip, 24, false)]);
                let created = SystemTime::UNIX_EPOCH + Duration::from_secs(age);
                Change::Put(Arc::new(Machine { id, created, ..machine }))
            }),
            1 => prop::sample::select(ids.to_vec()).prop_map(Change::Remove),
        ]
    }

    proptest! {
        #[test]
        fn changes_one_by_one_end_where_a_listing_does(changes in prop::collection::vec(any_change(), 0..12)) {
            let (changed, mut there) = (index([]), HashMap::new());
            for change in changes {
                match &change {
                    Change::Put(machine) => drop(there.insert(machine.id, machine.clone())),
                    Change::Remove(id) => drop(there.remove(id)),
                }
                changed.apply([change]);
            }
            let listed = Index::new();
            listed.replace(there.into_values());
            for last in 0..4 {
                let address = format!("192.0.2.{last}");
                prop_assert_eq!(who(&changed, &address), who(&listed, &address));
            }
            prop_assert_eq!(changed.machines.borrow().by_address.len(), listed.machines.borrow().by_address.len());
        }
    }
}
