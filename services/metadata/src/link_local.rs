//! Being 169.254.169.254: the address is given to an interface for as long as we serve there.
//!
//! What is set is written down first, in a file of the data directory. A process that is killed leaves both; the next one
//! undoes what the file says before it does anything else. An address that was there before us is not ours to take away.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::netlink::Netlink;

/// Where EC2's machines ask.
pub const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
/// The same over IPv6.
pub const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));

/// Why the addresses cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface.
    #[error("interface {interface}")]
    Interface {
        /// Its name.
        interface: String,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else on this host is there already.
    #[error("{address} is on interface {holder} already, not on {interface}")]
    Elsewhere {
        /// The address.
        address: IpAddr,
        /// Who has it.
        holder: String,
        /// Who was to have it.
        interface: String,
    },
    /// The kernel refuses.
    #[error("giving {interface} the address {address}")]
    Refused {
        /// The address.
        address: IpAddr,
        /// Who was to have it.
        interface: String,
        /// Why not.
        source: io::Error,
    },
    /// What is set cannot be written down, or what was set cannot be read.
    #[error("the file {file}")]
    File {
        /// Its path.
        file: String,
        /// Why not.
        source: io::Error,
    },
}

/// What was set, as it is written down.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Set {
    interface: String,
    addresses: Vec<IpAddr>,
}

/// The addresses on their interface. Dropped, it takes away those that it set.
#[derive(Debug)]
pub struct LinkLocal {
    netlink: Netlink,
    index: u32,
    set: Set,
    addresses: Vec<IpAddr>,
    file: PathBuf,
}

impl LinkLocal {
    /// Gives `interface` the addresses, IPv6's where the interface speaks it, after undoing what `file` says.
    pub fn set(interface: &str, file: &Path) -> Result<Self, Error> {
        let netlink = Netlink::open().map_err(|e| no_interface(interface, e))?;
        undo(&netlink, file)?;
        let index = netlink.index_of(interface).map_err(|e| no_interface(interface, e))?;
        let set = Set { interface: interface.to_owned(), addresses: Vec::new() };
        let mut new = Self { netlink, index, set, addresses: Vec::new(), file: file.to_owned() };
        new.have(IPV4)?;
        if speaks_ipv6(interface) {
            new.have(IPV6)?;
        }
        Ok(new)
    }

    /// Those that are there now.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    fn have(&mut self, address: IpAddr) -> Result<(), Error> {
        let refused = |interface: &str, source| Error::Refused {
            address,
            interface: interface.to_owned(),
            source,
        };
        let holders = self.netlink.holders(address).map_err(|e| refused(&self.set.interface, e))?;
        if let Some(other) = holders.iter().find(|holder| **holder != self.index) {
            let (holder, interface) = (self.netlink.name_of(*other), self.set.interface.clone());
            return Err(Error::Elsewhere { address, holder, interface });
        }
        if holders.is_empty() {
            // Written down first: a process killed in between has written too much, which is harmless.
            self.set.addresses.push(address);
            write(&self.file, &self.set).map_err(|e| no_file(&self.file, e))?;
            let added = self.netlink.add_address(self.index, address);
            added.map_err(|e| refused(&self.set.interface, e))?;
        }
        self.addresses.push(address);
        Ok(())
    }
}

impl Drop for LinkLocal {
    fn drop(&mut self) {
        if let Err(error) = undo(&self.netlink, &self.file) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the metadata address stays; the next start takes it away");
        }
    }
}

/// Takes away what `file` says was set, then the file.
fn undo(netlink: &Netlink, file: &Path) -> Result<(), Error> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(no_file(file, error)),
    };
    let set: Set = serde_json::from_slice(&text).map_err(|e| no_file(file, e.into()))?;
    // An interface that is gone took its addresses along.
    if let Ok(index) = netlink.index_of(&set.interface) {
        for address in set.addresses {
            match netlink.remove_address(index, address) {
                Err(error) if error.kind() != io::ErrorKind::AddrNotAvailable => {
                    let interface = set.interface;
                    return Err(Error::Refused { address, interface, source: error });
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    fs::remove_file(file).map_err(|e| no_file(file, e))
}

/// Whole or not at all, whatever happens in between.
fn write(path: &Path, set: &Set) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(set)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

fn speaks_ipv6(interface: &str) -> bool {
    let off = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    fs::read_to_string(off).is_ok_and(|off| off.trim() == "0")
}

fn no_interface(interface: &str, source: io::Error) -> Error {
    Error::Interface { interface: interface.to_owned(), source }
}

fn no_file(file: &Path, source: io::Error) -> Error {
    Error::File { file: file.display().to_string(), source }
}
