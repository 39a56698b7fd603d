//! What is known of one machine, as plain values.
//!
//! An empty text means "not known", as it does in the contract; the tree leaves such values out. What follows from
//! these values (host name, zone, first public address, …) is in `facts`.

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

pub use links::{Kind, Link};

/// A machine, and the instance that occupies it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The hardware record's id.
    pub id: HardwareId,
    /// When that record was made: of two machines that claim an address, the older one has it.
    pub created: SystemTime,
    /// As Linux spells it: `x86_64` or `aarch64`.
    pub architecture: String,
    /// Site or data centre code.
    pub facility: String,
    /// The kind of machine, as its owner sells it.
    pub plan: String,
    /// Who made it.
    pub manufacturer: String,
    /// Its network interfaces, in the order of the record.
    pub nics: Vec<Nic>,
    /// Which of them the operating system joins to one.
    pub bonds: Vec<Bond>,
    /// Device paths of its disks, the system disk first.
    pub disks: Vec<String>,
    /// Who occupies it. `None` from the moment the instance is being given back: its data must not outlive it.
    pub instance: Option<Instance>,
    /// How session tokens are treated.
    pub tokens: TokenPolicy,
    /// Who may ask as this machine, and for how long.
    pub guard: Guard,
    /// Whether `public-keys` under 2009-04-04 is the keys themselves, as old readers want them.
    pub raw_keys: bool,
    /// What the hardware's record says that has no field: `metro`, `userdata` of old records, …
    pub extra: serde_json::Value,
}

/// Interfaces that the operating system joins to one.
#[derive(Clone, Debug)]
pub struct Bond {
    /// What the system calls it.
    pub name: String,
    /// Linux's name of how: `802.3ad`, `active-backup`, …
    pub mode: String,
}

/// A network interface.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Its Ethernet address.
    pub mac: Mac,
    /// What the operating system calls it; empty if nobody said.
    pub name: String,
    /// The bond it belongs to; empty for none.
    pub bond: String,
    /// The VLAN the machine tags for.
    pub vlan: Option<u16>,
    /// Bytes a frame may carry, where it is not the usual 1500.
    pub mtu: Option<u32>,
    /// Who resolves names there.
    pub name_servers: Vec<IpAddr>,
    /// Networks beyond others than the default gateway.
    pub routes: Vec<Route>,
    /// The addresses it has by reservation, the one DHCP gives it first.
    pub addresses: Vec<Address>,
    /// The address that it asks from and is only lent: it is told so, and to set up none.
    pub leased: Option<IpAddr>,
    /// The host name DHCP tells it.
    pub hostname: String,
    /// The domain DHCP tells it.
    pub domain: String,
    /// Whether it is the machine's first interface, wherever the record has it.
    pub primary: bool,
}

/// An address and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address itself.
    pub ip: IpAddr,
    /// Bits of its network's prefix.
    pub prefix_length: u8,
    /// Whether it is reachable from the internet.
    pub public: bool,
    /// Whether it is for looking after the machine.
    pub management: bool,
    /// The way out of its network.
    pub gateway: Option<IpAddr>,
}

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub network: IpNet,
    /// Through whom.
    pub gateway: IpAddr,
}

impl Address {
    /// The network it is in.
    pub fn network(&self) -> IpNet {
        network::of(self.ip, self.prefix_length)
    }
}

/// What occupies a machine.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its id, never empty.
    pub id: String,
    /// When it was made.
    pub created: SystemTime,
    /// `provisioning`, `active`, …
    pub state: State,
    /// Its host name, with or without a domain.
    pub hostname: String,
    /// Its owner.
    pub tenant: String,
    /// The operating system on it.
    pub os: OperatingSystem,
    /// Addresses that are its own, wherever they end.
    pub addresses: Vec<Address>,
    /// What its owner hands it.
    pub user_data: UserData,
    /// What its vendor hands it.
    pub vendor_data: UserData,
    /// The owner's own network configuration for cloud-init; empty where the one made from the record is good.
    pub network_config: UserData,
    /// 128 random bits in hex, by which the machine finds its data where its address says nothing; or empty.
    pub lookup_id: Secret<String>,
    /// The root password as crypt(3) text, or empty.
    pub crypted_root_password: Secret<String>,
    /// Free words, `key` or `key=value`.
    pub tags: Vec<String>,
    /// Public keys of those who may log in, each as a line of `authorized_keys`.
    pub ssh_keys: Vec<String>,
    /// What the record says that has no field: `storage`, `iqn`, `spot`, `license_activation`, …
    pub extra: serde_json::Value,
}

/// An operating system, as its image names it.
#[derive(Clone, Debug, Default)]
pub struct OperatingSystem {
    /// `debian_12`
    pub slug: String,
    /// `debian`
    pub distro: String,
    /// `12`
    pub version: String,
    /// Which build of the image.
    pub image_tag: String,
}

/// Bytes an owner hands an instance. They often hold passwords, so printing them says only how many there are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(pub Bytes);

impl UserData {
    /// Returns the text in a field of `record`, which is shared and not copied.
    pub(crate) fn of(
        record: &Arc<tinwright::instance::v1::Instance>,
        field: fn(&tinwright::instance::v1::Instance) -> &String,
    ) -> Self {
        struct Field(
            Arc<tinwright::instance::v1::Instance>,
            fn(&tinwright::instance::v1::Instance) -> &String,
        );
        impl AsRef<[u8]> for Field {
            fn as_ref(&self) -> &[u8] {
                (self.1)(&self.0).as_bytes()
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

/// Whether a machine's requests must carry a session token (IMDSv2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenPolicy {
    /// They may. The default, because cloud-init never asks for one on hardware it does not take for Amazon's.
    #[default]
    Optional,
    /// They must.
    Required,
    /// The EC2 tree is closed.
    Disabled,
}
