//! The kernel's routes, neighbours and addresses, asked over rtnetlink (rtnetlink(7)).
//!
//! The kernel answers these requests while they are sent, so asking is a matter of microseconds and needs no task. The
//! socket belongs to the network namespace of the thread that opened it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel tells more than we ask, and more every year"
)]

pub mod news;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::{AddressFamily as Family, SocketType, netdevice};
use tinwright::Mac;

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nowhere beyond this host.
    Here,
    /// Straight to its owner, on the interface with this index.
    OnLink(u32),
    /// To a router.
    Routed,
}

/// A question to the kernel at a time.
#[derive(Debug)]
pub struct Netlink {
    socket: Mutex<Socket>,
    /// Any socket will do for interfaces' names; this one is in the same namespace.
    names: OwnedFd,
}

impl Netlink {
    /// Opens the socket, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let names = rustix::net::socket(Family::INET, SocketType::DGRAM, None)?;
        Ok(Self { socket: Mutex::new(socket), names })
    }

    /// The index of the interface called `name`.
    pub fn index_of(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.names, name)?)
    }

    /// The name of an interface; its index where it has just gone.
    pub fn name_of(&self, index: u32) -> String {
        netdevice::index_to_name(&self.names, index).unwrap_or_else(|_| index.to_string())
    }

    /// Where packets to `address` go; an error where the kernel has no route.
    pub fn way_to(&self, address: IpAddr) -> io::Result<Way> {
        let mut wanted = RouteMessage::default();
        wanted.header.address_family = family(address);
        wanted.header.destination_prefix_length = bits(address);
        wanted.attributes.push(RouteAttribute::Destination(address.into()));
        let found = self.ask(RouteNetlinkMessage::GetRoute(wanted), NLM_F_REQUEST)?;
        let route = found.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        route.as_ref().and_then(way).ok_or_else(|| io::Error::other("no route was told"))
    }

    /// The Ethernet address the kernel has for `address` on the interface, if it has a usable one.
    pub fn neighbour(&self, interface: u32, address: IpAddr) -> io::Result<Option<Mac>> {
        let mut wanted = NeighbourMessage::default();
        wanted.header.family = family(address);
        wanted.header.ifindex = interface;
        wanted.attributes.push(NeighbourAttribute::Destination(address.into()));
        match self.ask(RouteNetlinkMessage::GetNeighbour(wanted), NLM_F_REQUEST) {
            Ok(found) => Ok(found.into_iter().find_map(|message| match message {
                RouteNetlinkMessage::NewNeighbour(entry) => holder(&entry),
                _ => None,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The interfaces, by index, that have `address`.
    pub fn holders(&self, address: IpAddr) -> io::Result<Vec<u32>> {
        let mut wanted = AddressMessage::default();
        wanted.header.family = family(address);
        let message = RouteNetlinkMessage::GetAddress(wanted);
        let found = self.ask(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        let holders = found.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(one) => has(&one, address).then_some(one.header.index),
            _ => None,
        });
        Ok(holders.collect())
    }

    /// Gives the interface `address`, alone in its network.
    pub fn add_address(&self, interface: u32, address: IpAddr) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewAddress(alone(interface, address));
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.ask(message, flags).map(drop)
    }

    /// Takes `address` from the interface.
    pub fn remove_address(&self, interface: u32, address: IpAddr) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelAddress(alone(interface, address));
        self.ask(message, NLM_F_REQUEST | NLM_F_ACK).map(drop)
    }

    /// Everything the kernel answers.
    fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        while !read(&socket.recv_from_full()?.0, flags, &mut answers)? {}
        Ok(answers)
    }
}

/// Reads a datagram's messages into `answers`, and says whether the answer ends with it.
fn read(
    mut datagram: &[u8],
    flags: u16,
    answers: &mut Vec<RouteNetlinkMessage>,
) -> io::Result<bool> {
    let odd = |_| io::Error::from(io::ErrorKind::InvalidData);
    while !datagram.is_empty() {
        let message = NetlinkMessage::deserialize(datagram).map_err(odd)?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        // Messages are padded to four bytes (netlink(7)).
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => answers.push(inner),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(true),
            NetlinkPayload::Noop | NetlinkPayload::Overrun(_) => {}
            _ => {}
        }
    }
    Ok(flags & (NLM_F_ACK | NLM_F_DUMP) == 0)
}

fn way(route: &RouteMessage) -> Option<Way> {
    if route.header.kind == RouteType::Local {
        return Some(Way::Here);
    }
    let routed =
        |a: &RouteAttribute| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_));
    if route.attributes.iter().any(routed) {
        return Some(Way::Routed);
    }
    let out = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Oif(index) => Some(Way::OnLink(*index)),
        _ => None,
    };
    route.attributes.iter().find_map(out)
}

/// Who holds an entry's address; an entry whose owner did not answer holds nobody.
fn holder(entry: &NeighbourMessage) -> Option<Mac> {
    if matches!(entry.header.state, NeighbourState::Incomplete | NeighbourState::Failed) {
        return None;
    }
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok().map(Mac),
        _ => None,
    })
}

fn has(message: &AddressMessage, address: IpAddr) -> bool {
    message.attributes.iter().any(|attribute| match attribute {
        AddressAttribute::Address(one) | AddressAttribute::Local(one) => *one == address,
        _ => false,
    })
}

fn alone(interface: u32, address: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = bits(address);
    message.header.scope = AddressScope::Universe;
    // Usable at once: whoever else has it is meant to have it as well (RFC 4862 §5.4 would make us wait).
    message.header.flags = AddressHeaderFlags::Nodad;
    message.header.index = interface;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
