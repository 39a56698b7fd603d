//! What is said of DHCP, checked: the section `[dhcp]` of the file.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use clap::ValueEnum;
use dhcp::Link;
use dhcp::architecture::architecture;
use ipnet::Ipv4Net;
use netboot::site::Dhcp;
use serde::Deserialize;

/// The shortest lease: a client renews at half of it.
const SHORTEST: u32 = 60;

/// What can be said of DHCP; in the file without the `dhcp_` before it.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[group(skip)] // its name would be that of the flags it is among
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// Who gives addresses [default: reservation]
    #[arg(id = "dhcp_mode", long = "dhcp-mode", env = "TINWRIGHT_DHCP_MODE", value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Networks on the interface, as ADDRESS/BITS [default: those of the records]
    #[arg(
        id = "dhcp_networks",
        long = "dhcp-networks",
        env = "TINWRIGHT_DHCP_NETWORKS",
        value_name = "NETWORK",
        value_delimiter = ','
    )]
    pub networks: Option<Vec<String>>,
    /// Relays that are answered and whose option 82 is believed [default: any is answered and none believed]
    #[arg(
        id = "dhcp_relays",
        long = "dhcp-relays",
        env = "TINWRIGHT_DHCP_RELAYS",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    pub relays: Option<Vec<Ipv4Addr>>,
    /// Believe an option 82 that a switch put in without being a relay
    #[arg(
        id = "dhcp_trust_switches",
        long = "dhcp-trust-switches",
        env = "TINWRIGHT_DHCP_TRUST_SWITCHES",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub trust_switches: Option<bool>,
    /// Name servers of machines whose record names none
    #[arg(
        id = "dhcp_name_servers",
        long = "dhcp-name-servers",
        env = "TINWRIGHT_DHCP_NAME_SERVERS",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    pub name_servers: Option<Vec<Ipv4Addr>>,
    /// NTP servers of machines whose record names none
    #[arg(
        id = "dhcp_time_servers",
        long = "dhcp-time-servers",
        env = "TINWRIGHT_DHCP_TIME_SERVERS",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    pub time_servers: Option<Vec<Ipv4Addr>>,
    /// Domain of machines whose record names none
    #[arg(
        id = "dhcp_domain",
        long = "dhcp-domain",
        env = "TINWRIGHT_DHCP_DOMAIN",
        value_name = "DOMAIN"
    )]
    pub domain: Option<String>,
    /// Domains that machines complete short names with
    #[arg(
        id = "dhcp_search",
        long = "dhcp-search",
        env = "TINWRIGHT_DHCP_SEARCH",
        value_name = "DOMAIN",
        value_delimiter = ','
    )]
    pub search: Option<Vec<String>>,
    /// Lease of a machine that is booting from the network, in seconds [default: 600]
    #[arg(
        id = "dhcp_boot_lease",
        long = "dhcp-boot-lease",
        env = "TINWRIGHT_DHCP_BOOT_LEASE",
        value_name = "SECONDS"
    )]
    pub boot_lease: Option<u32>,
    /// Lease of an installed system whose record says nothing, in seconds, 4294967295 for ever [default: 86400]
    #[arg(
        id = "dhcp_lease",
        long = "dhcp-lease",
        env = "TINWRIGHT_DHCP_LEASE",
        value_name = "SECONDS"
    )]
    pub lease: Option<u32>,
    /// Vendors of interfaces that are never answered, as the first three octets of their addresses, such as 00:11:22
    #[arg(
        id = "dhcp_ignored_vendors",
        long = "dhcp-ignored-vendors",
        env = "TINWRIGHT_DHCP_IGNORED_VENDORS",
        value_name = "OUI",
        value_delimiter = ','
    )]
    pub ignored_vendors: Option<Vec<String>>,
    /// Vendors whose boot ROM is a Raspberry Pi's [default: those known when this was written]
    #[arg(
        id = "dhcp_raspberry_vendors",
        long = "dhcp-raspberry-vendors",
        env = "TINWRIGHT_DHCP_RASPBERRY_VENDORS",
        value_name = "OUI",
        value_delimiter = ','
    )]
    pub raspberry_vendors: Option<Vec<String>>,
    /// Send firmware for MAC/LOADER in place of LOADER
    #[arg(
        id = "dhcp_mac_in_path",
        long = "dhcp-mac-in-path",
        env = "TINWRIGHT_DHCP_MAC_IN_PATH",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub mac_in_path: Option<bool>,
    /// User class of the site's own build of iPXE
    #[arg(
        id = "dhcp_own_ipxe",
        long = "dhcp-own-ipxe",
        env = "TINWRIGHT_DHCP_OWN_IPXE",
        value_name = "CLASS"
    )]
    pub own_ipxe: Option<String>,
    /// Loaders in place of the usual ones, by the number of option 93, such as 7=ipxe.efi
    #[arg(
        id = "dhcp_architectures",
        long = "dhcp-architectures",
        env = "TINWRIGHT_DHCP_ARCHITECTURES",
        value_name = "NUMBER=FILE",
        value_delimiter = ','
    )]
    pub architectures: Option<Vec<String>>,
    /// Answer on port 67; false where this host's own DHCP server has it [default: true]
    #[arg(
        id = "dhcp_port_67",
        long = "dhcp-port-67",
        env = "TINWRIGHT_DHCP_PORT_67",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub port_67: Option<bool>,
    /// Answer on port 4011, PXE's boot service [default: true]
    #[arg(
        id = "dhcp_port_4011",
        long = "dhcp-port-4011",
        env = "TINWRIGHT_DHCP_PORT_4011",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub port_4011: Option<bool>,
}

