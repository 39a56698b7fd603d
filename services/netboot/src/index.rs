//! Everything netboot knows, in memory: what the three feeds told last, found by MAC and by address.
//!
//! ```text
//! hardware ─┐
//! instance ─┼─ feed::follow ─▶ Index ─▶ Known: the machine, its interface, its instance, whether its workflow wants it
//! workflow ─┘
//! ```
//!
//! A packet is answered from here and from nowhere else. While a feed is cut, what it told stays. What the records say in
//! netboot's own terms is worked out when a feed tells, not when a machine asks: machines ask far more often than they change.

mod ports;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::quality::RandomState;
use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::hardware::v1::netboot::LocalBoot;
use tinwright::hardware::v1::{Hardware, Interface};
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{Workflow, WorkflowState};
use tokio::sync::watch;

use crate::Mac;
use crate::decision::{FeedState, MachineFacts};
use crate::facts;
use dhcp::Reservation;
use dhcp::relay::Relayed;
use ports::Ports;

/// The index. Cheap to share.
#[derive(Debug, Default)]
pub struct Index {
    tables: RwLock<Tables>,
    live: watch::Sender<Live>,
}

/// Which feeds are live, and which have ever been.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    now: [bool; 3],
    ever: [bool; 3],
}

const HARDWARE: usize = 0;
const INSTANCE: usize = 1;
const WORKFLOW: usize = 2;

#[derive(Debug, Default)]
struct Tables {
    hardware: HashMap<String, Arc<Hardware>>,
    by_mac: HashMap<Mac, Arc<Known>, RandomState>,
    by_address: HashMap<IpAddr, Arc<Known>, RandomState>,
    ports: Ports,
    instances: HashMap<String, Arc<Instance>>,
    /// Hardware id ─▶ id of the instance that occupies it.
    occupants: HashMap<String, String>,
    /// Hardware id ─▶ the workflows on it that are not over, and whether each has something to run there.
    workflows: HashMap<String, HashMap<String, bool>>,
    /// Workflow id ─▶ hardware id, of those.
    worked_on: HashMap<String, String>,
}

/// What is known of one machine at one interface.
#[derive(Debug)]
pub struct Known {
    /// What it goes by.
    pub id: HardwareId,
    /// Its record.
    pub hardware: Arc<Hardware>,
    /// The interface.
    pub mac: Mac,
    /// What occupies it.
    pub instance: Option<Arc<Instance>>,
    /// Whether a workflow has something to run on it.
    pub worker_wanted: bool,
    /// Whether a workflow on it is not over.
    pub worked_on: bool,
    /// Where the record has the interface.
    place: usize,
    address: Option<IpAddr>,
    machine: MachineFacts,
    reservation: Reservation,
}

impl Known {
    /// The machine at the interface that is in this `place` of its record, if that has a MAC, and the record an id of ours.
    fn new(
        hardware: Arc<Hardware>,
        place: usize,
        instance: Option<Arc<Instance>>,
        [worked_on, worker_wanted]: [bool; 2],
    ) -> Option<Self> {
        let (interface, occupant) = (hardware.interfaces.get(place)?, instance.as_deref());
        let (id, mac) = (hardware.id.parse().ok()?, interface.mac.parse().ok()?);
        let address = facts::address(interface);
        let machine = facts::machine(&hardware, interface, occupant, worker_wanted);
        let reservation = facts::reservation(mac, interface, occupant);
        Some(Self {
            id,
            hardware,
            mac,
            instance,
            worker_wanted,
            worked_on,
            place,
            address,
            machine,
            reservation,
        })
    }

    /// Its interface in the record.
    pub fn interface(&self) -> Option<&Interface> {
        self.hardware.interfaces.get(self.place)
    }

    /// What the boot decision goes by.
    pub fn machine(&self) -> &MachineFacts {
        &self.machine
    }

    /// What DHCP tells it.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Whether a script sends it to its disk by iPXE itself.
    pub fn wants_sanboot(&self) -> bool {
        let netboot = self.interface().and_then(|interface| interface.netboot.as_ref());
        netboot.is_some_and(|netboot| netboot.local_boot() == LocalBoot::Sanboot)
    }

    /// The address that the record gives to the interface.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Whether `mac` is one of its interfaces.
    pub fn owns(&self, mac: Mac) -> bool {
        self.hardware.interfaces.iter().any(|interface| interface.mac.parse() == Ok(mac))
    }

    /// Whether it may speak from `address`: one that its record gives to any of its interfaces.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut all = self.hardware.interfaces.iter().filter_map(facts::address);
        self.address == Some(address) || all.any(|own| own == address)
    }
}

