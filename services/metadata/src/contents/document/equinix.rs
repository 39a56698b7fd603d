//! Equinix Metal's keys, for afterburn, Ignition and Talos.
//!
//! afterburn (`coreos/afterburn` `src/providers/packet/mod.rs`) reads no document without a number for `bonding.mode` and a
//! gateway in every address. It ignores the mode if no interface is in a bond.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::instance::{address, operating_system};
use crate::contents::RequestContext;
use crate::machine::{Address, Kind, Machine};
use crate::tree::seconds;

/// Returns the fields of Equinix Metal's document.
pub(super) fn fields(machine: &Machine, context: RequestContext) -> Value {
    let base = context.base_url();
    let extra = machine.instance.as_ref().map_or(&Value::Null, |instance| &instance.extra);
    let list = |key| extra.get(key).cloned().unwrap_or(json!([]));
    let object = |key| extra.get(key).cloned().unwrap_or(json!({}));
    json!({
        "id": machine.instance_id(),
        "hostname": machine.hostname(),
        "iqn": machine.extra("/iqn"),
        "operating_system": operating_system(machine),
        "plan": machine.plan,
        "class": machine.plan,
        "facility": machine.facility,
        "metro": machine.extra.get("metro").and_then(Value::as_str).unwrap_or(&machine.facility),
        "reserved": false,
        "tags": machine.tags(),
        "ssh_keys": machine.ssh_keys(),
        "network": network(machine),
        "api_url": base,
        "phone_home_url": format!("{base}/phone-home"),
        "user_state_url": format!("{base}/events"),
        "private_subnets": list("private_subnets"),
        "volumes": list("volumes"),
        "bgp_neighbors": list("bgp_neighbors"),
        "customdata": object("customdata"),
        "spot": object("spot"),
        "storage": object("storage"),
    })
}

/// Returns the interfaces and addresses.
pub(super) fn network(machine: &Machine) -> Value {
    let links = machine.links();
    let interfaces = machine.nics.iter().zip(&links).map(|(nic, link)| {
        let mut interface = json!({ "name": link.name, "mac": nic.mac.to_string() });
        if !nic.bond.is_empty() {
            interface["bond"] = nic.bond.as_str().into();
        }
        interface
    });
    let interfaces: Value = interfaces.collect();
    let bond = links.iter().find_map(|link| match &link.kind {
        Kind::Bond { mode, .. } => Some((mode, link.mac)),
        Kind::Interface | Kind::Vlan { .. } => None,
    });
    let mac = bond.map(|(_, mac)| mac).or(machine.primary_nic().map(|nic| nic.mac));
    let addresses: Value =
        addresses(machine).enumerate().map(|(n, own)| numbered(machine, n, own)).collect();
    json!({
        "bonding": {
            // Without a bond: 0, Linux's default.
            "mode": bonding_mode(machine).unwrap_or_default(),
            "link_aggregation": bond.map(|(mode, _)| mode),
            "mac": mac.map(|mac| mac.to_string()),
        },
        "interfaces": interfaces,
        "addresses": addresses,
    })
}

/// Returns the instance's addresses; if it has none, those that DHCP gives the interfaces. Then those that are attached.
fn addresses(machine: &Machine) -> impl Iterator<Item = &Address> {
    let own = machine.instance.as_ref().map_or(&[][..], |instance| &instance.addresses);
    let reserved = machine.nics.iter().filter(|_| own.is_empty()).flat_map(|nic| &nic.addresses);
    let attached = machine.nics.iter().flat_map(|nic| &nic.attached);
    own.iter().chain(reserved).chain(attached)
}

fn numbered(machine: &Machine, n: usize, own: &Address) -> Value {
    let network = own.network();
    let mut value = address(own);
    value["gateway"] = json!(gateway(machine, own));
    value["id"] = format!("{}-{n}", machine.instance_id()).into();
    value["created_at"] = machine.instance.as_ref().and_then(|i| seconds(i.created)).into();
    value["enabled"] = true.into();
    value["network"] = json!(network.addr());
    value["parent_block"] = json!({
        "network": network.addr(),
        "netmask": network.netmask(),
        "cidr": network.prefix_len(),
        "href": null,
    });
    value
}

/// Returns the gateway of `own`, else of another address in its network, else of any address; else the unspecified address.
fn gateway(machine: &Machine, own: &Address) -> IpAddr {
    let reserved = || machine.nics.iter().flat_map(|nic| &nic.addresses);
    let same_network = reserved().filter(|other| other.network() == own.network());
    let all = iter::once(own).chain(same_network).chain(reserved());
    let v4 = own.ip.is_ipv4();
    let unspecified = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut gateways = all.filter_map(|address| address.gateway);
    gateways.find(|gateway| gateway.is_ipv4() == v4).unwrap_or(unspecified)
}

/// Returns Linux's number of the bonding mode; none without a bond.
pub(super) fn bonding_mode(machine: &Machine) -> Option<u8> {
    let modes = [
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    ];
    let mode = &machine.bonds.first()?.mode;
    modes.iter().position(|known| known == mode)?.try_into().ok()
}
