//! The network links that an operating system has to set up: the machine's interfaces, their bonds, and the VLANs on either.
//! The network documents of NoCloud and OpenStack are rendered from these links.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tinwright::Mac;

use super::{Address, Machine, Nic, Route};

/// A network link of the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLink {
    /// The name in the operating system, unique on the machine.
    pub name: String,
    /// The MAC.
    pub mac: Mac,
    /// The type of link.
    pub kind: Kind,
    /// The MTU in bytes, if it is not 1500.
    pub mtu: Option<u32>,
    /// The static addresses, in order of preference.
    pub addresses: Vec<Address>,
    /// True if the link gets an IPv4 address by DHCP, in addition to its static addresses.
    pub dhcp: bool,
    /// True if the system may start without this link.
    pub optional: bool,
    /// The DNS servers.
    pub name_servers: Vec<IpAddr>,
    /// The search domain; empty if there is none.
    pub domain: String,
    /// The routes. First a default route per address family, through the first gateway of the addresses; then those in the
    /// records.
    pub routes: Vec<Route>,
}

/// The type of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An interface of the machine.
    Interface,
    /// Several interfaces as one.
    Bond {
        /// Linux's name of the bonding mode.
        mode: String,
        /// The names of the interfaces.
        members: Vec<String>,
    },
    /// A VLAN on another link.
    Vlan {
        /// The VLAN id, 1 to 4094.
        id: u16,
        /// The name of the link that carries the VLAN.
        over: String,
    },
}

impl Machine {
    /// Returns the links. A bond comes after its members, and a VLAN after the link that carries it.
    pub fn links(&self) -> Vec<NetworkLink> {
        let names = self.nic_names();
        let named: Vec<_> = self.nics.iter().zip(&names).collect();
        let mut links: Vec<_> = named.iter().map(|(nic, name)| self.interface(nic, name)).collect();
        for bond in &self.bonds {
            let joined = named.iter().filter(|(nic, _)| nic.bond == bond.name);
            let (nics, members): (Vec<_>, Vec<_>) =
                joined.map(|(nic, name)| (*nic, (*name).clone())).unzip();
            let duplicate = links.iter().any(|link| link.name == bond.name);
            if !members.is_empty() && !duplicate {
                let kind = Kind::Bond { mode: bond.mode.clone(), members };
                links.push(self.link(&bond.name, kind, &nics));
            }
        }
        let vlans: Vec<_> = links.iter_mut().filter_map(|link| self.vlan(link)).collect();
        links.extend(vlans);
        links
    }

    /// Returns the names of the interfaces, in the order of the interfaces: the name in the record, else `eth` and a number.
    fn nic_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (n, nic) in self.nics.iter().enumerate() {
            let own = Some(&nic.name).filter(|name| !name.is_empty() && !names.contains(name));
            let mut number = n;
            let mut name = own.cloned().unwrap_or_else(|| format!("eth{n}"));
            while names.contains(&name) {
                number += 1;
                name = format!("eth{number}");
            }
            names.push(name);
        }
        names
    }

    /// Returns the link of an interface. A member of a bond has no addresses.
    fn interface(&self, nic: &Nic, name: &str) -> NetworkLink {
        let is_member = self.bonds.iter().any(|bond| bond.name == nic.bond);
        let link = self.link(name, Kind::Interface, &[nic]);
        if is_member { link.without_addresses() } else { link }
    }

    /// Returns a link with the configuration of all `nics`, and the MAC of the first.
    fn link(&self, name: &str, kind: Kind, nics: &[&Nic]) -> NetworkLink {
        let each = || nics.iter().copied();
        let addresses: Vec<_> = each().flat_map(|nic| self.addresses_of(nic)).collect();
        let primary = self.primary_nic().map(|nic| nic.mac);
        let dhcp = needs_dhcp(nics, &addresses);
        let mut name_servers = Vec::new();
        for server in each().flat_map(|nic| &nic.name_servers) {
            if !name_servers.contains(server) {
                name_servers.push(*server);
            }
        }
        let domain = each().map(|nic| &nic.domain).find(|domain| !domain.is_empty());
        let routes = each().flat_map(|nic| nic.routes.iter().copied());
        NetworkLink {
            name: name.to_owned(),
            mac: each().next().map_or(Mac([0; 6]), |nic| nic.mac),
            kind,
            mtu: each().filter_map(|nic| nic.mtu).min(),
            dhcp,
            optional: dhcp && !each().any(|nic| Some(nic.mac) == primary),
            routes: default_routes(&addresses).chain(routes).collect(),
            addresses,
            name_servers,
            domain: domain.cloned().unwrap_or_default(),
        }
    }

    /// Moves the addresses of `link` to a VLAN on it, if an interface of `link` has a VLAN id.
    fn vlan(&self, link: &mut NetworkLink) -> Option<NetworkLink> {
        let is_on_link = |nic: &&Nic| match &link.kind {
            Kind::Bond { .. } => nic.bond == link.name,
            Kind::Interface => nic.mac == link.mac && (link.dhcp || !link.addresses.is_empty()),
            Kind::Vlan { .. } => false,
        };
        let id = self.nics.iter().filter(is_on_link).find_map(|nic| nic.vlan)?;
        let kind = Kind::Vlan { id, over: link.name.clone() };
        // Linux limits names to fifteen bytes.
        let over: String = link.name.chars().filter(char::is_ascii).take(10).collect();
        let vlan = NetworkLink { name: format!("{over}.{id}"), kind, ..link.clone() };
        *link = link.clone().without_addresses();
        Some(vlan)
    }
}

