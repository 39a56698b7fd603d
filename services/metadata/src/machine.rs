//! One machine and its instance, as plain values.
//!
//! An empty text means "unknown", as in the contract; the tree leaves such values out. Values derived from these (host name,
//! zone, first public address, …) are in `facts`, network links in `links`.

mod facts;
mod links;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use runtime::secret::Secret;
use tinwright::instance::v1::State;
use tinwright::{HardwareId, Mac};

use ipnet::IpNet;
use runtime::network;

use crate::guard::Guard;

pub use links::{Kind, NetworkLink};

/// A machine, and the instance that occupies it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The hardware record's id.
    pub id: HardwareId,
    /// The creation time of that record. If two machines claim an address, the older one has it.
    pub created: SystemTime,
    /// Linux's name of the CPU architecture: `x86_64` or `aarch64`.
    pub architecture: String,
    /// The code of the site or data centre.
    pub facility: String,
    /// The owner's product name for this kind of machine.
    pub plan: String,
    /// The manufacturer.
    pub manufacturer: String,
    /// The network interfaces, in the order of the record.
    pub nics: Vec<Nic>,
    /// The bonds of the interfaces.
    pub bonds: Vec<Bond>,
    /// The device paths of the disks, the system disk first.
    pub disks: Vec<String>,
    /// The instance. None once it is being deprovisioned: nothing of it is told to what runs on the machine then.
    pub instance: Option<Instance>,
    /// The rule for session tokens.
    pub tokens: TokenPolicy,
    /// The checks of this machine's requests.
    pub guard: Guard,
    /// True if `public-keys` in version 2009-04-04 is the keys themselves, for old clients.
    pub raw_keys: bool,
    /// The `extra` of the hardware record: `metro`, `userdata` of old records, …
    pub extra: serde_json::Value,
}

/// Interfaces that the operating system uses as one.
#[derive(Clone, Debug)]
pub struct Bond {
    /// The name in the operating system.
    pub name: String,
    /// Linux's name of the bonding mode: `802.3ad`, `active-backup`, …
    pub mode: String,
}

/// A network interface.
#[derive(Clone, Debug)]
pub struct Nic {
    /// The MAC.
    pub mac: Mac,
    /// The name in the operating system; empty if unknown.
    pub name: String,
    /// The name of its bond; empty for none.
    pub bond: String,
    /// The VLAN of tagged frames.
    pub vlan: Option<u16>,
    /// The MTU in bytes, if it is not 1500.
    pub mtu: Option<u32>,
    /// The DNS servers.
    pub name_servers: Vec<IpAddr>,
    /// The routes, without the default route.
    pub routes: Vec<Route>,
    /// The addresses that DHCP gives: the granted primary one, else the reserved one.
    pub addresses: Vec<Address>,
    /// The granted addresses that are attached to it beside the one that DHCP gives.
    pub attached: Vec<Address>,
    /// The leased address that the request came from. It is reported, and not to be set up.
    pub leased: Option<IpAddr>,
    /// The host name that DHCP gives.
    pub hostname: String,
    /// The domain that DHCP gives.
    pub domain: String,
    /// True for the primary interface, which need not be first in the record.
    pub primary: bool,
}

/// An address and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The prefix length of its network.
    pub prefix_length: u8,
    /// True if it is reachable from the internet.
    pub public: bool,
    /// True if it is for managing the machine.
    pub management: bool,
    /// The gateway of its network.
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub network: IpNet,
    /// The gateway.
    pub gateway: IpAddr,
}

impl Address {
    /// Returns its network.
    pub fn network(&self) -> IpNet {
        network::of(self.ip, self.prefix_length)
    }
}

/// The instance on a machine.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The id, never empty.
    pub id: String,
    /// The creation time.
    pub created: SystemTime,
    /// The state.
    pub state: State,
    /// The host name, with or without a domain.
    pub hostname: String,
    /// The owner.
    pub tenant: String,
    /// The operating system.
    pub os: OperatingSystem,
    /// The instance's own addresses.
    pub addresses: Vec<Address>,
    /// The owner's user data.
    pub user_data: UserData,
    /// The vendor data.
    pub vendor_data: UserData,
    /// The owner's network configuration for cloud-init; empty to use the one made from the record.
    pub network_config: UserData,
    /// 128 random bits in hexadecimal digits, which identify the machine if its address does not; or empty.
    pub lookup_id: Secret<String>,
    /// The hash of the root password by crypt(3), or empty.
    pub crypted_root_password: Secret<String>,
    /// The tags, `key` or `key=value`.
    pub tags: Vec<String>,
    /// The public keys, each as a line of `authorized_keys`.
    pub ssh_keys: Vec<String>,
    /// The `extra` of the record: `storage`, `iqn`, `spot`, `license_activation`, …
    pub extra: serde_json::Value,
}

/// An operating system, with the names of its image.
#[derive(Clone, Debug, Default)]
pub struct OperatingSystem {
    /// Such as `debian_12`.
    pub slug: String,
    /// Such as `debian`.
    pub distro: String,
    /// Such as `12`.
    pub version: String,
    /// The build of the image.
    pub image_tag: String,
}

/// An owner's bytes. They often contain passwords, so `Debug` shows only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(pub Bytes);

impl UserData {
    /// Returns the bytes in a field of `record`. They are shared, not copied.
    pub(crate) fn of(
        record: &Arc<tinwright::instance::v1::Instance>,
        field: fn(&tinwright::instance::v1::Instance) -> &[u8],
    ) -> Self {
        struct Field(
            Arc<tinwright::instance::v1::Instance>,
            fn(&tinwright::instance::v1::Instance) -> &[u8],
        );
        impl AsRef<[u8]> for Field {
            fn as_ref(&self) -> &[u8] {
                (self.1)(&self.0)
            }
        }
        match field(record).is_empty() {
            true => Self::default(),
            false => Self(Bytes::from_owner(Field(record.clone(), field))),
        }
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The rule for session tokens (IMDSv2) in a machine's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenPolicy {
    /// A token is optional. The default, because cloud-init requests one only on Amazon's hardware.
    #[default]
    Optional,
    /// A token is required.
    Required,
    /// The EC2 tree is closed.
    Disabled,
}