impl Index {
    /// The machine with this MAC.
    pub fn by_mac(&self, mac: Mac) -> Option<Arc<Known>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_mac.get(&mac).cloned()
    }

    /// The machine that is plugged in where `relayed` says, if a record names the place.
    pub fn by_port(&self, relayed: &Relayed<'_>) -> Option<Arc<Known>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let (id, mac) = tables.ports.find(relayed)?;
        tables.all(id).find(|known| known.mac == mac)
    }

    /// The machine with this address.
    pub fn by_address(&self, address: IpAddr) -> Option<Arc<Known>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_address.get(&address).cloned()
    }

    /// The machine with this address: by its record, else by the interface that it is lent to, its `holder`.
    pub fn at(&self, address: IpAddr, holder: impl FnOnce() -> Option<Mac>) -> Option<Arc<Known>> {
        self.by_address(address).or_else(|| self.by_mac(holder()?))
    }

    /// The machine that goes by `id`, at its first interface.
    pub fn by_id(&self, id: &str) -> Option<Arc<Known>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.all(id).next()
    }

    /// The machine that people call `name`: its own name, or a host name that its instance or DHCP gives it. Looks through
    /// all machines: for people's questions, not for packets.
    pub fn by_name(&self, name: &str) -> Option<Arc<Known>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let called = |hardware: &&Arc<Hardware>| tables.is_called(hardware, name);
        tables.all(&tables.hardware.values().find(called)?.id).next()
    }

    /// The workflows that have something to run on the machine that goes by `id`, in id order.
    pub fn waiting(&self, id: &str) -> Vec<String> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let waiting = tables.workflows.get(id).into_iter().flatten().filter(|(_, wants)| **wants);
        let mut waiting: Vec<_> = waiting.map(|(id, _)| id.clone()).collect();
        waiting.sort();
        waiting
    }

    /// How many machines are known.
    pub fn machines(&self) -> usize {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).hardware.len()
    }

    /// The feeds that are cut, by name.
    pub fn cut(&self) -> Vec<&'static str> {
        let live = self.live.borrow().now;
        let named = ["hardware", "instance", "workflow"].into_iter().zip(live);
        named.filter(|(_, live)| !live).map(|(name, _)| name).collect()
    }

    /// Whether what is known is what is so.
    pub fn feed(&self) -> FeedState {
        let live = *self.live.borrow();
        match (live.ever == [true; 3], live.now == [true; 3]) {
            (false, _) => FeedState::Incomplete,
            (true, false) => FeedState::Stale,
            (true, true) => FeedState::Live,
        }
    }

    /// Whether every feed has told everything once: before that, a machine without a record may just not be known yet.
    pub fn is_told(&self) -> bool {
        self.live.borrow().ever == [true; 3]
    }

    /// Whether the record of any machine reserves `address`.
    pub fn is_reserved(&self, address: IpAddr) -> bool {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_address.contains_key(&address)
    }

    /// Resolves once every feed has told everything once.
    pub async fn ready(&self) {
        let mut live = self.live.subscribe();
        // The sender lives as long as the index does.
        let _ready = live.wait_for(|live| live.ever == [true; 3]).await;
    }

    /// What was told so far is a copy of all there was: machines are answered from it, though no feed is live.
    pub fn restored(&self) {
        self.live.send_modify(|live| live.ever = [true; 3]);
    }

    /// Takes news of hardware.
    pub fn hardware(&self, news: FeedEvent<Hardware>) {
        self.take(HARDWARE, news, |tables, id| tables.drop_hardware(id), Tables::put_hardware);
    }

    /// Takes news of instances.
    pub fn instance(&self, news: FeedEvent<Instance>) {
        self.take(INSTANCE, news, |tables, id| tables.drop_instance(id), Tables::put_instance);
    }

    /// Takes news of workflows.
    pub fn workflow(&self, news: FeedEvent<Workflow>) {
        self.take(WORKFLOW, news, |tables, id| tables.drop_workflow(id), Tables::put_workflow);
    }

    fn take<T>(
        &self,
        feed: usize,
        news: FeedEvent<T>,
        drop: impl Fn(&mut Tables, &str),
        put: impl Fn(&mut Tables, T),
    ) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        match news {
            FeedEvent::Snapshot(all) => {
                // In one step for readers: they wait for the lock.
                for id in tables.ids(feed) {
                    drop(&mut tables, &id);
                }
                all.into_iter().for_each(|object| put(&mut tables, object));
                self.live.send_modify(|live| (live.now[feed], live.ever[feed]) = (true, true));
            }
            FeedEvent::Put(object) => put(&mut tables, object),
            FeedEvent::Deleted(id) => drop(&mut tables, &id),
            FeedEvent::Disconnected => self.live.send_modify(|live| live.now[feed] = false),
        }
    }
}

impl Tables {
    /// What is known of the machine that goes by `id`, at each of its interfaces.
    fn all(&self, id: &str) -> impl Iterator<Item = Arc<Known>> {
        let occupant = self.occupants.get(id).and_then(|id| self.instances.get(id));
        let workflows = self.workflows.get(id);
        let wanted = workflows.is_some_and(|all| all.values().any(|wants| *wants));
        let work = [workflows.is_some(), wanted];
        self.hardware.get(id).into_iter().flat_map(move |hardware| {
            let at = move |place| Known::new(hardware.clone(), place, occupant.cloned(), work);
            (0..hardware.interfaces.len()).filter_map(at).map(Arc::new)
        })
    }

