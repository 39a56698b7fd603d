//! The links that machines are attached to: one by `netboot_interface`, or several in sections `[[links]]` of the file.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use netboot::site::{self, Dhcp};
use serde::Deserialize;

use super::{Options, dhcp};

/// The options of a link. The command line's values are added to those that the section does not set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkOptions {
    /// The interface that machines are attached to.
    pub interface: String,
    /// Our address on it; if none is set, its first one.
    pub address: Option<Ipv4Addr>,
    /// The port of boot HTTP.
    pub http_port: u16,
    /// True if booting machines are saved the wait for an IPv6 router.
    pub ra_assist: bool,
    /// The options of DHCP on this link.
    pub dhcp: dhcp::DhcpSection,
}

/// A checked link.
#[derive(Clone, Debug)]
pub struct NetbootLink {
    /// The interface that machines are attached to.
    pub interface: String,
    /// Our address on it.
    pub address: Ipv4Addr,
    /// The port of boot HTTP.
    pub http_port: u16,
    /// True if booting machines are saved the wait for an IPv6 router.
    pub ra_assist: bool,
    /// Settings of DHCP.
    pub dhcp: Dhcp,
}

/// Returns the configured links, if any.
pub(super) fn links(options: &Options) -> anyhow::Result<Vec<NetbootLink>> {
    let address = options.netboot_address;
    match (options.netboot_interface.clone(), options.links.clone()) {
        (None, None) => Ok(Vec::new()),
        (Some(interface), None) => {
            let context = format!("netboot_interface {interface}");
            let address = address.map_or_else(|| site::address_of(&interface), Ok);
            let (http_port, ra_assist) = (options.netboot_http_port, options.ra_assist);
            let dhcp = options.dhcp.clone();
            let address = Some(address.context(context)?);
            let link = LinkOptions { interface, address, http_port, ra_assist, dhcp };
            Ok(vec![link.checked(options.netboot_chain_ipxe)?])
        }
        (Some(_), Some(_)) => {
            anyhow::bail!("netboot_interface is given together with links: set it there")
        }
        (None, Some(_)) if address.is_some() => {
            anyhow::bail!("netboot_address is given together with links: set it there")
        }
        (None, Some(sections)) => several(sections, options.netboot_chain_ipxe),
    }
}

/// Checks the links of the file, which must differ in interface, address and networks.
fn several(sections: Vec<LinkOptions>, chain_ipxe: bool) -> anyhow::Result<Vec<NetbootLink>> {
    anyhow::ensure!(!sections.is_empty(), "links is empty");
    let mut links: Vec<NetbootLink> = Vec::new();
    for section in sections {
        let name = format!("links: {}", section.interface);
        let mut link = section.checked(chain_ipxe).with_context(|| name.clone())?;
        // Beside other links a machine may only get an address that it can use here.
        if link.dhcp.link.networks.is_empty() {
            let networks = site::networks_of(&link.interface).with_context(|| name.clone())?;
            link.dhcp.link.networks = networks;
        }
        for other in &links {
            link.check_distinct(other).with_context(|| name.clone())?;
        }
        links.push(link);
    }
    Ok(links)
}

impl LinkOptions {
    fn checked(self, chain_ipxe: bool) -> anyhow::Result<NetbootLink> {
        let Self { interface, address, http_port, ra_assist, dhcp } = self;
        let address = address.map_or_else(|| site::address_of(&interface), Ok)?;
        Ok(NetbootLink {
            address,
            interface,
            http_port,
            ra_assist,
            dhcp: dhcp.checked(chain_ipxe)?,
        })
    }
}

