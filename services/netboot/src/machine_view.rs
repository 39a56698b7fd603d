//! The machines in memory, by interface: with the inputs of the boot decision and the DHCP reservation.
//!
//! All packets and requests are answered from this data. While a feed is disconnected, its records stay.

mod convert;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use dhcp::Reservation;
use dhcp::relay::Relayed;
use fleet::machine::{attached_addresses, reserved_address};
use fleet::{
    FeedKind, FeedStates, FleetMachine, Freshness, MachineChange, MachineProjection, Observer,
    ViewIndex,
};
use tinwright::HardwareId;
use tinwright::hardware::v1::Interface;
use tinwright::hardware::v1::netboot::LocalBoot;
use tinwright::instance::v1::instance::AttachedAddress;

pub use self::convert::{PRIVATE_FILES, ipxe_script, parse_hex};
use crate::Mac;
use crate::decision::MachineFacts;

/// The feeds that boot decisions depend on.
const FEEDS: [FeedKind; 3] = [FeedKind::Hardware, FeedKind::Instance, FeedKind::Workflow];

/// A machine, seen from one of its interfaces.
#[derive(Debug)]
pub struct MachineView {
    machine: Arc<FleetMachine>,
    /// The interface.
    pub mac: Mac,
    /// The interface's position in the hardware record.
    position: usize,
    /// The address that DHCP gives to the interface, unless another machine claimed it first: the granted one, else the reserved one.
    pub address: Option<IpAddr>,
    /// The inputs of the boot decision.
    pub facts: MachineFacts,
    /// The values that DHCP sends to the interface.
    pub reservation: Reservation,
}

impl Deref for MachineView {
    type Target = FleetMachine;

    fn deref(&self) -> &FleetMachine {
        &self.machine
    }
}

impl MachineProjection for MachineView {
    /// The circuit-id of the relay port.
    type Key = Vec<u8>;

    fn project(machine: &Arc<FleetMachine>) -> Vec<Self> {
        let interfaces = machine.hardware.interfaces.iter().enumerate();
        interfaces.filter_map(|(position, one)| Self::new(machine, position, one)).collect()
    }

    fn macs(&self) -> impl Iterator<Item = Mac> {
        std::iter::once(self.mac)
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let granted = attached_addresses(self.instance.as_deref(), self.mac);
        let granted = granted.filter_map(|it| it.address.parse::<IpAddr>().ok());
        let reserved = self.interface().and_then(reserved_address);
        let others = reserved.into_iter().chain(granted).map(|own| own.to_canonical());
        self.address.into_iter().chain(others)
    }

    fn key(&self) -> Option<Vec<u8>> {
        self.reservation.port.as_ref().map(|port| port.circuit_id.clone())
    }
}

impl MachineView {
    /// Returns the view of `machine` at the interface at this `position`; none if that has no MAC.
    fn new(machine: &Arc<FleetMachine>, position: usize, interface: &Interface) -> Option<Self> {
        let (mac, instance) = (interface.mac.parse().ok()?, machine.instance.as_deref());
        let own = |address: &IpAddr| !machine.is_contested(*address);
        let address = convert::dhcp_address(mac, interface, instance);
        let address = address.and_then(|own| own.address.parse::<IpAddr>().ok());
        let address = address.map(|own| own.to_canonical()).filter(own);
        let mut reservation = convert::reservation(mac, interface, instance);
        if address.is_none() {
            reservation.address = None;
        }
        let (machine, facts) = (machine.clone(), convert::machine_facts(machine, interface));
        Some(Self { machine, mac, position, address, facts, reservation })
    }

    /// Returns the machine's name for the log, or its id if it has none.
    pub fn label(&self) -> &str {
        let hardware = &self.hardware;
        if hardware.name.is_empty() { &hardware.id } else { &hardware.name }
    }

    /// Returns the record of the interface.
    pub fn interface(&self) -> Option<&Interface> {
        self.hardware.interfaces.get(self.position)
    }

    /// True if scripts boot its disk with iPXE's `sanboot`.
    pub fn wants_sanboot(&self) -> bool {
        let netboot = self.interface().and_then(|interface| interface.netboot.as_ref());
        netboot.is_some_and(|netboot| netboot.local_boot() == LocalBoot::Sanboot)
    }

    /// True if `mac` is one of the machine's interfaces.
    pub fn owns(&self, mac: Mac) -> bool {
        self.all_macs().any(|own| own == mac)
    }

    /// Returns the Ethernet addresses of all interfaces of the machine.
    pub fn all_macs(&self) -> impl Iterator<Item = Mac> {
        self.machine.macs()
    }

    /// True if `address` is a reserved address of any interface of the machine, or is granted to one.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut reserved = self.hardware.interfaces.iter().filter_map(reserved_address);
        let is = |granted: &AttachedAddress| granted.address.parse() == Ok(address);
        let is_granted = |mac| attached_addresses(self.instance.as_deref(), mac).any(is);
        let is_own = reserved.any(|own| own == address) || self.all_macs().any(is_granted);
        is_own && !self.is_contested(address)
    }
}

