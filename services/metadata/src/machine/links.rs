//! What an operating system has to set up to be on the network: the machine's interfaces, the bonds they are joined to, and
//! the VLANs on top of either. The network documents (NoCloud's, OpenStack's) are spellings of this.

use std::net::IpAddr;

use tinwright::Mac;

use super::{Address, Machine, Nic, Route};

/// Something that can be named, switched on and given addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// What the operating system calls it; unlike any other's.
    pub name: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// What it is.
    pub kind: Kind,
    /// Bytes a frame may carry, where it is not the usual 1500.
    pub mtu: Option<u32>,
    /// Its addresses, the first one first.
    pub addresses: Vec<Address>,
    /// Whether it is to ask for an IPv4 address: beside those it has, where it has others.
    pub dhcp: bool,
    /// Whether the system may come up without it.
    pub optional: bool,
    /// Who resolves names there.
    pub name_servers: Vec<IpAddr>,
    /// The domain names are looked for in; or empty.
    pub domain: String,
    /// Networks beyond others than the default gateway.
    pub routes: Vec<Route>,
}

/// What a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An interface of the machine.
    Interface,
    /// Several of them as one.
    Bond {
        /// Linux's name of how.
        mode: String,
        /// Their names.
        members: Vec<String>,
    },
    /// A VLAN on another link.
    Vlan {
        /// Its number, 1 to 4094.
        id: u16,
        /// The other link's name.
        over: String,
    },
}

impl Machine {
    /// Its links, each after those it stands on.
    pub fn links(&self) -> Vec<Link> {
        let names = self.nic_names();
        let named: Vec<_> = self.nics.iter().zip(&names).collect();
        let mut links: Vec<_> = named.iter().map(|(nic, name)| self.interface(nic, name)).collect();
        for bond in &self.bonds {
            let joined = named.iter().filter(|(nic, _)| nic.bond == bond.name);
            let members: Vec<_> = joined.map(|(nic, name)| (*nic, (*name).clone())).collect();
            let named_twice = links.iter().any(|link| link.name == bond.name);
            if !members.is_empty() && !named_twice {
                links.push(self.bond(&bond.name, &bond.mode, members));
            }
        }
        let tagged: Vec<_> = links.iter_mut().filter_map(|link| self.tagged(link)).collect();
        links.extend(tagged);
        links
    }

    /// What the interfaces are called, in their order: as the record says, else by number.
    fn nic_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (n, nic) in self.nics.iter().enumerate() {
            let said = Some(&nic.name).filter(|name| !name.is_empty() && !names.contains(name));
            let mut number = n;
            let mut name = said.cloned().unwrap_or_else(|| format!("eth{n}"));
            while names.contains(&name) {
                number += 1;
                name = format!("eth{number}");
            }
            names.push(name);
        }
        names
    }

    /// An interface; one that is part of a bond has nothing of its own.
    fn interface(&self, nic: &Nic, name: &str) -> Link {
        let joined = self.bonds.iter().any(|bond| bond.name == nic.bond);
        let mut link = self.link(name, Kind::Interface, &[nic]);
        if joined {
            link = Link { addresses: Vec::new(), dhcp: false, ..link }.bare();
        }
        link
    }

    fn bond(&self, name: &str, mode: &str, members: Vec<(&Nic, String)>) -> Link {
        let (nics, members): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        self.link(name, Kind::Bond { mode: mode.to_owned(), members }, &nics)
    }

    /// A link with everything that `nics` are told; the first of them lends its Ethernet address.
    fn link(&self, name: &str, kind: Kind, nics: &[&Nic]) -> Link {
        let each = || nics.iter().copied();
        let addresses: Vec<_> = each().flat_map(|nic| self.addresses_of(nic)).collect();
        let primary = self.primary_nic().map(|nic| nic.mac);
        let dhcp = asks(nics, &addresses);
        let mut name_servers = Vec::new();
        for server in each().flat_map(|nic| &nic.name_servers) {
            if !name_servers.contains(server) {
                name_servers.push(*server);
            }
        }
        let domain = each().map(|nic| &nic.domain).find(|domain| !domain.is_empty());
        Link {
            name: name.to_owned(),
            mac: each().next().map_or(Mac([0; 6]), |nic| nic.mac),
            kind,
            mtu: each().filter_map(|nic| nic.mtu).min(),
            dhcp,
            optional: dhcp && !each().any(|nic| Some(nic.mac) == primary),
            addresses,
            name_servers,
            domain: domain.cloned().unwrap_or_default(),
            routes: each().flat_map(|nic| nic.routes.iter().copied()).collect(),
        }
    }

    /// The VLAN on `link`, which takes over everything above Ethernet, if the machine tags there.
    fn tagged(&self, link: &mut Link) -> Option<Link> {
        let of = |nic: &&Nic| match &link.kind {
            Kind::Bond { .. } => nic.bond == link.name,
            Kind::Interface => nic.mac == link.mac && (link.dhcp || !link.addresses.is_empty()),
            Kind::Vlan { .. } => false,
        };
        let id = self.nics.iter().filter(of).find_map(|nic| nic.vlan)?;
        let kind = Kind::Vlan { id, over: link.name.clone() };
        // Linux cuts names off after fifteen bytes.
        let over: String = link.name.chars().filter(char::is_ascii).take(10).collect();
        let vlan = Link { name: format!("{over}.{id}"), kind, ..link.clone() };
        let below = Link { addresses: Vec::new(), dhcp: false, ..link.clone() }.bare();
        *link = below;
        Some(vlan)
    }
}

