//! What is said of the links that machines are attached to, checked: one, by flags; or each a section `[[links]]` of the file.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use netboot::site::{self, Dhcp};
use serde::Deserialize;

use super::{Flags, dhcp};

/// A link, as it is said.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The interface that machines are attached to.
    pub interface: String,
    /// Our address on it; its first one if it is not said.
    pub address: Option<Ipv4Addr>,
    /// Where boot HTTP listens on it; as on every link if it is not said.
    pub http_port: Option<u16>,
    /// Whether booting machines are spared the wait for an IPv6 router; as on every link if it is not said.
    pub ra_assist: Option<bool>,
    /// How DHCP is there; what this does not say is as on every link.
    #[serde(default)]
    pub dhcp: dhcp::Flags,
}

/// A link, checked.
#[derive(Clone, Debug)]
pub struct Link {
    /// The interface machines are attached to.
    pub interface: String,
    /// Our address on it.
    pub address: Ipv4Addr,
    /// Where boot HTTP listens.
    pub http_port: u16,
    /// Whether booting machines are spared the wait for an IPv6 router.
    pub ra_assist: bool,
    /// How DHCP is served.
    pub dhcp: Dhcp,
}

/// The links that `flags` or else `file` say, if any.
pub(super) fn load(flags: &Flags, file: &Flags) -> anyhow::Result<Vec<Link>> {
    let interface = flags.netboot_interface.clone().or(file.netboot_interface.clone());
    let address = flags.netboot_address.or(file.netboot_address);
    let links = flags.links.clone().or(file.links.clone());
    match (interface, links) {
        (None, None) => Ok(Vec::new()),
        (Some(interface), None) => Ok(vec![only(interface, address, flags, file)?]),
        (Some(_), Some(_)) => {
            anyhow::bail!("netboot_interface is given beside links: say it there")
        }
        (None, Some(_)) if address.is_some() => {
            anyhow::bail!("netboot_address is given beside links: say it there")
        }
        (None, Some(said)) => several(said, flags, file),
    }
}

/// The only link.
fn only(
    interface: String,
    address: Option<Ipv4Addr>,
    flags: &Flags,
    file: &Flags,
) -> anyhow::Result<Link> {
    let address = match address {
        Some(address) => address,
        None => site::address_of(&interface)
            .with_context(|| format!("netboot_interface {interface}"))?,
    };
    let nothing = dhcp::Flags::default();
    let said =
        Said { interface, address: Some(address), http_port: None, ra_assist: None, dhcp: nothing };
    said.checked(flags, file)
}

/// The links of the file, none of which may be taken for another.
fn several(said: Vec<Said>, flags: &Flags, file: &Flags) -> anyhow::Result<Vec<Link>> {
    anyhow::ensure!(!said.is_empty(), "links is empty");
    let mut links: Vec<Link> = Vec::new();
    for one in said {
        let name = one.interface.clone();
        let link = one.found(flags, file).with_context(|| format!("links: {name}"))?;
        for other in &links {
            link.apart(other).with_context(|| format!("links: {name}"))?;
        }
        links.push(link);
    }
    Ok(links)
}

impl Said {
    /// This, checked; what is not said is as on every link.
    fn checked(self, flags: &Flags, file: &Flags) -> anyhow::Result<Link> {
        let Self { interface, address, http_port, ra_assist, dhcp } = self;
        let chain_ipxe = flags.netboot_chain_ipxe.or(file.netboot_chain_ipxe).unwrap_or(false);
        let dhcp = dhcp.or(flags.dhcp.clone().or(file.dhcp.clone()));
        Ok(Link {
            address: match address {
                Some(address) => address,
                None => site::address_of(&interface)?,
            },
            interface,
            http_port: http_port
                .or(flags.netboot_http_port)
                .or(file.netboot_http_port)
                .unwrap_or(7080),
            ra_assist: ra_assist.or(flags.ra_assist).or(file.ra_assist).unwrap_or(true),
            dhcp: dhcp.checked(chain_ipxe)?,
        })
    }

    /// The same, with the networks its interface is on where none are said: beside other links a machine is told only of
    /// an address that it can use here.
    fn found(self, flags: &Flags, file: &Flags) -> anyhow::Result<Link> {
        let mut link = self.checked(flags, file)?;
        if link.dhcp.link.networks.is_empty() {
            link.dhcp.link.networks = site::networks_of(&link.interface)?;
        }
        Ok(link)
    }
}

