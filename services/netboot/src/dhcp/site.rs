//! What answers are made from: the link a request came by, and the record of the machine that asks.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use super::architecture::Loaders;
use super::relay::RelayPort;
use crate::Mac;

/// How long an address is withheld after its own client found it in use.
pub(super) const WITHHELD: Duration = Duration::from_secs(60);

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address inside it.
    pub address: Ipv4Addr,
    /// Bits of its prefix; more than 32 count as 32.
    pub prefix: u8,
}

impl Network {
    /// The mask, as option 1 has it.
    pub fn mask(self) -> Ipv4Addr {
        u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0).into()
    }

    /// Whether `address` is inside.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.address & self.mask() == address & self.mask()
    }

    /// Whether any address is inside both.
    pub fn meets(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The text is no IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an IPv4 network is wanted, such as 192.0.2.0/24")]
pub struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    /// Reads `ADDRESS/BITS`.
    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, prefix) = text.split_once('/').ok_or(NoNetwork)?;
        let prefix = prefix.parse().ok().filter(|bits| *bits <= 32).ok_or(NoNetwork)?;
        Ok(Self { address: address.parse().map_err(|_| NoNetwork)?, prefix })
    }
}

/// A static route for option 121.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: Network,
    /// By which router.
    pub gateway: Ipv4Addr,
}

/// Whether DHCP offers a boot file: what the boot decision comes to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOffer {
    /// A loader or a script.
    Offered,
    /// A loader even for an iPXE that is not known to be ours, such as a network interface's own.
    Chained,
    /// An answer that sends firmware to its next boot device at once (netboot specification, section 3.8).
    Refused,
}

/// What makes a reservation one of a pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromPool {
    /// How long the client is given the address, in seconds.
    pub lease: u32,
    /// Whether a client is told that the address it asks for is not its own (any more): one of the pool's, whoever asks, and
    /// any where the client is a machine of ours.
    pub ours: bool,
}

/// What the site's records say about one interface (netboot specification, section 2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The interface.
    pub mac: Mac,
    /// Another DHCP server answers it.
    pub disabled: bool,
    /// Another DHCP server gives it its address; we add where to boot from.
    pub proxy: bool,
    /// Where it is plugged in, if the record says.
    pub port: Option<RelayPort>,
    /// Its address and network; none is offered without.
    pub address: Option<Network>,
    /// Default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Host name or FQDN, as in the record. Empty: none.
    pub hostname: String,
    /// Domain. Empty: the link's.
    pub domain: String,
    /// Lease time in seconds; 0 for the link's, `u32::MAX` for ever.
    pub lease: u32,
    /// Name servers. Empty: the link's.
    pub name_servers: Vec<Ipv4Addr>,
    /// NTP servers. Empty: the link's.
    pub time_servers: Vec<Ipv4Addr>,
    /// Static routes.
    pub routes: Vec<Route>,
    /// MTU; only 576 to 9216 is told.
    pub mtu: Option<u16>,
    /// Loader in place of the architecture's.
    pub loader: Option<String>,
    /// Boot server named in place of ours.
    pub tftp_server: Option<String>,
    /// Boot file in place of everything we would choose.
    pub boot_file: Option<String>,
    /// When its client last found the address in use by somebody else.
    pub declined: Option<Instant>,
    /// Of an address that is lent.
    pub pool: Option<FromPool>,
}

impl Reservation {
    /// A reservation of `address` for `mac`, everything else left to the link.
    pub fn new(mac: Mac, address: Option<Network>) -> Self {
        Self {
            mac,
            disabled: false,
            proxy: false,
            port: None,
            address,
            gateway: None,
            hostname: String::new(),
            domain: String::new(),
            lease: 0,
            name_servers: Vec::new(),
            time_servers: Vec::new(),
            routes: Vec::new(),
            mtu: None,
            loader: None,
            tftp_server: None,
            boot_file: None,
            declined: None,
            pool: None,
        }
    }