/// Whether what `nics` are joined to has to ask for an IPv4 address, having `addresses`: where none is reserved there, DHCP
/// lends one. An address of the instance's stands beside that; with a gateway it is all there is to set up, for two ways
/// out would be one too many.
fn asks(nics: &[&Nic], addresses: &[Address]) -> bool {
    let reserved = nics.iter().flat_map(|nic| &nic.addresses).any(|a| a.ip.is_ipv4());
    let complete = addresses.iter().any(|a| a.ip.is_ipv4() && a.gateway.is_some());
    !reserved && !complete
}

impl Link {
    /// The same without what belongs to addresses.
    fn bare(self) -> Self {
        Self { name_servers: Vec::new(), domain: String::new(), routes: Vec::new(), ..self }
    }

    /// The default routes' gateways: the first of each family.
    pub fn gateways(&self) -> Vec<IpAddr> {
        let mut gateways: Vec<IpAddr> = Vec::new();
        for gateway in self.addresses.iter().filter_map(|address| address.gateway) {
            if !gateways.iter().any(|known| known.is_ipv4() == gateway.is_ipv4()) {
                gateways.push(gateway);
            }
        }
        gateways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{address, any_machine, node1};
    use crate::machine::Bond;
    use proptest::prelude::*;

    /// node1 with a second interface, joined to the first.
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
    fn an_interface_without_an_address_asks_for_one() {
        let mut machine = node1();
        machine.nics[0].addresses.clear();
        machine.instance = None;
        let link = &machine.links()[0];
        assert!(link.dhcp && !link.optional && link.name == "eth0");
    }

    #[test]
    fn an_interface_asks_for_an_ipv4_address_unless_it_has_one_to_use_alone() {
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
    fn a_system_need_not_wait_for_what_a_second_interface_may_be_lent() {
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
    fn a_bond_takes_over_what_its_members_had() {
        let links = bonded().links();
        assert_eq!(links.iter().map(|link| link.addresses.len()).collect::<Vec<_>>(), [0, 0, 3]);
        assert!(links[..2].iter().all(|link| !link.dhcp && link.name_servers.is_empty()));
        let members = vec!["eth0".to_owned(), "eth1".to_owned()];
        assert_eq!(links[2].kind, Kind::Bond { mode: "802.3ad".into(), members });
        assert_eq!(links[2].mac, node1().nics[0].mac);
    }

    #[test]
    fn a_vlan_takes_over_what_its_link_had() {
        let mut machine = bonded();
        machine.nics[1].vlan = Some(100);
        assert_eq!(names(&machine), ["eth0", "eth1", "bond0", "bond0.100"]);
        let links = machine.links();
        assert!(links[2].addresses.is_empty() && !links[2].dhcp);
        assert_eq!(links[3].kind, Kind::Vlan { id: 100, over: "bond0".into() });
        assert_eq!(links[3].gateways(), ["198.51.100.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn an_interface_nobody_named_is_named_by_its_number() {
        let mut machine = bonded();
        machine.bonds.clear();
        machine.nics[0].name = "eth1".into();
        machine.nics[1].name.clear();
        assert_eq!(names(&machine), ["eth1", "eth2"]);
    }

    #[test]
    fn an_address_of_the_instance_that_no_interface_has_is_the_primary_ones() {
        let mut machine = node1();
        machine.instance.as_mut().unwrap().addresses.push(address("198.51.100.52", 24, false));
        let link = &machine.links()[0];
        let addresses: Vec<_> = link.addresses.iter().map(|a| a.ip.to_string()).collect();
        let wanted = ["198.51.100.50", "198.51.100.51", "2001:db8::50", "198.51.100.52"];
        assert_eq!(addresses, wanted);
    }

    proptest! {
        #[test]
        fn every_link_stands_on_one_before_it(machine in any_machine()) {
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
