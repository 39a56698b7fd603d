//! Notifications of the kernel about links, routes and neighbours (rtnetlink(7)).
//!
//! The kernel queues them while it makes the change. So once the queue is read to its end, all earlier changes are known,
//! or that there were more than the queue can hold.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

/// The multicast groups of everything that decides where packets go, as `linux/rtnetlink.h` numbers them: links, neighbours;
/// addresses, routes and rules of IPv4 and of IPv6; next hops.
const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// The most bytes that are read at once. No message about a neighbour is longer.
const MAX_DATAGRAM_BYTES: usize = 8192;
const QUEUE_OVERFLOW: i32 = Errno::NOBUFS.raw_os_error();

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The neighbour entry of this address has changed.
    Neighbour(IpAddr),
    /// Links or routes have changed, or anything: the queue was too short.
    Other,
}

/// The queue of notifications.
#[derive(Debug)]
pub struct Notifications {
    socket: Socket,
    datagram: Vec<u8>,
}

impl Notifications {
    /// Subscribes to notifications, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, datagram: Vec::with_capacity(MAX_DATAGRAM_BYTES) })
    }

    /// Calls `notify` with all changes since the last call. Never blocks.
    pub fn read(&mut self, mut notify: impl FnMut(Change)) {
        loop {
            self.datagram.clear();
            match self.socket.recv(&mut self.datagram, 0) {
                Ok(_) => super::messages(&self.datagram)
                    .filter_map(|message| match message {
                        Ok(message) => change(&message.payload),
                        Err(_) => Some(Change::Other),
                    })
                    .for_each(&mut notify),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Until the queue is empty the kernel may drop more without another error, so reading goes on.
                Err(error) if error.raw_os_error() == Some(QUEUE_OVERFLOW) => notify(Change::Other),
                Err(_) => return notify(Change::Other),
            }
        }
    }
}

/// Returns the change that a message reports; `None` if it concerns no address.
fn change(payload: &NetlinkPayload<RouteNetlinkMessage>) -> Option<Change> {
    let NetlinkPayload::InnerMessage(
        RouteNetlinkMessage::NewNeighbour(entry) | RouteNetlinkMessage::DelNeighbour(entry),
    ) = payload
    else {
        return Some(Change::Other);
    };
    // A bridge reports in the same way behind which port a machine is.
    if entry.header.family == AddressFamily::Bridge {
        return None;
    }
    Some(address(entry).map_or(Change::Other, Change::Neighbour))
}

fn address(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some((*v4).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    })
}
