//! The options of DHCP: the section `[dhcp]` of the file.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use clap::ValueEnum;
use dhcp::Link;
use dhcp::architecture::REGISTERED;
use ipnet::Ipv4Net;
use netboot::site::Dhcp;
use serde::Deserialize;

/// The shortest lease. A client renews at half of it.
const MIN_LEASE_SECONDS: u32 = 60;

/// The options of DHCP. Defaults are those of the arguments; `Default` is for skipped arguments only.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DhcpSection {
    /// Assign addresses in this mode
    #[arg(value_name = "MODE", default_value = "reservation")]
    pub mode: Mode,
    /// Serve these networks on the interface, as ADDRESS/BITS [default: those of the records]
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub networks: Vec<String>,
    /// Answer only these relays, and trust their option 82 [default: answer any relay, trust none]
    #[arg(value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(default)]
    pub relays: Vec<Ipv4Addr>,
    /// Trust an option 82 that a switch inserts without being a relay
    pub trust_switches: bool,
    /// Send these name servers to machines whose record has none
    #[arg(value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(default)]
    pub name_servers: Vec<Ipv4Addr>,
    /// Send these NTP servers to machines whose record has none
    #[arg(value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(default)]
    pub time_servers: Vec<Ipv4Addr>,
    /// Send this domain to machines whose record has none
    #[arg(value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// Send this domain search list to machines
    #[arg(value_name = "DOMAIN", value_delimiter = ',')]
    #[serde(default)]
    pub search: Vec<String>,
    /// Lease addresses for this many seconds to machines that boot from the network
    #[arg(value_name = "SECONDS", default_value = "600")]
    pub boot_lease: u32,
    /// Lease addresses for this many seconds to installed systems whose record sets no lease; 4294967295 is for ever
    #[arg(value_name = "SECONDS", default_value = "86400")]
    pub lease: u32,
    /// Ignore interfaces of these vendors, given as the first three octets of their addresses, such as 00:11:22
    #[arg(value_name = "OUI", value_delimiter = ',')]
    #[serde(default)]
    pub ignored_vendors: Vec<String>,
    /// Treat boot ROMs of these vendors as Raspberry Pi [default: a built-in list]
    #[arg(value_name = "OUI", value_delimiter = ',')]
    pub raspberry_vendors: Option<Vec<String>>,
    /// Send MAC/LOADER instead of LOADER as the boot file
    pub mac_in_path: bool,
    /// Recognize the site's own build of iPXE by this user class
    #[arg(value_name = "CLASS")]
    pub own_ipxe: Option<String>,
    /// Replace the loaders of these architectures, by the number in option 93, such as 7=ipxe.efi
    #[arg(value_name = "NUMBER=FILE", value_delimiter = ',')]
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Listen on UDP port 67; false if another DHCP server of this host uses it
    #[arg(default_value = "true")]
    pub port_67: bool,
    /// Listen on UDP port 4011, the PXE boot service
    #[arg(default_value = "true")]
    pub port_4011: bool,
}

/// The mode, as the operator names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// This server assigns addresses from the records.
    #[default]
    Reservation,
    /// Another server assigns addresses; this one adds boot information for machines with a record.
    Proxy,
    /// Another server assigns addresses; this one adds boot information for every machine.
    AutoProxy,
    /// Another server assigns addresses and points machines to TFTP and HTTP of this one.
    Disabled,
}

impl From<Mode> for dhcp::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Reservation => Self::Reservation,
            Mode::Proxy => Self::Proxy,
            Mode::AutoProxy => Self::AutoProxy,
            Mode::Disabled => Self::Disabled,
        }
    }
}

impl DhcpSection {
    /// Checks the options. `chain_ipxe` is not in the section.
    pub(super) fn checked(self, chain_ipxe: bool) -> anyhow::Result<Dhcp> {
        let defaults = Dhcp::default();
        let (port_67, port_4011) = (self.port_67, self.port_4011);
        anyhow::ensure!(
            port_67 || port_4011,
            "dhcp.port_67 and dhcp.port_4011 are both off: set dhcp.mode = \"disabled\""
        );
        anyhow::ensure!(
            port_67 || self.mode != Mode::Reservation,
            "dhcp.port_67 is off, but dhcp.mode is reservation: addresses are given there; set dhcp.mode = \"proxy\" if another server gives them"
        );
        Ok(Dhcp { link: self.link(defaults.link)?, port_67, port_4011, chain_ipxe })
    }