/// True if the link of `nics`, which has `addresses`, gets an IPv4 address by DHCP: no IPv4 address is reserved for `nics` or
/// granted as the primary one, and no address of the instance has an IPv4 gateway. An instance address without a gateway is set up
/// in addition to DHCP, as one that is attached; with a gateway, two default routes would conflict.
fn needs_dhcp(nics: &[&Nic], addresses: &[Address]) -> bool {
    let reserved = nics.iter().flat_map(|nic| &nic.addresses).any(|a| a.ip.is_ipv4());
    let complete = addresses.iter().any(|a| a.ip.is_ipv4() && a.gateway.is_some());
    !reserved && !complete
}

/// Returns a default route for the first gateway of each family.
fn default_routes(addresses: &[Address]) -> impl Iterator<Item = Route> {
    let gateway = |of_family: fn(&IpAddr) -> bool| {
        addresses.iter().filter_map(|address| address.gateway).find(of_family)
    };
    let v4 = gateway(IpAddr::is_ipv4).map(|via| (IpNet::from(Ipv4Net::default()), via));
    let v6 = gateway(IpAddr::is_ipv6).map(|via| (IpNet::from(Ipv6Net::default()), via));
    v4.into_iter().chain(v6).map(|(network, gateway)| Route { network, gateway })
}

