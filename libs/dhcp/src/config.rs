//! The settings of a link, the reservation of a machine, and the other inputs of a reply besides the request.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::architecture::Loaders;
use crate::packet::MacAddress;
use crate::relay::RelayPort;

/// A static route for option 121.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// Destination network.
    pub destination: Ipv4Net,
    /// Router.
    pub gateway: Ipv4Addr,
}

/// The part of a reservation that exists only for a pool address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    /// Lease time in seconds.
    pub lease_seconds: u32,
    /// True if a request for any other address gets a NAK: the address is in the pool, or the client has a record.
    pub is_authoritative: bool,
}

/// The DHCP part of a machine's record, for one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The interface.
    pub mac: MacAddress,
    /// True if another DHCP server answers this machine.
    pub disabled: bool,
    /// True if another DHCP server assigns the address and we only add the boot file.
    pub proxy: bool,
    /// The switch port where the interface is plugged in.
    pub port: Option<RelayPort>,
    /// Address and network. Without one no address is offered.
    pub address: Option<Ipv4Net>,
    /// Default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Host name or FQDN. Empty: none.
    pub hostname: String,
    /// Domain. Empty: the link's.
    pub domain: String,
    /// Lease time in seconds; 0 for the link's, `u32::MAX` for infinite.
    pub lease_seconds: u32,
    /// Name servers. Empty: the link's.
    pub name_servers: Vec<Ipv4Addr>,
    /// NTP servers. Empty: the link's.
    pub time_servers: Vec<Ipv4Addr>,
    /// Static routes.
    pub routes: Vec<StaticRoute>,
    /// MTU; sent only if it is between 576 and 9216.
    pub mtu: Option<u16>,
    /// Loader in place of the architecture's.
    pub loader: Option<String>,
    /// Boot server in place of ours.
    pub tftp_server: Option<String>,
    /// Boot file in place of the one we would select.
    pub boot_file: Option<String>,
    /// Present if the address is allocated from a pool.
    pub pool: Option<PoolTerms>,
}

impl Reservation {
    /// Returns a reservation of `address` for `mac`; everything else is left to the link.
    pub fn new(mac: MacAddress, address: Option<Ipv4Net>) -> Self {
        Self { mac, address, ..Self::default() }
    }
}

/// The server that assigns addresses on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// We do, from records and pools.
    Reservation,
    /// Another server; we add the boot file for machines with a record.
    Proxy,
    /// Another server; we add the boot file for every machine that boots from the network.
    AutoProxy,
    /// Another server, including the boot file: nothing is answered.
    Disabled,
}

/// The settings of one link.
#[derive(Clone, Debug)]
pub struct Link {
    /// Our address there: server identifier and next server.
    pub id: Ipv4Addr,
    /// The server that assigns addresses.
    pub mode: Mode,
    /// Networks of the link. Empty: any.
    pub networks: Vec<Ipv4Net>,
    /// Base URL of our HTTP server, without a slash at the end: `http://198.51.100.1:7080`.
    pub base_url: String,
    /// Lease time of a booting client in seconds. Short: the next program may get its address from another server.
    pub boot_lease_seconds: u32,
    /// Lease time of an ordinary client in seconds.
    pub lease_seconds: u32,
    /// Option 6 for records without.
    pub name_servers: Vec<Ipv4Addr>,
    /// Option 42 for records without.
    pub time_servers: Vec<Ipv4Addr>,
    /// Option 15 for records without.
    pub domain: String,
    /// Option 119.
    pub search: Vec<String>,
    /// Option 7: our syslog receiver.
    pub log_server: Option<Ipv4Addr>,
    /// The router to 169.254.169.254, sent in option 121.
    pub metadata_router: Option<Ipv4Addr>,
    /// Relays whose option 82 is trusted. If not empty, requests of other relays are dropped.
    pub relays: Vec<Ipv4Addr>,
    /// True if option 82 of a request without relay is trusted: a snooping switch inserted it.
    pub trust_switches: bool,
    /// Vendor prefixes (OUI) of interfaces whose requests are dropped.
    pub ignored_vendors: Vec<[u8; 3]>,
    /// Vendor prefixes (OUI) of Raspberry Pis.
    pub raspberry_vendors: Vec<[u8; 3]>,
    /// The loaders that the site has.
    pub loaders: Loaders,
    /// The user class (option 77) of the site's own iPXE build.
    pub custom_user_class: Option<String>,
    /// True if firmware is sent to `MAC/LOADER` instead of `LOADER`.
    pub mac_in_path: bool,
}

/// Raspberry Pis from 2012 on.
const RASPBERRY_VENDORS: [[u8; 3]; 6] = [
    [0xb8, 0x27, 0xeb],
    [0xdc, 0xa6, 0x32],
    [0xe4, 0x5f, 0x01],
    [0x28, 0xcd, 0xc1],
    [0xd8, 0x3a, 0xdd],
    [0x2c, 0xcf, 0x67],
];

impl Link {
    /// Returns a link where we are `id` and assign addresses, and our HTTP server is at `base_url`.
    pub fn new(id: Ipv4Addr, base_url: impl Into<String>) -> Self {
        Self {
            id,
            mode: Mode::Reservation,
            networks: Vec::new(),
            base_url: base_url.into(),
            boot_lease_seconds: 600,
            lease_seconds: 86_400,
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
            custom_user_class: None,
            mac_in_path: false,
        }
    }
}

/// The boot decision as far as DHCP carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOffer {
    /// A loader for firmware, a script for iPXE.
    Offered,
    /// A loader for iPXE too, because it is a network interface's firmware.
    Chainload,
    /// A reply that makes firmware go on to its next boot device at once.
    Refused,
}

/// Everything that a reply depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub struct ReplyInputs<'a> {
    /// The link that received the request.
    pub link: &'a Link,
    /// The mode for this request; usually the link's.
    pub mode: Mode,
    /// The reservation of the client.
    pub reservation: Option<&'a Reservation>,
    /// The boot decision.
    pub offer: BootOffer,
    /// True if the reserved address was declined and is not offered yet.
    pub is_withheld: bool,
}
