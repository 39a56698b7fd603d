//! The machine's links as OpenStack's `network_data.json`.

use serde_json::{Value, json};

use crate::machine::{Address, Kind, Machine, NetworkLink, Route};

/// Returns the network configuration of the machine.
pub(super) fn data(machine: &Machine) -> Value {
    let links = machine.links();
    let mut networks = Vec::new();
    for link in &links {
        networks.extend(link.addresses.iter().map(|address| network(link, address)));
        if link.dhcp {
            networks.push(json!({ "type": "ipv4_dhcp", "link": link.name }));
        }
    }
    for (n, network) in networks.iter_mut().enumerate() {
        let id = format!("network{n}");
        network["network_id"] = id.as_str().into();
        network["id"] = id.into();
    }
    let servers = links.iter().flat_map(|link| &link.name_servers);
    let services: Vec<_> =
        servers.map(|server| json!({ "type": "dns", "address": server })).collect();
    let links: Vec<_> = links.iter().map(as_link).collect();
    json!({ "links": links, "networks": networks, "services": services })
}

fn as_link(link: &NetworkLink) -> Value {
    let (name, mac) = (&link.name, link.mac.to_string());
    let mut value = match &link.kind {
        Kind::Interface => json!({ "id": name, "type": "phy", "ethernet_mac_address": mac }),
        Kind::Bond { mode, members } => json!({
            "id": name,
            "type": "bond",
            "ethernet_mac_address": mac,
            "bond_links": members,
            "bond_mode": mode,
            "bond_miimon": 100,
            "bond_xmit_hash_policy": "layer3+4",
        }),
        Kind::Vlan { id, over } => json!({
            "id": name,
            "type": "vlan",
            "vlan_link": over,
            "vlan_id": id,
            "vlan_mac_address": mac,
        }),
    };
    value["vif_id"] = name.as_str().into();
    if let Some(mtu) = link.mtu {
        value["mtu"] = mtu.into();
    }
    value
}

fn network(link: &NetworkLink, address: &Address) -> Value {
    let v4 = address.ip.is_ipv4();
    let mut value = json!({
        "link": link.name,
        "type": if v4 { "ipv4" } else { "ipv6" },
        "ip_address": address.ip,
        "netmask": address.network().netmask(),
    });
    // The routes of a link are listed once, with its first address of the family.
    let first = link.addresses.iter().find(|other| other.ip.is_ipv4() == v4);
    if first == Some(address) {
        let routes = link.routes.iter().filter(|route| route.gateway.is_ipv4() == v4);
        value["routes"] = routes.map(route).collect();
    }
    value
}

fn route(route: &Route) -> Value {
    json!({
        "network": route.network.addr(),
        "netmask": route.network.netmask(),
        "gateway": route.gateway,
    })
}
