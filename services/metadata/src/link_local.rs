//! Adds the addresses 169.254.169.254 and fd00:ec2::254 to an interface, and removes them when the service ends.
//!
//! The addresses are recorded in a file of the data directory before they are added. A killed process leaves the file and the
//! addresses behind. The next process first removes the addresses in the file. An address that the interface had before the
//! service started is not removed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use runtime::netlink::Netlink;

/// The address of EC2's metadata service.
pub const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
/// The same over IPv6.
pub const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));

/// The reason why the addresses cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface does not exist, or the kernel's interfaces cannot be read.
    #[error("interface {interface}")]
    Interface {
        /// Its name.
        interface: String,
        /// The cause.
        source: io::Error,
    },
    /// Another interface of this host has the address.
    #[error("{address} is on interface {holder} already, not on {interface}")]
    Elsewhere {
        /// The address.
        address: IpAddr,
        /// The interface that has it.
        holder: String,
        /// The interface that it was to be added to.
        interface: String,
    },
    /// The kernel refuses the change.
    #[error("changing the address {address} of interface {interface}")]
    Refused {
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// The cause.
        source: io::Error,
    },
    /// The file of added addresses cannot be written or read.
    #[error("metadata address file {}", file.display())]
    File {
        /// Its path.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct AddedAddresses {
    interface: String,
    addresses: Vec<IpAddr>,
}

/// The addresses on their interface. Dropping it removes the addresses that it added.
#[derive(Debug)]
pub struct LinkLocal {
    netlink: Netlink,
    addresses: Vec<IpAddr>,
    file: PathBuf,
}

impl LinkLocal {
    /// Removes the addresses in `file`, then adds the addresses to `interface`; the IPv6 one only if IPv6 is enabled there.
    pub fn add(interface: &str, file: &Path) -> Result<Self, Error> {
        let name = || interface.to_owned();
        let error = |source| Error::Interface { interface: name(), source };
        let netlink = Netlink::open().map_err(error)?;
        remove_added(&netlink, file)?;
        let index = netlink.index_of(interface).map_err(error)?;
        let addresses = if has_ipv6(interface) { vec![IPV4, IPV6] } else { vec![IPV4] };
        let refused = |address| move |source| Error::Refused { address, interface: name(), source };
        let mut missing = Vec::new();
        for &address in &addresses {
            let holders = netlink.interfaces_with(address).map_err(refused(address))?;
            if let Some(other) = holders.iter().find(|holder| **holder != index) {
                let holder = netlink.name_of(*other);
                return Err(Error::Elsewhere { address, holder, interface: name() });
            }
            missing.extend(holders.is_empty().then_some(address));
        }
        let new = Self { netlink, addresses, file: file.to_owned() };
        // The file is written first. If the process is killed before it adds the addresses, the next one tries to remove
        // addresses that do not exist, which is not an error.
        let added = AddedAddresses { interface: name(), addresses: missing };
        write(file, &added).map_err(file_error(file))?;
        for (position, &address) in added.addresses.iter().enumerate() {
            if let Err(source) = new.netlink.add_address(index, address) {
                // Only those that were added are removed again.
                let addresses = added.addresses[..position].to_vec();
                let done = AddedAddresses { interface: name(), addresses };
                write(file, &done).map_err(file_error(file))?;
                return Err(refused(address)(source));
            }
        }
        Ok(new)
    }

    /// Returns the addresses that the interface has now.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }
}

impl Drop for LinkLocal {
    fn drop(&mut self) {
        if let Err(error) = remove_added(&self.netlink, &self.file) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "metadata address not removed; the next start removes it");
        }
    }
}

/// Removes the addresses in `file`, then the file.
fn remove_added(netlink: &Netlink, file: &Path) -> Result<(), Error> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(file_error(file))?,
    };
    let AddedAddresses { interface, addresses } =
        serde_json::from_slice(&text).map_err(io::Error::from).map_err(file_error(file))?;
    // If the interface no longer exists, its addresses do not either.
    if let Ok(index) = netlink.index_of(&interface) {
        for address in addresses {
            match netlink.remove_address(index, address) {
                Err(source) if source.kind() != io::ErrorKind::AddrNotAvailable => {
                    return Err(Error::Refused { address, interface, source });
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    fs::remove_file(file).map_err(file_error(file))
}

/// Replaces the file atomically.
fn write(path: &Path, added: &AddedAddresses) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(&serde_json::to_vec(added)?)?;
    file.sync_all()?;
    fs::rename(draft, path)
}

fn has_ipv6(interface: &str) -> bool {
    let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    fs::read_to_string(setting).is_ok_and(|disabled| disabled.trim() == "0")
}

fn file_error(file: &Path) -> impl FnOnce(io::Error) -> Error {
    |source| Error::File { file: file.to_owned(), source }
}