    /// The same from the last interface on: of several with one address the first one stands in the end.
    fn last_to_first(&self, id: &str) -> Vec<Arc<Known>> {
        let mut all: Vec<_> = self.all(id).collect();
        all.reverse();
        all
    }

    /// Works out anew what is known of a machine that something else than its record has changed of. What has passed to
    /// another machine meanwhile stays that one's.
    fn refresh(&mut self, id: &str) {
        for known in self.last_to_first(id) {
            let is_own = |now: &&mut Arc<Known>| now.hardware.id == id;
            let address = known.address();
            let by_address = address.and_then(|own| self.by_address.get_mut(&own).filter(is_own));
            if let Some(now) = by_address {
                now.clone_from(&known);
            }
            if let Some(now) = self.by_mac.get_mut(&known.mac).filter(is_own) {
                *now = known;
            }
        }
    }

    fn is_called(&self, hardware: &Hardware, name: &str) -> bool {
        let is = |other: &str| other.eq_ignore_ascii_case(name);
        let occupant = self.occupants.get(&hardware.id).and_then(|id| self.instances.get(id));
        let mut by_dhcp = hardware.interfaces.iter().filter_map(|i| i.dhcp.as_ref());
        is(&hardware.name)
            || occupant.is_some_and(|instance| is(&instance.hostname))
            || by_dhcp.any(|dhcp| is(&dhcp.hostname))
    }

    fn ids(&self, feed: usize) -> Vec<String> {
        match feed {
            HARDWARE => self.hardware.keys().cloned().collect(),
            INSTANCE => self.instances.keys().cloned().collect(),
            _ => self.worked_on.keys().cloned().collect(),
        }
    }

    fn put_hardware(&mut self, mut hardware: Hardware) {
        self.drop_hardware(&hardware.id);
        // Decoding made room for four, each half a kilobyte; most machines have one or two.
        hardware.interfaces.shrink_to_fit();
        self.ports.put(&hardware);
        let id = hardware.id.clone();
        self.hardware.insert(id.clone(), Arc::new(hardware));
        for known in self.last_to_first(&id) {
            if let Some(address) = known.address() {
                self.by_address.insert(address, known.clone());
            }
            self.by_mac.insert(known.mac, known);
        }
    }

    /// Forgets a machine, but not what has passed to another one meanwhile.
    fn drop_hardware(&mut self, id: &str) {
        let Some(old) = self.hardware.remove(id) else { return };
        self.ports.drop(&old);
        for interface in &old.interfaces {
            let is_own = |known: &Arc<Known>| known.hardware.id == id;
            if let Ok(mac) = interface.mac.parse()
                && self.by_mac.get(&mac).is_some_and(is_own)
            {
                self.by_mac.remove(&mac);
            }
            if let Some(address) = facts::address(interface)
                && self.by_address.get(&address).is_some_and(is_own)
            {
                self.by_address.remove(&address);
            }
        }
    }

    fn put_instance(&mut self, instance: Instance) {
        self.drop_instance(&instance.id);
        // One that failed before anything was done to the machine has let go of it.
        if instance.released {
            return;
        }
        let machine = instance.hardware_id.clone();
        self.occupants.insert(machine.clone(), instance.id.clone());
        self.instances.insert(instance.id.clone(), Arc::new(instance));
        self.refresh(&machine);
    }

    fn drop_instance(&mut self, id: &str) {
        if let Some(old) = self.instances.remove(id)
            && self.occupants.get(&old.hardware_id).is_some_and(|occupant| occupant == id)
        {
            self.occupants.remove(&old.hardware_id);
            self.refresh(&old.hardware_id);
        }
    }

    fn put_workflow(&mut self, workflow: Workflow) {
        self.drop_workflow(&workflow.id);
        if is_over(&workflow) {
            return;
        }
        let Workflow { id, hardware_id: machine, wants_machine, .. } = workflow;
        self.workflows.entry(machine.clone()).or_default().insert(id.clone(), wants_machine);
        self.refresh(&machine);
        self.worked_on.insert(id, machine);
    }

    fn drop_workflow(&mut self, id: &str) {
        let Some(machine) = self.worked_on.remove(id) else { return };
        if let Some(workflows) = self.workflows.get_mut(&machine) {
            workflows.remove(id);
            if workflows.is_empty() {
                self.workflows.remove(&machine);
            }
        }
        self.refresh(&machine);
    }
}

/// Whether nothing more comes of it; one in a state that only a newer server knows is not over.
fn is_over(workflow: &Workflow) -> bool {
    match workflow.state() {
        WorkflowState::Success
        | WorkflowState::Failed
        | WorkflowState::Timeout
        | WorkflowState::Cancelled => true,
        WorkflowState::Unspecified
        | WorkflowState::Pending
        | WorkflowState::Preparing
        | WorkflowState::Running
        | WorkflowState::Post => false,
    }
}

#[cfg(test)]
mod tests;
