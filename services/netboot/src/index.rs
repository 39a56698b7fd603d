//! Everything netboot knows, in memory: what the three feeds told last, found by MAC and by address.
//!
//! ```text
//! hardware ─┐
//! instance ─┼─ feed::follow ─▶ Index ─▶ Known: the machine, its interface, its instance, whether its workflow wants it
//! workflow ─┘
//! ```
//!
//! A packet is answered from here and from nowhere else. While a feed is cut, what it told stays.

mod ports;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use runtime::feed::News;
use tinwright::hardware::v1::{Hardware, Interface};
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::Workflow;
use tokio::sync::watch;

use crate::Mac;
use crate::decision::{Feed, Machine};
use crate::dhcp::Reservation;
use crate::dhcp::relay::Relayed;
use crate::facts;
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
    by_mac: HashMap<Mac, String>,
    by_address: HashMap<IpAddr, String>,
    ports: Ports,
    instances: HashMap<String, Arc<Instance>>,
    /// Hardware id ─▶ id of the instance that occupies it.
    occupants: HashMap<String, String>,
    /// Hardware id ─▶ ids of the workflows that have something to run on it.
    wanting: HashMap<String, HashSet<String>>,
    /// Workflow id ─▶ hardware id, of those.
    wanted: HashMap<String, String>,
}

/// What is known of one machine at one interface.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its record.
    pub hardware: Arc<Hardware>,
    /// The interface.
    pub mac: Mac,
    /// What occupies it.
    pub instance: Option<Arc<Instance>>,
    /// Whether a workflow has something to run on it.
    pub worker_wanted: bool,
}

impl Known {
    /// Its interface in the record.
    pub fn interface(&self) -> Option<&Interface> {
        self.hardware.interfaces.iter().find(|interface| interface.mac.parse() == Ok(self.mac))
    }

    /// What the boot decision goes by.
    pub fn machine(&self) -> Option<Machine> {
        let instance = self.instance.as_deref();
        Some(facts::machine(&self.hardware, self.interface()?, instance, self.worker_wanted))
    }

    /// What DHCP tells it.
    pub fn reservation(&self) -> Option<Reservation> {
        Some(facts::reservation(self.mac, self.interface()?, self.instance.as_deref()))
    }

    /// The address that the record gives to the interface.
    pub fn address(&self) -> Option<IpAddr> {
        facts::address(self.interface()?)
    }

    /// Whether it may speak from `address`: one that its record gives to any of its interfaces.
    pub fn has(&self, address: IpAddr) -> bool {
        self.hardware.interfaces.iter().filter_map(facts::address).any(|own| own == address)
    }
}

impl Index {
    /// The machine with this MAC.
    pub fn by_mac(&self, mac: Mac) -> Option<Known> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.known(tables.by_mac.get(&mac)?, Some(mac))
    }

    /// The machine that is plugged in where `relayed` says, if a record names the place.
    pub fn by_port(&self, relayed: &Relayed<'_>) -> Option<Known> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let (id, mac) = tables.ports.find(relayed)?;
        tables.known(id, Some(mac))
    }

    /// The machine with this address.
    pub fn by_address(&self, address: IpAddr) -> Option<Known> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let id = tables.by_address.get(&address)?;
        let speaks = |interface: &&Interface| facts::address(interface) == Some(address);
        let interface = tables.hardware.get(id)?.interfaces.iter().find(speaks)?;
        tables.known(id, interface.mac.parse().ok())
    }

    /// The machine that goes by `id`, at its first interface.
    pub fn by_id(&self, id: &str) -> Option<Known> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.known(id, None)
    }

    /// The machine that people call `name`: its own name, or a host name that its instance or DHCP gives it. Looks through
    /// all machines: for people's questions, not for packets.
    pub fn by_name(&self, name: &str) -> Option<Known> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let called = |hardware: &&Arc<Hardware>| tables.is_called(hardware, name);
        let id = tables.hardware.values().find(called)?.id.as_str();
        tables.known(id, None)
    }

    /// The workflows that have something to run on the machine that goes by `id`, in id order.
    pub fn waiting(&self, id: &str) -> Vec<String> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let mut waiting: Vec<_> = tables.wanting.get(id).into_iter().flatten().cloned().collect();
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
    pub fn feed(&self) -> Feed {
        if self.live.borrow().now == [true; 3] { Feed::Live } else { Feed::Stale }
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
    pub fn hardware(&self, news: News<Hardware>) {
        self.take(HARDWARE, news, |tables, id| tables.drop_hardware(id), Tables::put_hardware);
    }

    /// Takes news of instances.
    pub fn instance(&self, news: News<Instance>) {
        self.take(INSTANCE, news, |tables, id| tables.drop_instance(id), Tables::put_instance);
    }

    /// Takes news of workflows.
    pub fn workflow(&self, news: News<Workflow>) {
        self.take(WORKFLOW, news, |tables, id| tables.drop_workflow(id), Tables::put_workflow);
    }

    fn take<T>(
        &self,
        feed: usize,
        news: News<T>,
        drop: impl Fn(&mut Tables, &str),
        put: impl Fn(&mut Tables, T),
    ) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        match news {
            News::All(all) => {
                // In one step for readers: they wait for the lock.
                for id in tables.ids(feed) {
                    drop(&mut tables, &id);
                }
                all.into_iter().for_each(|object| put(&mut tables, object));
                self.live.send_modify(|live| (live.now[feed], live.ever[feed]) = (true, true));
            }
            News::Put(object) => put(&mut tables, object),
            News::Deleted(id) => drop(&mut tables, &id),
            News::Cut => self.live.send_modify(|live| live.now[feed] = false),
        }
    }
}