/// The views of all interfaces, with netboot's own lookups.
#[derive(Debug, Default)]
pub struct Index {
    views: ViewIndex<MachineView>,
    /// The addresses in the records of instances, whatever their states, with their machines.
    of_instances: RwLock<HashMap<IpAddr, HardwareId>>,
}

impl Deref for Index {
    type Target = ViewIndex<MachineView>;

    fn deref(&self) -> &ViewIndex<MachineView> {
        &self.views
    }
}

impl Observer for Index {
    fn machines(&self, changes: &[MachineChange], feeds: &FeedStates) {
        {
            let mut all = self.of_instances.write().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                for gone in instance_addresses(change.before.as_ref()) {
                    if all.get(&gone) == Some(&change.id) {
                        all.remove(&gone);
                    }
                }
                all.extend(
                    instance_addresses(change.after.as_ref()).map(|address| (address, change.id)),
                );
            }
        }
        self.views.machines(changes, feeds);
    }
}

/// Returns the addresses in the record of the machine's instance.
fn instance_addresses(machine: Option<&Arc<FleetMachine>>) -> impl Iterator<Item = IpAddr> {
    let ips = machine.and_then(|it| it.instance.as_deref()).into_iter().flat_map(|it| &it.ips);
    ips.filter_map(|ip| ip.address.parse().ok())
}

impl Index {
    /// Returns the machine at the relay port of `relayed`. A match of the whole circuit-id wins over one of its beginning, then
    /// the record with the most specific port wins.
    pub fn by_port(&self, relayed: &Relayed<'_>) -> Option<Arc<MachineView>> {
        let snapshot = self.read();
        relayed.circuits().find_map(|circuit| {
            let ports = snapshot.by_key(circuit).iter();
            let ports = ports.filter_map(|view| Some((view, view.reservation.port.as_ref()?)));
            let here = ports.filter(|(_, port)| port.matches(relayed));
            let best = here.max_by_key(|(view, port)| (port.specificity(), Reverse(view.id)));
            best.map(|(view, _)| view.clone())
        })
    }

    /// Returns the machine at this address: the one that reserves it, else that of the interface `holder`, which leases it.
    pub fn at(
        &self,
        address: IpAddr,
        holder: impl FnOnce() -> Option<Mac>,
    ) -> Option<Arc<MachineView>> {
        self.by_address(address).or_else(|| self.by_mac(holder()?))
    }

    /// Returns the machine with this id, at its first interface.
    pub fn by_id(&self, id: &str) -> Option<Arc<MachineView>> {
        self.views.by_id(id.parse().ok()?)
    }

    /// Returns the machine with this name, or with this host name in its instance or in DHCP. Scans all machines: for API
    /// calls, not for packets.
    pub fn by_name(&self, name: &str) -> Option<Arc<MachineView>> {
        self.read().machines().find(|view| is_named(view, name)).cloned()
    }

    /// Returns the names of the feeds that are not connected.
    pub fn disconnected_feeds(&self) -> Vec<&'static str> {
        let feeds = self.read().feeds;
        let disconnected = |feed: &FeedKind| feeds.get(*feed) != Freshness::Live;
        FEEDS.into_iter().filter(disconnected).map(Into::into).collect()
    }

    /// Returns the freshness of the feeds that boot decisions depend on.
    pub fn feed(&self) -> Freshness {
        self.freshness(&FEEDS)
    }

    /// True if every feed has synced once. Before that, the record of a machine may still be missing.
    pub fn is_synced(&self) -> bool {
        self.feed() != Freshness::NeverSynced
    }

    /// True if any machine reserves `address`, contested or not.
    pub fn is_reserved(&self, address: IpAddr) -> bool {
        let snapshot = self.read();
        snapshot.by_address(address).is_some() || snapshot.is_contested(address)
    }

    /// True if `address` is one of an instance, but not of one on the machine with the interface `mac`.
    pub fn is_of_other_instance(&self, address: IpAddr, mac: Mac) -> bool {
        let all = self.of_instances.read().unwrap_or_else(PoisonError::into_inner);
        let machine = all.get(&address);
        machine.is_some_and(|id| self.by_mac(mac).is_none_or(|view| view.id != *id))
    }

    /// Resolves once every feed has synced.
    pub async fn ready(&self) {
        self.views.ready(&FEEDS).await;
    }
}

fn is_named(view: &MachineView, name: &str) -> bool {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    let mut by_dhcp = view.hardware.interfaces.iter().filter_map(|i| i.dhcp.as_ref());
    is(&view.hardware.name)
        || view.instance.as_ref().is_some_and(|instance| is(&instance.hostname))
        || by_dhcp.any(|dhcp| is(&dhcp.hostname))
}

#[cfg(test)]
mod tests;
