//! What changes among the kernel's links, routes and neighbours, as it tells by itself (rtnetlink(7)).
//!
//! The kernel queues its word with us in the course of the change, so who reads the queue to its end has heard of all
//! changes until then, or that there were more than the queue had room for.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

/// Whatever decides where packets go, as `linux/rtnetlink.h` numbers it: links, neighbours; addresses, routes and rules of
/// IPv4 and of IPv6; next hops.
const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// How many bytes are read at once. What is longer is no neighbour.
const LONGEST: usize = 8192;
const NO_ROOM: i32 = Errno::NOBUFS.raw_os_error();

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of who has this address.
    Neighbour(IpAddr),
    /// Of links, of routes, or of anything: the kernel had more to tell than there was room for.
    Other,
}

/// The kernel's news.
#[derive(Debug)]
pub struct News {
    socket: Socket,
    datagram: Vec<u8>,
}

impl News {
    /// News from now on, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, datagram: Vec::with_capacity(LONGEST) })
    }

    /// Tells `hear` of all changes since the last time. Never waits.
    pub fn read(&mut self, mut hear: impl FnMut(Change)) {
        loop {
            self.datagram.clear();
            match self.socket.recv(&mut self.datagram, 0) {
                Ok(_) => tell(&self.datagram, &mut hear),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The queue was full. More may be dropped unsaid until it is empty, so this is no end.
                Err(error) if error.raw_os_error() == Some(NO_ROOM) => hear(Change::Other),
                Err(_) => return hear(Change::Other),
            }
        }
    }
}

fn tell(mut datagram: &[u8], hear: &mut impl FnMut(Change)) {
    while !datagram.is_empty() {
        let Ok(message) = NetlinkMessage::deserialize(datagram) else {
            return hear(Change::Other);
        };
        // Messages are padded to four bytes (netlink(7)).
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        if let Some(change) = change(&message.payload) {
            hear(change);
        }
    }
}

/// What a message says; nothing where it is about no address.
fn change(payload: &NetlinkPayload<RouteNetlinkMessage>) -> Option<Change> {
    let NetlinkPayload::InnerMessage(
        RouteNetlinkMessage::NewNeighbour(entry) | RouteNetlinkMessage::DelNeighbour(entry),
    ) = payload
    else {
        return Some(Change::Other);
    };
    // A bridge tells in the same way behind which port a machine is.
    if entry.header.family == AddressFamily::Bridge {
        return None;
    }
    Some(owned(entry).map_or(Change::Other, Change::Neighbour))
}

fn owned(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some((*address).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some((*address).into())
        }
        _ => None,
    })
}
