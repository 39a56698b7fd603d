//! What an operator said of the network we boot machines on.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::decision::Policy;
use crate::dhcp::site::Mode;

/// The settings of netboot on one interface.
#[derive(Clone, Debug)]
pub struct Site {
    /// The interface machines are attached to.
    pub interface: String,
    /// Our own address there: DHCP server, TFTP server, HTTP.
    pub address: Ipv4Addr,
    /// Where our HTTP listens.
    pub http_port: u16,
    /// Who gives addresses.
    pub mode: Mode,
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
}

/// The first IPv4 address of `interface`.
pub fn address_of(interface: &str) -> io::Result<Ipv4Addr> {
    let addresses = nix::ifaddrs::getifaddrs()?.filter(|one| one.interface_name == interface);
    let mut own = addresses.filter_map(|one| Some(one.address?.as_sockaddr_in()?.ip()));
    own.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it has no IPv4 address"))
}

impl Site {
    /// Where machines find our HTTP.
    pub fn base_url(&self) -> String {
        format!("http://{}:{}", self.address, self.http_port)
    }
}