impl NetbootLink {
    /// Fails if this link has the interface, the address or a network of `other`.
    fn check_distinct(&self, other: &Self) -> anyhow::Result<()> {
        anyhow::ensure!(self.interface != other.interface, "interface is named twice");
        let (address, name) = (self.address, &other.interface);
        anyhow::ensure!(address != other.address, "address {address} is also that of {name}");
        let networks = |link: &Self| link.dhcp.link.networks.clone();
        let overlapping =
            |one: &Ipv4Net| networks(other).into_iter().any(|other| super::overlap(*one, other));
        if let Some(network) = networks(self).into_iter().find(overlapping) {
            anyhow::bail!("dhcp.networks: {network} overlaps one of {name}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ::dhcp::Mode;

    fn load(text: &str) -> anyhow::Result<Vec<NetbootLink>> {
        links(&crate::config::tests::options(text)?)
    }

    fn error_of(text: &str) -> String {
        format!("{:#}", load(text).unwrap_err())
    }

    const TWO: &str = "netboot_http_port = 8080\n[dhcp]\nlease = 7200\nboot_lease = 300\n\
         [[links]]\ninterface = 'a'\naddress = '192.0.2.1'\n[links.dhcp]\nnetworks = ['192.0.2.0/24']\n\
         [[links]]\ninterface = 'b'\naddress = '198.51.100.1'\nhttp_port = 8081\nra_assist = false\n\
         [links.dhcp]\nmode = 'proxy'\nlease = 600\nnetworks = ['198.51.100.0/24']";

    #[test]
    fn a_link_inherits_the_options_that_its_section_does_not_set() {
        let links = load(TWO).unwrap();
        let [a, b] = &links[..] else { panic!("two") };
        assert_eq!((a.address.octets()[0], a.http_port, a.ra_assist), (192, 8080, true));
        assert_eq!((b.address.octets()[0], b.http_port, b.ra_assist), (198, 8081, false));
        let of = |link: &NetbootLink| {
            let dhcp = &link.dhcp.link;
            (dhcp.mode, dhcp.lease_seconds, dhcp.boot_lease_seconds)
        };
        assert_eq!((of(a), of(b)), ((Mode::Reservation, 7200, 300), (Mode::Proxy, 600, 300)));
        assert!(a.dhcp.link.networks[0].contains(&Ipv4Addr::new(192, 0, 2, 9)));
    }

    #[test]
    fn one_link_needs_no_section_and_no_networks() {
        let links = load("netboot_interface = 'a'\nnetboot_address = '192.0.2.1'").unwrap();
        assert_eq!((links.len(), links[0].http_port), (1, 7080));
        assert!(links[0].dhcp.link.networks.is_empty());
        assert!(load("").unwrap().is_empty());
    }

    #[test]
    fn a_section_without_networks_has_those_of_its_interface() {
        let links = load("[[links]]\ninterface = 'lo'").unwrap();
        assert_eq!(links[0].address, Ipv4Addr::LOCALHOST);
        let networks = &links[0].dhcp.link.networks;
        let has = |last| networks.iter().any(|one| one.contains(&Ipv4Addr::new(127, 255, 0, last)));
        assert!(has(1) && !networks.iter().any(|one| one.contains(&Ipv4Addr::new(192, 0, 2, 1))));
    }

    #[test]
    fn links_that_are_not_distinct_are_refused_by_their_interface() {
        for (from, to, error) in [
            ("'b'", "'a'", "links: a: interface is named twice"),
            ("'198.51.100.1'", "'192.0.2.1'", "links: b: address 192.0.2.1 is also that of a"),
            (
                "['198.51.100.0/24']",
                "['192.0.2.128/25']",
                "links: b: dhcp.networks: 192.0.2.128/25 overlaps one of a",
            ),
            (
                "lease = 600",
                "lease = 6",
                "links: b: dhcp.lease is 6, but no lease is under 60 seconds",
            ),
        ] {
            assert_eq!(error_of(&TWO.replace(from, to)), error);
        }
        assert_eq!(
            error_of(&format!("netboot_interface = 'c'\n{TWO}")),
            "netboot_interface is given together with links: set it there"
        );
        assert_eq!(
            error_of(&format!("netboot_address = '192.0.2.9'\n{TWO}")),
            "netboot_address is given together with links: set it there"
        );
        assert_eq!(error_of("links = []"), "links is empty");
        assert!(error_of("[[links]]\ninterface = 'nowhere'").starts_with("links: nowhere: "));
        assert!(error_of("[[links]]\ninterface = 'lo'\nadress = '127.0.0.1'").contains("adress"));
    }
}