    fn link(self, mut link: Link) -> anyhow::Result<Link> {
        link.mode = self.mode.into();
        link.networks = all("dhcp.networks", self.networks, |text| Ok(text.parse::<Ipv4Net>()?))?;
        link.relays = self.relays;
        link.trust_switches = self.trust_switches;
        link.name_servers = self.name_servers;
        link.time_servers = self.time_servers;
        link.domain = self.domain.map_or(Ok(String::new()), |name| domain("dhcp.domain", &name))?;
        link.search =
            all("dhcp.search", self.search, |name| Ok(tinwright::check::hostname(name)?))?;
        link.boot_lease_seconds = lease("dhcp.boot_lease", self.boot_lease)?;
        link.lease_seconds = lease("dhcp.lease", self.lease)?;
        link.ignored_vendors = all("dhcp.ignored_vendors", self.ignored_vendors, vendor)?;
        if let Some(vendors) = self.raspberry_vendors {
            link.raspberry_vendors = all("dhcp.raspberry_vendors", vendors, vendor)?;
        }
        link.mac_in_path = self.mac_in_path;
        link.custom_user_class = self.own_ipxe;
        anyhow::ensure!(
            link.custom_user_class.as_ref().is_none_or(|class| (1..=255).contains(&class.len())),
            "dhcp.own_ipxe is not of 1 to 255 bytes"
        );
        let replaced = all("dhcp.architectures", self.architectures, loader)?;
        link.loaders.instead = replaced.into_iter().collect();
        Ok(link)
    }
}

/// Parses each of `texts`. An error names the `option` and the text.
fn all<T>(
    option: &str,
    texts: Vec<String>,
    parse: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let parse = |text: String| parse(&text).with_context(|| format!("{option}: {text:?}"));
    texts.into_iter().map(parse).collect()
}

fn domain(option: &str, name: &str) -> anyhow::Result<String> {
    tinwright::check::hostname(name).with_context(|| format!("{option}: {name:?}"))
}

fn lease(option: &str, seconds: u32) -> anyhow::Result<u32> {
    anyhow::ensure!(
        seconds >= MIN_LEASE_SECONDS,
        "{option} is {seconds}, but no lease is under {MIN_LEASE_SECONDS} seconds"
    );
    Ok(seconds)
}

/// Parses the first three octets of an Ethernet address, in hex, separated by colons or dashes.
fn vendor(text: &str) -> anyhow::Result<[u8; 3]> {
    let octets: Vec<_> =
        text.split([':', '-']).map(|octet| u8::from_str_radix(octet, 16)).collect();
    match octets[..] {
        [Ok(a), Ok(b), Ok(c)] if text.len() == 8 && !text.contains('+') => Ok([a, b, c]),
        _ => anyhow::bail!("three octets in hex are expected, such as 00:11:22"),
    }
}