/// Who gives addresses, as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// We do, from the records.
    #[default]
    Reservation,
    /// Another server; we add where to boot from for machines with a record.
    Proxy,
    /// Another server; we add where to boot from for every machine.
    AutoProxy,
    /// Another server, which sends machines to our TFTP and HTTP itself.
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

impl Flags {
    /// What these say, and where they say nothing, what `file` does.
    pub(super) fn or(self, file: Self) -> Self {
        Self {
            mode: self.mode.or(file.mode),
            networks: self.networks.or(file.networks),
            relays: self.relays.or(file.relays),
            trust_switches: self.trust_switches.or(file.trust_switches),
            name_servers: self.name_servers.or(file.name_servers),
            time_servers: self.time_servers.or(file.time_servers),
            domain: self.domain.or(file.domain),
            search: self.search.or(file.search),
            boot_lease: self.boot_lease.or(file.boot_lease),
            lease: self.lease.or(file.lease),
            ignored_vendors: self.ignored_vendors.or(file.ignored_vendors),
            raspberry_vendors: self.raspberry_vendors.or(file.raspberry_vendors),
            mac_in_path: self.mac_in_path.or(file.mac_in_path),
            own_ipxe: self.own_ipxe.or(file.own_ipxe),
            architectures: self.architectures.or(file.architectures),
            port_67: self.port_67.or(file.port_67),
            port_4011: self.port_4011.or(file.port_4011),
        }
    }

    /// These, checked; `chain_ipxe` is said elsewhere.
    pub(super) fn checked(self, chain_ipxe: bool) -> anyhow::Result<Dhcp> {
        let defaults = Dhcp::default();
        let (port_67, port_4011) = (self.port_67.unwrap_or(true), self.port_4011.unwrap_or(true));
        anyhow::ensure!(
            port_67 || port_4011,
            "dhcp.port_67 and dhcp.port_4011 are both off: say dhcp.mode = \"disabled\""
        );
        let gives = self.mode.unwrap_or_default() == Mode::Reservation;
        anyhow::ensure!(
            port_67 || !gives,
            "dhcp.port_67 is off, but dhcp.mode is reservation: addresses are given there"
        );
        Ok(Dhcp { link: self.link(defaults.link)?, port_67, port_4011, chain_ipxe })
    }

    fn link(self, mut link: Link) -> anyhow::Result<Link> {
        link.mode = self.mode.unwrap_or_default().into();
        link.networks = all("dhcp.networks", self.networks, |text| Ok(text.parse::<Ipv4Net>()?))?;
        link.relays = self.relays.unwrap_or_default();
        link.trust_switches = self.trust_switches.unwrap_or(false);
        link.name_servers = self.name_servers.unwrap_or_default();
        link.time_servers = self.time_servers.unwrap_or_default();
        link.domain = self.domain.map_or(Ok(String::new()), |name| domain("dhcp.domain", &name))?;
        link.search =
            all("dhcp.search", self.search, |name| Ok(tinwright::check::hostname(name)?))?;
        link.boot_lease_seconds =
            lease("dhcp.boot_lease", self.boot_lease, link.boot_lease_seconds)?;
        link.lease_seconds = lease("dhcp.lease", self.lease, link.lease_seconds)?;
        link.ignored_vendors = all("dhcp.ignored_vendors", self.ignored_vendors, vendor)?;
        if self.raspberry_vendors.is_some() {
            link.raspberry_vendors = all("dhcp.raspberry_vendors", self.raspberry_vendors, vendor)?;
        }
        link.mac_in_path = self.mac_in_path.unwrap_or(false);
        link.custom_user_class = self.own_ipxe;
        anyhow::ensure!(
            link.custom_user_class.as_ref().is_none_or(|class| (1..=255).contains(&class.len())),
            "dhcp.own_ipxe is not of 1 to 255 bytes"
        );
        let instead = all("dhcp.architectures", self.architectures, loader)?;
        link.loaders.instead = instead.into_iter().collect();
        Ok(link)
    }
}

