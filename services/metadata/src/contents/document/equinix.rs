//! Equinix Metal's keys, which afterburn, Ignition and Talos read.
//!
//! afterburn (`coreos/afterburn` `src/providers/packet/mod.rs`) reads no document that lacks a number for `bonding.mode`, or a
//! gateway with an address; where nothing is joined, it makes nothing of the number.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use super::instance::{address, operating_system};
use crate::contents::Asked;
use crate::machine::{Address, Kind, Machine};
use crate::tree::seconds;

/// Everything that is said in Equinix Metal's words (specification, section 7.3).
pub(super) fn fields(machine: &Machine, asked: Asked) -> Map<String, Value> {
    let base = asked.base();
    let instance = machine.instance.as_ref();
    let metro = machine.extra.get("metro").and_then(Value::as_str).unwrap_or(&machine.facility);
    let mut fields = Map::from_iter([
        ("id".to_owned(), json!(machine.instance_id())),
        ("hostname".to_owned(), json!(machine.hostname())),
        ("iqn".to_owned(), json!(machine.extra("/iqn"))),
        ("operating_system".to_owned(), operating_system(machine)),
        ("plan".to_owned(), json!(machine.plan)),
        ("class".to_owned(), json!(machine.plan)),
        ("facility".to_owned(), json!(machine.facility)),
        ("metro".to_owned(), json!(metro)),
        ("reserved".to_owned(), json!(false)),
        ("tags".to_owned(), json!(instance.map_or(&[][..], |instance| &instance.tags))),
        ("ssh_keys".to_owned(), json!(machine.ssh_keys())),
        ("network".to_owned(), network(machine)),
        ("api_url".to_owned(), json!(base)),
        ("phone_home_url".to_owned(), json!(format!("{base}/phone-home"))),
        ("user_state_url".to_owned(), json!(format!("{base}/events"))),
    ]);
    let lists = ["private_subnets", "volumes", "bgp_neighbors"].map(|key| (key, json!([])));
    let objects = ["customdata", "spot", "storage"].map(|key| (key, json!({})));
    for (key, empty) in lists.into_iter().chain(objects) {
        let said = instance.and_then(|instance| instance.extra.get(key));
        fields.insert(key.to_owned(), said.cloned().unwrap_or(empty));
    }
    fields
}

/// Its interfaces and addresses.
pub(super) fn network(machine: &Machine) -> Value {
    let links = machine.links();
    let interfaces = machine.nics.iter().zip(&links).map(|(nic, link)| {
        let mut interface = json!({ "name": link.name, "mac": nic.mac.to_string() });
        if !nic.bond.is_empty() {
            interface["bond"] = nic.bond.as_str().into();
        }
        interface
    });
    let interfaces: Vec<_> = interfaces.collect();
    let bond = links.iter().find_map(|link| match &link.kind {
        Kind::Bond { mode, .. } => Some((mode, link.mac)),
        Kind::Interface | Kind::Vlan { .. } => None,
    });
    let mac = bond.map(|(_, mac)| mac).or(machine.primary_nic().map(|nic| nic.mac));
    let addresses: Vec<_> =
        addresses(machine).iter().enumerate().map(|(n, a)| numbered(machine, n, a)).collect();
    json!({
        "bonding": {
            // Linux's own choice where nobody made one: 0.
            "mode": bonding_mode(machine).unwrap_or_default(),
            "link_aggregation": bond.map(|(mode, _)| mode),
            "mac": mac.map(|mac| mac.to_string()),
        },
        "interfaces": interfaces,
        "addresses": addresses,
    })
}

/// The instance's addresses; of one without any, those of the interfaces.
fn addresses(machine: &Machine) -> Vec<Address> {
    let own = machine.instance.as_ref().map_or(&[][..], |instance| &instance.addresses);
    if own.is_empty() {
        return machine.nics.iter().flat_map(|nic| nic.addresses.iter().copied()).collect();
    }
    own.to_vec()
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

/// The way out for `own`: its own, one of its network, or any of the machine's; the unspecified address where none is known.
fn gateway(machine: &Machine, own: &Address) -> IpAddr {
    let reserved = || machine.nics.iter().flat_map(|nic| &nic.addresses);
    let near = reserved().filter(|near| near.network() == own.network());
    let mut known = iter::once(own).chain(near).chain(reserved()).filter_map(|a| a.gateway);
    let v4 = own.ip.is_ipv4();
    let nowhere = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    known.find(|gateway| gateway.is_ipv4() == v4).unwrap_or(nowhere)
}

/// Linux's number of how interfaces are joined; nothing where none are.
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
