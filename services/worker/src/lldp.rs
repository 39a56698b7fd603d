//! The neighbours on the links of this machine, such as its switches, by what they announce (LLDP, IEEE 802.1AB).
//!
//! ```text
//! start ─▶ task: packet socket ─ announcement ─▶ neighbours by interface
//!            └─▶ ends when each interface with a link has a neighbour, or at the limit
//! ```
//!
//! A switch announces itself every 30 s by default (§9.2.5.7). So a task listens beside the other work, which never waits for it, except
//! that of a boot that only reports this machine. A failure is logged and ends the listening.

mod announcement;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{LinkAddr, recvfrom};
use runtime::netlink::Netlink;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use tinwright::hardware::v1 as pb;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::inventory::{device_interfaces, number, text};

/// The longest time of listening: one interval of announcements, and a second.
pub const LISTENING_LIMIT: Duration = Duration::from_secs(31);
/// The Ethertype of announcements.
const ETHERTYPE: u16 = 0x88cc;
/// The longest announcement: its frame is not fragmented. The rest of a jumbo frame is cut off, which makes it malformed.
const MAX_BYTES: usize = 1500;

/// The neighbours, by the names of interfaces.
type Neighbours = BTreeMap<String, pb::LldpNeighbour>;

/// Listens for neighbours until drop.
#[derive(Debug)]
pub struct Listener {
    found: watch::Receiver<Neighbours>,
    _task: JoinSet<()>,
}

impl Listener {
    /// Starts to listen, for at most `limit`, on the interfaces of the machine whose file systems are below `root`. They must be up.
    pub fn start(root: &Path, limit: Duration) -> Self {
        let (sender, found) = watch::channel(Neighbours::new());
        let (root, mut task) = (root.to_owned(), JoinSet::new());
        task.spawn(async move {
            let listening = listen(&root, &sender);
            // Dropping the sender marks the end.
            match tokio::time::timeout(limit, listening).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let error = runtime::cause(&error);
                    tracing::warn!(error, "not listening for LLDP neighbours");
                }
                Err(_) => tracing::info!("no LLDP neighbour on some links"),
            }
        });
        Self { found, _task: task }
    }

    /// Sets the neighbours of interfaces in `inventory` that were found so far. True if this changed it.
    pub fn add_to(&self, inventory: &mut pb::Inventory) -> bool {
        let found = self.found.borrow();
        let mut is_changed = false;
        for interface in &mut inventory.interfaces {
            if let Some(neighbour) = found.get(&interface.name)
                && interface.lldp_neighbour.as_ref() != Some(neighbour)
            {
                interface.lldp_neighbour = Some(neighbour.clone());
                is_changed = true;
            }
        }
        is_changed
    }

    /// Waits for the end of the listening.
    pub async fn ended(&self) {
        let mut found = self.found.clone();
        while found.changed().await.is_ok() {}
    }
}

/// Puts neighbours into `found` until each interface with a link has one.
async fn listen(root: &Path, found: &watch::Sender<Neighbours>) -> io::Result<()> {
    if device_interfaces(root).is_empty() {
        return Ok(());
    }
    let socket = open()?;
    let _receiving: Vec<_> = indexes(root).filter_map(Multicast::receive).collect();
    let mut content = vec![0; MAX_BYTES];
    while !is_complete(root, &found.borrow()) {
        let (length, interface) = receive(&socket, &mut content).await?;
        let neighbour = announcement::parse(content.get(..length).unwrap_or_default());
        let name =
            device_interfaces(root).into_iter().find(|it| index(root, it) == Some(interface));
        let (Some(neighbour), Some(name)) = (neighbour, name) else { continue };
        found.send_if_modified(|all| {
            // The first one stays: two that share a link would make a difference at each boot.
            let is_new = !all.contains_key(&name);
            if is_new {
                let pb::LldpNeighbour { chassis_id, port_id, .. } = &neighbour;
                tracing::info!(interface = name, chassis_id, port_id, "LLDP neighbour found");
                all.insert(name.clone(), neighbour);
            }
            is_new
        });
    }
    Ok(())
}

/// Opens a socket that receives the announcements on all interfaces, without their Ethernet headers. It is a packet socket: the type is
/// only for waiting, because `AsyncFd` cannot be made without unsafe code.
fn open() -> io::Result<UdpSocket> {
    let protocol = NonZeroU32::new(u32::from(ETHERTYPE.to_be())).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol)?;
    UdpSocket::from_std(socket.into())
}

/// Returns the length of the next announcement, which is in `buffer`, and the index of its interface.
async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
    let received = || Ok(recvfrom::<LinkAddr>(socket.as_raw_fd(), buffer)?);
    let (length, source) = socket.async_io(Interest::READABLE, received).await?;
    let index = source.map_or(0, |source| source.ifindex());
    Ok((length, u64::try_from(index).unwrap_or_default()))
}

/// True if no neighbour of an interface with a link is missing in `found`.
fn is_complete(root: &Path, found: &Neighbours) -> bool {
    let has_link = |name: &String| text(&folder(root, name).join("carrier")) == "1";
    let interfaces = device_interfaces(root);
    let mut linked = interfaces.iter().filter(|name| has_link(name)).peekable();
    linked.peek().is_some() && linked.all(|name| found.contains_key(name))
}

fn folder(root: &Path, name: &str) -> PathBuf {
    root.join("sys/class/net").join(name)
}

fn index(root: &Path, name: &str) -> Option<u64> {
    number(&folder(root, name).join("ifindex"))
}

fn indexes(root: &Path) -> impl Iterator<Item = u32> {
    let names = device_interfaces(root).into_iter();
    names.filter_map(|name| index(root, &name)?.try_into().ok())
}

/// An interface that receives all multicast frames, until drop: otherwise it drops those to the address of announcements,
/// 01:80:c2:00:00:0e.
struct Multicast {
    netlink: Netlink,
    index: u32,
}

impl Multicast {
    fn receive(index: u32) -> Option<Self> {
        let netlink = Netlink::open();
        let set = netlink.and_then(|it| it.set_all_multicast(index, true).map(|()| it));
        let set = set.inspect_err(|error| {
            let error = runtime::cause(error);
            tracing::warn!(error, interface.index = index, "LLDP neighbours may not be received");
        });
        Some(Self { netlink: set.ok()?, index })
    }
}

impl Drop for Multicast {
    fn drop(&mut self) {
        // The next system sets up its interfaces itself.
        drop(self.netlink.set_all_multicast(self.index, false));
    }
}

#[cfg(test)]
mod tests;