    /// How long ago the address was found in use by somebody else, while it is withheld for that.
    pub fn withheld(&self, now: Instant) -> Option<Duration> {
        let ago = now.saturating_duration_since(self.declined?);
        (ago < WITHHELD).then_some(ago)
    }
}

/// Who gives addresses on a link (netboot specification, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// We do, from the records.
    Reservation,
    /// Somebody else; we add the boot file for machines we know.
    Proxy,
    /// Somebody else; we add the boot file for every machine that asks for one.
    AutoProxy,
    /// Somebody else, boot file included.
    Disabled,
}

/// A link we serve, and its defaults.
#[derive(Clone, Debug)]
pub struct Link {
    /// Our address there: server identifier and next server.
    pub id: Ipv4Addr,
    /// The same as people write it: every answer with a boot file has it.
    pub id_text: String,
    /// Who gives addresses.
    pub mode: Mode,
    /// The networks on it. Empty: whatever the records say.
    pub networks: Vec<Network>,
    /// Where our HTTP is, without a slash at the end: `http://198.51.100.1:7080`.
    pub base_url: String,
    /// Lease of a client that is booting, in seconds: short, since what boots next may be somebody else's.
    pub boot_lease: u32,
    /// Lease of an ordinary client, in seconds.
    pub lease: u32,
    /// Option 6 for records without.
    pub name_servers: Vec<Ipv4Addr>,
    /// Option 42 for records without.
    pub time_servers: Vec<Ipv4Addr>,
    /// Option 15 for records without.
    pub domain: String,
    /// Option 119.
    pub search: Vec<String>,
    /// Option 7, our syslog receiver.
    pub log_server: Option<Ipv4Addr>,
    /// The router to 169.254.169.254, told to clients that take option 121.
    pub metadata_router: Option<Ipv4Addr>,
    /// Relays whose option 82 is believed. If there are any, no other relay is answered.
    pub relays: Vec<Ipv4Addr>,
    /// Whether to believe an option 82 that came without a relay, from a switch that snoops.
    pub trust_switches: bool,
    /// Vendors of interfaces never answered.
    pub ignored_vendors: Vec<[u8; 3]>,
    /// Vendors of Raspberry Pis.
    pub raspberry_vendors: Vec<[u8; 3]>,
    /// The loaders there are.
    pub loaders: Loaders,
    /// The user class of the site's own iPXE build.
    pub own_ipxe: Option<String>,
    /// Whether firmware is sent for `MAC/LOADER` and not for `LOADER`.
    pub mac_in_path: bool,
}

/// Interfaces of Raspberry Pis, 2012 to today.
const RASPBERRY_VENDORS: [[u8; 3]; 6] = [
    [0xb8, 0x27, 0xeb],
    [0xdc, 0xa6, 0x32],
    [0xe4, 0x5f, 0x01],
    [0x28, 0xcd, 0xc1],
    [0xd8, 0x3a, 0xdd],
    [0x2c, 0xcf, 0x67],
];

impl Link {
    /// A link where we are `id` and give addresses, our HTTP being at `base_url`.
    pub fn new(id: Ipv4Addr, base_url: impl Into<String>) -> Self {
        Self {
            id,
            id_text: id.to_string(),
            mode: Mode::Reservation,
            networks: Vec::new(),
            base_url: base_url.into(),
            boot_lease: 600,
            lease: 86_400,
            name_servers: Vec::new(),
            time_servers: Vec::new(),
            domain: String::new(),
            search: Vec::new(),
            log_server: None,
            metadata_router: None,
            relays: Vec::new(),
            trust_switches: false,
            ignored_vendors: Vec::new(),
            raspberry_vendors: RASPBERRY_VENDORS.into(),
            loaders: Loaders::default(),
            own_ipxe: None,
            mac_in_path: false,
        }
    }
}