fn loader(text: &str) -> anyhow::Result<(u16, String)> {
    let (number, file) =
        text.split_once('=').context("NUMBER=FILE is expected, such as 7=ipxe.efi")?;
    let number = number.parse().ok().filter(|number| REGISTERED.contains(number));
    let number = number.context("no such number is registered for option 93")?;
    tinwright::check::file_name(file)?;
    Ok((number, file.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Parses the section with the defaults beneath it.
    fn section(text: &str) -> DhcpSection {
        crate::config::tests::options(&format!("[dhcp]\n{text}")).unwrap().dhcp
    }

    fn error_of(text: &str) -> String {
        format!("{:#}", section(text).checked(false).unwrap_err())
    }

    #[test]
    fn every_option_is_set_on_the_link() {
        let options = section(
            "mode = 'auto-proxy'\nnetworks = ['192.0.2.0/24']\nrelays = ['192.0.2.254']\ntrust_switches = true\n\
             name_servers = ['192.0.2.53']\ntime_servers = ['192.0.2.123']\ndomain = 'lab.example'\n\
             search = ['a.example', 'b.example']\nboot_lease = 300\nlease = 4294967295\n\
             ignored_vendors = ['00:11:22']\nraspberry_vendors = ['AA-BB-CC']\nmac_in_path = true\n\
             own_ipxe = 'Site'\narchitectures = ['7=ipxe.efi']\nport_67 = false\nport_4011 = true",
        );
        let Dhcp { link, port_67, port_4011, chain_ipxe } = options.checked(true).unwrap();
        assert_eq!((port_67, port_4011, chain_ipxe), (false, true, true));
        assert_eq!((link.mode, link.trust_switches), (dhcp::Mode::AutoProxy, true));
        assert!(link.networks[0].contains(&Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(link.relays, [Ipv4Addr::new(192, 0, 2, 254)]);
        assert_eq!(link.name_servers, [Ipv4Addr::new(192, 0, 2, 53)]);
        assert_eq!(link.time_servers, [Ipv4Addr::new(192, 0, 2, 123)]);
        assert_eq!((link.domain.as_str(), link.search.len()), ("lab.example", 2));
        assert_eq!((link.boot_lease_seconds, link.lease_seconds), (300, u32::MAX));
        assert_eq!(link.ignored_vendors, [[0, 0x11, 0x22]]);
        assert_eq!(link.raspberry_vendors, [[0xaa, 0xbb, 0xcc]]);
        assert_eq!((link.mac_in_path, link.custom_user_class.as_deref()), (true, Some("Site")));
        assert_eq!(link.loaders.instead[&7], "ipxe.efi");
    }

    #[test]
    fn the_defaults_are_those_of_the_link() {
        let Dhcp { link, port_67, port_4011, chain_ipxe } = section("").checked(false).unwrap();
        assert_eq!((port_67, port_4011, chain_ipxe), (true, true, false));
        assert_eq!(
            (link.mode, link.boot_lease_seconds, link.lease_seconds),
            (dhcp::Mode::Reservation, 600, 86_400)
        );
        let defaults = Dhcp::default().link;
        assert_eq!(link.boot_lease_seconds, defaults.boot_lease_seconds);
        assert_eq!((link.lease_seconds, link.raspberry_vendors.len()), (defaults.lease_seconds, 6));
    }

    #[test]
    fn an_invalid_option_is_refused_by_its_name() {
        for (text, reason) in [
            ("networks = ['192.0.2.0']", "dhcp.networks: \"192.0.2.0\": "),
            ("networks = ['192.0.2.0/33']", "dhcp.networks: \"192.0.2.0/33\": "),
            ("domain = '-x'", "dhcp.domain: \"-x\": "),
            ("search = ['a', 'b..c']", "dhcp.search: \"b..c\": "),
            ("lease = 59", "dhcp.lease is 59, but no lease is under 60 seconds"),
            ("boot_lease = 0", "dhcp.boot_lease is 0, but no lease is under 60 seconds"),
            ("ignored_vendors = ['0:11:22']", "dhcp.ignored_vendors: \"0:11:22\": three octets"),
            ("ignored_vendors = ['+0:11:22']", "dhcp.ignored_vendors: \"+0:11:22\": three octets"),
            ("own_ipxe = ''", "dhcp.own_ipxe is not of 1 to 255 bytes"),
            ("architectures = ['ipxe.efi']", "dhcp.architectures: \"ipxe.efi\": NUMBER=FILE"),
            ("architectures = ['99=x']", "dhcp.architectures: \"99=x\": no such number"),
            ("architectures = ['7=../x']", "dhcp.architectures: \"7=../x\": "),
            ("port_67 = false", "dhcp.port_67 is off, but dhcp.mode is reservation"),
            (
                "mode = 'proxy'\nport_67 = false\nport_4011 = false",
                "dhcp.port_67 and dhcp.port_4011 are both off",
            ),
        ] {
            let error = error_of(text);
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