impl Tables {
    fn known(&self, id: &str, mac: Option<Mac>) -> Option<Known> {
        let hardware = self.hardware.get(id)?;
        let first = || hardware.interfaces.first()?.mac.parse().ok();
        let occupant = self.occupants.get(id).and_then(|id| self.instances.get(id));
        Some(Known {
            hardware: hardware.clone(),
            mac: mac.or_else(first)?,
            instance: occupant.cloned(),
            worker_wanted: self.wanting.get(id).is_some_and(|workflows| !workflows.is_empty()),
        })
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
            _ => self.wanted.keys().cloned().collect(),
        }
    }

    fn put_hardware(&mut self, mut hardware: Hardware) {
        self.drop_hardware(&hardware.id);
        // Decoding made room for four, each half a kilobyte; most machines have one or two.
        hardware.interfaces.shrink_to_fit();
        for interface in &hardware.interfaces {
            if let Ok(mac) = interface.mac.parse() {
                self.by_mac.insert(mac, hardware.id.clone());
            }
            if let Some(address) = facts::address(interface) {
                self.by_address.insert(address, hardware.id.clone());
            }
        }
        self.ports.put(&hardware);
        self.hardware.insert(hardware.id.clone(), Arc::new(hardware));
    }

    /// Forgets a machine, but not what has passed to another one meanwhile.
    fn drop_hardware(&mut self, id: &str) {
        let Some(old) = self.hardware.remove(id) else { return };
        self.ports.drop(&old);
        for interface in &old.interfaces {
            if let Ok(mac) = interface.mac.parse()
                && self.by_mac.get(&mac).is_some_and(|owner| owner == id)
            {
                self.by_mac.remove(&mac);
            }
            if let Some(address) = facts::address(interface)
                && self.by_address.get(&address).is_some_and(|owner| owner == id)
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
        self.occupants.insert(instance.hardware_id.clone(), instance.id.clone());
        self.instances.insert(instance.id.clone(), Arc::new(instance));
    }

    fn drop_instance(&mut self, id: &str) {
        if let Some(old) = self.instances.remove(id)
            && self.occupants.get(&old.hardware_id).is_some_and(|occupant| occupant == id)
        {
            self.occupants.remove(&old.hardware_id);
        }
    }

    fn put_workflow(&mut self, workflow: Workflow) {
        self.drop_workflow(&workflow.id);
        if workflow.wants_machine {
            let wanting = self.wanting.entry(workflow.hardware_id.clone()).or_default();
            wanting.insert(workflow.id.clone());
            self.wanted.insert(workflow.id, workflow.hardware_id);
        }
    }

    fn drop_workflow(&mut self, id: &str) {
        let Some(machine) = self.wanted.remove(id) else { return };
        if let Some(wanting) = self.wanting.get_mut(&machine) {
            wanting.remove(id);
            if wanting.is_empty() {
                self.wanting.remove(&machine);
            }
        }
    }
}

#[cfg(test)]
mod tests;
