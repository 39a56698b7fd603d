//! What an operator said of the network we boot machines on.

pub mod serving;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use dhcp::{Link, Mode};
use ipnet::Ipv4Net;

use crate::decision::Policy;
use crate::pool::Subnet;

pub use serving::Serving;

/// The settings of netboot on one link.
#[derive(Clone, Debug)]
pub struct Site {
    /// The interface machines are attached to.
    pub interface: String,
    /// Our own address there: DHCP server, TFTP server, HTTP.
    pub address: Ipv4Addr,
    /// Where our HTTP listens.
    pub http_port: u16,
    /// How DHCP is served there.
    pub dhcp: Dhcp,
    /// Directories with iPXE's builds; of two files with one name the earlier directory's is served.
    pub loaders: Vec<PathBuf>,
    /// Directory with the kernel and the initramfs of the operating system installation environment.
    pub osie: PathBuf,
    /// Directory of public files, such as images.
    pub files: Option<PathBuf>,
    /// `host:port` of the control plane, as machines reach it.
    pub grpc_authority: String,
    /// The certificate of the site's authority, in PEM.
    pub authority: String,
    /// SHA-256 of that certificate's DER, in hex.
    pub authority_sha256: String,
    /// `console=` values of every in-memory boot, the last becoming `/dev/console`.
    pub consoles: Vec<String>,
    /// Whether machines are told that the metadata address is behind ours.
    pub metadata_route: bool,
    /// Whether there is a limit to how often each machine may ask.
    pub rate_limits: bool,
    /// What machines boot where the records leave a choice.
    pub policy: Policy,
    /// Whether machines are told to send their syslog to us.
    pub syslog: Option<Syslog>,
    /// Whether booting machines' router solicitations are answered, so that iPXE does not wait for a router.
    pub ra_assist: bool,
    /// Where addresses are lent.
    pub subnets: Vec<Subnet>,
    /// How scripts and files are given out.
    pub serving: Serving,
}

/// How machines' syslog is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// Whether lines of severity 7 are kept, too.
    pub debug: bool,
}

/// How DHCP is served on a link.
#[derive(Clone, Debug)]
pub struct Dhcp {
    /// What clients are told. Our address, our HTTP, the loaders there are and the router to the metadata address are
    /// filled in when the sockets are bound.
    pub link: Link,
    /// Whether we answer on port 67; a DHCP server on this host may have it.
    pub port_67: bool,
    /// Whether we answer on port 4011, PXE's boot service.
    pub port_4011: bool,
    /// Whether an interface whose firmware is iPXE loads a build of the site's before it gets its script.
    pub chain_ipxe: bool,
}

impl Default for Dhcp {
    fn default() -> Self {
        let link = Link::new(Ipv4Addr::UNSPECIFIED, "");
        Self { link, port_67: true, port_4011: true, chain_ipxe: false }
    }
}

impl Dhcp {
    /// Whether any port is served: TFTP and HTTP serve machines that somebody else's server sends here, too.
    pub fn is_on(&self) -> bool {
        self.link.mode != Mode::Disabled
    }
}

/// The first IPv4 address of `interface`.
pub fn address_of(interface: &str) -> io::Result<Ipv4Addr> {
    let addresses = nix::ifaddrs::getifaddrs()?.filter(|one| one.interface_name == interface);
    let mut own = addresses.filter_map(|one| Some(one.address?.as_sockaddr_in()?.ip()));
    own.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it has no IPv4 address"))
}

/// The IPv4 networks that `interface` is on.
pub fn networks_of(interface: &str) -> io::Result<Vec<Ipv4Net>> {
    let addresses = nix::ifaddrs::getifaddrs()?.filter(|one| one.interface_name == interface);
    let network = |one: nix::ifaddrs::InterfaceAddress| {
        let (address, mask) = (one.address?, one.netmask?);
        Ipv4Net::with_netmask(address.as_sockaddr_in()?.ip(), mask.as_sockaddr_in()?.ip()).ok()
    };
    Ok(addresses.filter_map(network).collect())
}

impl Site {
    /// Where machines send their syslog, if they are to.
    pub fn log_server(&self) -> Option<Ipv4Addr> {
        self.syslog.map(|_| self.address)
    }

    /// Where machines find our HTTP.
    pub fn base_url(&self) -> String {
        format!("http://{}:{}", self.address, self.http_port)
    }
}
