//! Settings of network boot.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use dhcp::{Link, Mode};
use ipnet::{IpNet, Ipv4Net};
use runtime::authority::SiteAuthority;
use runtime::client_address::TrustedProxies;
use runtime::neighbour::SourceCheck;

use crate::decision::Policy;
use crate::pool::Subnet;

/// The site's authority, as workers know it. It may be replaced while they boot.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Returns its certificate in PEM, and that of a former one whose machines are still booting.
    fn pem(&self) -> String;

    /// Returns the SHA-256 of its certificate (DER) in hex. A worker finds the certificate by it.
    fn sha256(&self) -> String;
}

impl Authority for SiteAuthority {
    fn pem(&self) -> String {
        self.authority()
    }

    fn sha256(&self) -> String {
        self.fingerprint()
    }
}

/// An authority that is not replaced: PEM and SHA-256.
#[derive(Clone, Copy, Debug)]
pub struct FixedAuthority(pub &'static str, pub &'static str);

impl Authority for FixedAuthority {
    fn pem(&self) -> String {
        self.0.into()
    }

    fn sha256(&self) -> String {
        self.1.into()
    }
}

/// The settings of netboot on one link.
#[derive(Clone, Debug)]
pub struct Site {
    /// Interface that the machines are attached to.
    pub interface: String,
    /// Our own address there: DHCP server, TFTP server, HTTP.
    pub address: Ipv4Addr,
    /// Port of our HTTP.
    pub http_port: u16,
    /// DHCP on the link.
    pub dhcp: Dhcp,
    /// Directories with iPXE's builds; of two files with one name the earlier directory's is served.
    pub loaders: Vec<PathBuf>,
    /// Directory with the kernel and the initramfs of the operating system installation environment.
    pub osie: PathBuf,
    /// Directory of public files, such as images.
    pub files: Option<PathBuf>,
    /// `host:port` of the control plane, as machines reach it.
    pub grpc_authority: String,
    /// `host:port` of further servers of the control plane, which workers call if the first one does not answer.
    pub grpc_servers: Vec<String>,
    /// The certificate of the site's authority, which workers trust.
    pub authority: Arc<dyn Authority>,
    /// `console=` values of every in-memory boot, the last becoming `/dev/console`.
    pub consoles: Vec<String>,
    /// True if machines get a route to the metadata address by our address.
    pub metadata_route: bool,
    /// True if requests of each machine are rate limited.
    pub rate_limits: bool,
    /// Policy of the boot decision.
    pub policy: Policy,
    /// Syslog receiver, which machines are configured to use.
    pub syslog: Option<Syslog>,
    /// True if router solicitations of booting machines are answered, so that iPXE does not wait for a router.
    pub ra_assist: bool,
    /// Subnets with pools.
    pub subnets: Vec<Subnet>,
    /// Settings of boot HTTP and TFTP.
    pub serving: Serving,
}

/// Settings of the syslog receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// True if lines of severity 7 are stored, too.
    pub debug: bool,
}

/// DHCP on a link.
#[derive(Clone, Debug)]
pub struct Dhcp {
    /// Values for clients. Our address, our HTTP, the present loaders and the route to the metadata address are filled in
    /// when the sockets are bound.
    pub link: Link,
    /// True if we answer on port 67; another DHCP server on this host may have it.
    pub port_67: bool,
    /// True if we answer on port 4011, PXE's boot service.
    pub port_4011: bool,
    /// True if iPXE in an interface's ROM gets a loader of the site before its script.
    pub chain_ipxe: bool,
}

impl Default for Dhcp {
    fn default() -> Self {
        let link = Link::new(Ipv4Addr::UNSPECIFIED, "");
        Self { link, port_67: true, port_4011: true, chain_ipxe: false }
    }
}

impl Dhcp {
    /// True if any DHCP port is served. TFTP and HTTP also serve machines that a foreign DHCP server sends here.
    pub fn is_on(&self) -> bool {
        self.link.mode != Mode::Disabled
    }
}

/// Returns the first IPv4 address of `interface`.
pub fn address_of(interface: &str) -> io::Result<Ipv4Addr> {
    if let Some(first) = networks_of(interface)?.first() {
        return Ok(first.addr());
    }
    let not_found = |reason: String| io::Error::new(io::ErrorKind::NotFound, reason);
    let names: BTreeSet<_> = nix::ifaddrs::getifaddrs()?.map(|one| one.interface_name).collect();
    if names.contains(interface) {
        return Err(not_found("it has no IPv4 address: set netboot_address, or add one".into()));
    }
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    Err(not_found(format!("there is no such interface; this host has {names}")))
}

/// Returns the IPv4 addresses of `interface` with their networks.
pub fn networks_of(interface: &str) -> io::Result<Vec<Ipv4Net>> {
    let addresses = nix::ifaddrs::getifaddrs()?.filter(|one| one.interface_name == interface);
    let network = |one: nix::ifaddrs::InterfaceAddress| {
        let (address, mask) = (one.address?, one.netmask?);
        Ipv4Net::with_netmask(address.as_sockaddr_in()?.ip(), mask.as_sockaddr_in()?.ip()).ok()
    };
    Ok(addresses.filter_map(network).collect())
}

impl Site {
    /// Returns the address of our syslog receiver, if it is on.
    pub fn log_server(&self) -> Option<Ipv4Addr> {
        self.syslog.map(|_| self.address)
    }

    /// Returns the URL of our HTTP.
    pub fn base_url(&self) -> String {
        format!("http://{}:{}", self.address, self.http_port)
    }
}

/// Settings of boot HTTP and TFTP.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// Proxies whose forwarded client address is trusted.
    pub trusted_proxies: TrustedProxies,
    /// Networks whose machines hide behind another address: there the MAC in the path is enough, and the script holds no
    /// identity.
    pub mac_only: Vec<IpNet>,
    /// Proof that the client at an address of a machine is that machine.
    pub source_check: SourceCheck,
    /// True if a refusal is 401, which iPXE shows as "Permission denied", in place of 403.
    pub refuse_by_401: bool,
    /// True if scripts for a machine in a boot loop are delayed.
    pub hold_boot_loops: bool,
    /// True if `autoexec.ipxe` chains to the script; otherwise it is empty, and iPXE goes on with DHCP.
    pub autoexec_script: bool,
    /// Directory of further files for TFTP, such as firmware of Raspberry Pis.
    pub tftp_assets: Option<PathBuf>,
    /// Directory of the private files of outside platforms.
    pub platform_files: Option<PathBuf>,
    /// True if TFTP answers from port 69 only, for firewalls that close other ports.
    pub tftp_single_port: bool,
    /// Images for virtual media.
    pub iso: Option<Iso>,
}

/// Images for virtual media.
#[derive(Clone, Debug)]
pub struct Iso {
    /// Directory with the source images.
    pub directory: PathBuf,
    /// Beginning of the placeholder that is replaced.
    pub placeholder: String,
    /// Networks of BMCs. A BMC's own address is in no record that netboot has.
    pub sources: Vec<IpNet>,
}

impl Serving {
    /// True if a machine at `source` is identified by its MAC only.
    pub fn is_mac_only(&self, source: IpAddr) -> bool {
        self.mac_only.iter().any(|network| network.contains(&source))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_interface_that_does_not_exist_is_said_not_to_exist() {
        assert_eq!(address_of("lo").unwrap(), Ipv4Addr::LOCALHOST);
        let error = address_of("nowhere").unwrap_err().to_string();
        assert!(error.starts_with("there is no such interface; this host has "), "{error}");
        assert!(error.contains("lo"), "{error}");
    }
}