impl NetworkLink {
    /// Returns the link without everything that belongs to its addresses.
    fn without_addresses(self) -> Self {
        Self {
            addresses: Vec::new(),
            dhcp: false,
            name_servers: Vec::new(),
            domain: String::new(),
            routes: Vec::new(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{address, any_machine, node1};
    use crate::machine::Bond;
    use proptest::prelude::*;

    /// Returns node1 with a second interface, which forms a bond with the first.
    fn bonded() -> Machine {
        let mut machine = node1();
        let second = Nic {
            mac: "52:54:00:00:00:11".parse().unwrap(),
            name: "eth1".into(),
            addresses: vec![],
            primary: false,
            ..machine.nics[0].clone()
        };
        machine.nics.push(second);
        machine.nics.iter_mut().for_each(|nic| nic.bond = "bond0".into());
        machine.bonds = vec![Bond { name: "bond0".into(), mode: "802.3ad".into() }];
        machine
    }

    fn names(machine: &Machine) -> Vec<String> {
        machine.links().into_iter().map(|link| link.name).collect()
    }

    #[test]
    fn an_interface_without_an_address_uses_dhcp() {
        let mut machine = node1();
        machine.nics[0].addresses.clear();
        machine.instance = None;
        let link = &machine.links()[0];
        assert!(link.dhcp && !link.optional && link.name == "eth0");
    }

    #[test]
    fn an_interface_uses_dhcp_unless_it_has_a_complete_ipv4_address() {
        let with = |reserved: &[&str], own: &str, gateway: Option<&str>| {
            let mut machine = node1();
            machine.nics[0].addresses = reserved.iter().map(|ip| address(ip, 24, false)).collect();
            let gateway = gateway.map(|ip| ip.parse().unwrap());
            let own = Address { gateway, ..address(own, 24, false) };
            machine.instance.as_mut().unwrap().addresses = vec![own];
            let link = &machine.links()[0];
            assert!(link.addresses.contains(&own));
            link.dhcp
        };
        assert!(with(&[], "2001:db8::50", Some("2001:db8::1")));
        assert!(with(&["2001:db8::51"], "2001:db8::50", None));
        assert!(with(&[], "10.0.0.50", None));
        assert!(!with(&[], "10.0.0.50", Some("10.0.0.1")));
        assert!(!with(&["198.51.100.50"], "10.0.0.50", None));
        assert!(!with(&["198.51.100.50"], "2001:db8::50", None));
    }

    #[test]
    fn a_second_interface_that_uses_dhcp_is_optional() {
        let mut machine = bonded();
        machine.bonds.clear();
        let optional = |machine: &Machine| machine.links()[1].optional;
        assert!(optional(&machine));
        machine.nics[1].addresses = vec![address("2001:db8::51", 64, false)];
        assert!(optional(&machine));
        machine.nics[1].addresses.push(address("198.51.100.52", 24, false));
        assert!(!optional(&machine));
    }

    #[test]
    fn a_bond_takes_over_the_addresses_of_its_members() {
        let links = bonded().links();
        assert_eq!(links.iter().map(|link| link.addresses.len()).collect::<Vec<_>>(), [0, 0, 3]);
        assert!(links[..2].iter().all(|link| !link.dhcp && link.name_servers.is_empty()));
        let members = vec!["eth0".to_owned(), "eth1".to_owned()];
        assert_eq!(links[2].kind, Kind::Bond { mode: "802.3ad".into(), members });
        assert_eq!(links[2].mac, node1().nics[0].mac);
    }

    #[test]
    fn a_vlan_takes_over_the_addresses_of_its_link() {
        let mut machine = bonded();
        machine.nics[1].vlan = Some(100);
        assert_eq!(names(&machine), ["eth0", "eth1", "bond0", "bond0.100"]);
        let links = machine.links();
        assert!(links[2].addresses.is_empty() && !links[2].dhcp);
        assert_eq!(links[3].kind, Kind::Vlan { id: 100, over: "bond0".into() });
        let default = ("0.0.0.0/0".to_owned(), "198.51.100.1".parse().unwrap());
        let routes: Vec<_> = links[3]
            .routes
            .iter()
            .map(|route| (route.network.to_string(), route.gateway))
            .collect();
        assert_eq!(routes, [default]);
    }

    #[test]
    fn an_interface_without_a_name_is_named_by_its_number() {
        let mut machine = bonded();
        machine.bonds.clear();
        machine.nics[0].name = "eth1".into();
        machine.nics[1].name.clear();
        assert_eq!(names(&machine), ["eth1", "eth2"]);
    }

    #[test]
    fn the_primary_interface_gets_instance_addresses_that_no_interface_has() {
        let mut machine = node1();
        machine.instance.as_mut().unwrap().addresses.push(address("198.51.100.52", 24, false));
        let link = &machine.links()[0];
        let addresses: Vec<_> = link.addresses.iter().map(|a| a.ip.to_string()).collect();
        let wanted = ["198.51.100.50", "198.51.100.51", "2001:db8::50", "198.51.100.52"];
        assert_eq!(addresses, wanted);
    }

    proptest! {
        #[test]
        fn bonds_come_after_their_members_and_vlans_after_their_link(machine in any_machine()) {
            let links = machine.links();
            for (n, link) in links.iter().enumerate() {
                let before = |name: &String| links[..n].iter().any(|link| link.name == *name);
                prop_assert!(!before(&link.name) || machine.nics.len() > 3, "{}", link.name);
                match &link.kind {
                    Kind::Interface => {}
                    Kind::Bond { members, .. } => prop_assert!(members.iter().all(before)),
                    Kind::Vlan { over, .. } => prop_assert!(before(over)),
                }
            }
        }
    }
}