impl Link {
    /// Passes if nothing on this link can be taken for something on `other`.
    fn apart(&self, other: &Self) -> anyhow::Result<()> {
        anyhow::ensure!(self.interface != other.interface, "interface is named twice");
        let (address, name) = (self.address, &other.interface);
        anyhow::ensure!(address != other.address, "address {address} is that of {name}, too");
        let networks = |link: &Self| link.dhcp.link.networks.clone();
        let meeting =
            |one: &Ipv4Net| networks(other).into_iter().any(|other| super::overlap(*one, other));
        if let Some(network) = networks(self).into_iter().find(meeting) {
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

    fn load(text: &str) -> anyhow::Result<Vec<Link>> {
        super::load(&Flags::default(), &toml::from_str(text)?)
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", load(text).unwrap_err())
    }

    const TWO: &str = "netboot_http_port = 8080\n[dhcp]\nlease = 7200\nboot_lease = 300\n\
         [[links]]\ninterface = 'a'\naddress = '192.0.2.1'\n[links.dhcp]\nnetworks = ['192.0.2.0/24']\n\
         [[links]]\ninterface = 'b'\naddress = '198.51.100.1'\nhttp_port = 8081\nra_assist = false\n\
         [links.dhcp]\nmode = 'proxy'\nlease = 600\nnetworks = ['198.51.100.0/24']";

    #[test]
    fn each_link_is_as_all_are_where_it_says_nothing_else() {
        let links = load(TWO).unwrap();
        let [a, b] = &links[..] else { panic!("two") };
        assert_eq!((a.address.octets()[0], a.http_port, a.ra_assist), (192, 8080, true));
        assert_eq!((b.address.octets()[0], b.http_port, b.ra_assist), (198, 8081, false));
        let of = |link: &Link| {
            let dhcp = &link.dhcp.link;
            (dhcp.mode, dhcp.lease_seconds, dhcp.boot_lease_seconds)
        };
        assert_eq!((of(a), of(b)), ((Mode::Reservation, 7200, 300), (Mode::Proxy, 600, 300)));
        assert!(a.dhcp.link.networks[0].contains(&Ipv4Addr::new(192, 0, 2, 9)));
    }

    #[test]
    fn one_link_needs_no_section_and_is_on_whatever_networks_the_records_say() {
        let links = load("netboot_interface = 'a'\nnetboot_address = '192.0.2.1'").unwrap();
        assert_eq!((links.len(), links[0].http_port), (1, 7080));
        assert!(links[0].dhcp.link.networks.is_empty());
        assert!(load("").unwrap().is_empty());
    }

    #[test]
    fn a_link_that_says_no_network_is_on_its_interfaces() {
        let links = load("[[links]]\ninterface = 'lo'").unwrap();
        assert_eq!(links[0].address, Ipv4Addr::LOCALHOST);
        let networks = &links[0].dhcp.link.networks;
        let has = |last| networks.iter().any(|one| one.contains(&Ipv4Addr::new(127, 255, 0, last)));
        assert!(has(1) && !networks.iter().any(|one| one.contains(&Ipv4Addr::new(192, 0, 2, 1))));
    }

    #[test]
    fn links_that_could_be_taken_for_each_other_are_refused_by_name() {
        for (from, to, why) in [
            ("'b'", "'a'", "links: a: interface is named twice"),
            ("'198.51.100.1'", "'192.0.2.1'", "links: b: address 192.0.2.1 is that of a, too"),
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
            assert_eq!(refusal(&TWO.replace(from, to)), why);
        }
        assert_eq!(
            refusal(&format!("netboot_interface = 'c'\n{TWO}")),
            "netboot_interface is given beside links: say it there"
        );
        assert_eq!(
            refusal(&format!("netboot_address = '192.0.2.9'\n{TWO}")),
            "netboot_address is given beside links: say it there"
        );
        assert_eq!(refusal("links = []"), "links is empty");
        assert!(refusal("[[links]]\ninterface = 'nowhere'").starts_with("links: nowhere: "));
        assert!(refusal("[[links]]\ninterface = 'lo'\nadress = '127.0.0.1'").contains("adress"));
    }
}