/// Each of `texts` as `read` reads it; what it does not, is named with its `field`.
fn all<T>(
    field: &str,
    texts: Option<Vec<String>>,
    read: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let read = |text: String| read(&text).with_context(|| format!("{field}: {text:?}"));
    texts.unwrap_or_default().into_iter().map(read).collect()
}

fn domain(field: &str, name: &str) -> anyhow::Result<String> {
    tinwright::check::hostname(name).with_context(|| format!("{field}: {name:?}"))
}

fn lease(field: &str, said: Option<u32>, default: u32) -> anyhow::Result<u32> {
    let seconds = said.unwrap_or(default);
    anyhow::ensure!(
        seconds >= SHORTEST,
        "{field} is {seconds}, but no lease is under {SHORTEST} seconds"
    );
    Ok(seconds)
}

/// The first three octets of an Ethernet address, in hex, between colons or dashes.
fn vendor(text: &str) -> anyhow::Result<[u8; 3]> {
    let octets: Vec<_> =
        text.split([':', '-']).map(|octet| u8::from_str_radix(octet, 16)).collect();
    match octets[..] {
        [Ok(a), Ok(b), Ok(c)] if text.len() == 8 && !text.contains('+') => Ok([a, b, c]),
        _ => anyhow::bail!("three octets in hex are wanted, such as 00:11:22"),
    }
}

fn loader(text: &str) -> anyhow::Result<(u16, String)> {
    let (number, file) =
        text.split_once('=').context("NUMBER=FILE is wanted, such as 7=ipxe.efi")?;
    let number = number.parse().ok().filter(|number| architecture(*number).is_some());
    let number = number.context("no such number is registered for option 93")?;
    tinwright::check::file_name(file)?;
    Ok((number, file.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn section(text: &str) -> Flags {
        toml::from_str(text).unwrap()
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", section(text).checked(false).unwrap_err())
    }

    #[test]
    fn everything_that_can_be_said_reaches_the_link() {
        let said = section(
            "mode = 'auto-proxy'\nnetworks = ['192.0.2.0/24']\nrelays = ['192.0.2.254']\ntrust_switches = true\n\
             name_servers = ['192.0.2.53']\ntime_servers = ['192.0.2.123']\ndomain = 'lab.example'\n\
             search = ['a.example', 'b.example']\nboot_lease = 300\nlease = 4294967295\n\
             ignored_vendors = ['00:11:22']\nraspberry_vendors = ['AA-BB-CC']\nmac_in_path = true\n\
             own_ipxe = 'Site'\narchitectures = ['7=ipxe.efi']\nport_67 = false\nport_4011 = true",
        );
        let Dhcp { link, port_67, port_4011, chain_ipxe } = said.checked(true).unwrap();
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
    fn who_says_nothing_gets_what_the_link_has_by_itself() {
        let Dhcp { link, port_67, port_4011, chain_ipxe } =
            Flags::default().checked(false).unwrap();
        assert_eq!((port_67, port_4011, chain_ipxe), (true, true, false));
        assert_eq!(
            (link.mode, link.boot_lease_seconds, link.lease_seconds),
            (dhcp::Mode::Reservation, 600, 86_400)
        );
        assert_eq!(link.raspberry_vendors.len(), 6);
    }

    #[test]
    fn what_is_said_on_the_command_line_goes_before_the_file() {
        let file = section("mode = 'proxy'\nlease = 7200");
        let both = Flags { mode: Some(Mode::Disabled), ..Flags::default() }.or(file);
        assert_eq!((both.mode, both.lease), (Some(Mode::Disabled), Some(7200)));
    }

    #[test]
    fn every_flag_has_a_name_of_its_own() {
        use clap::{CommandFactory as _, Parser as _};
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: crate::config::Flags,
        }
        Line::command().debug_assert();
        let words =
            ["tinwright", "--dhcp-mode", "auto-proxy", "--dhcp-relays", "192.0.2.1,192.0.2.2"];
        let said = Line::parse_from(words.into_iter().chain(["--dhcp-port-4011=false"])).flags.dhcp;
        assert_eq!((said.mode, said.port_4011), (Some(Mode::AutoProxy), Some(false)));
        assert_eq!(said.relays.map(|relays| relays.len()), Some(2));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, why) in [
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
            let refused = refusal(text);
            assert!(refused.starts_with(why), "{text}: {refused}");
        }
    }
}
