//! Routes, neighbours and addresses of the kernel, over rtnetlink (rtnetlink(7)).
//!
//! The kernel answers such requests while they are sent, in microseconds, so no task is needed. The socket belongs to the
//! network namespace of the thread that opened it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel sends more kinds of messages than are used here, and more every year"
)]

pub mod notifications;

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
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::{AddressFamily as Family, SocketType, netdevice};
use tinwright::Mac;

/// Maximum size of a datagram: the kernel puts no more into one of a dump (`NLMSG_GOODSIZE`, and the size of the buffer of the
/// first read).
const MAX_DATAGRAM_BYTES: usize = 32 * 1024;

/// The route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The address is this host's.
    Local,
    /// The address is on the link of the interface with this index.
    OnLink(u32),
    /// Through a router.
    Gateway,
}

/// A socket that sends one request to the kernel at a time.
#[derive(Debug)]
pub struct Netlink {
    exchange: Mutex<Exchange>,
    /// Any socket can translate names of interfaces; this one is in the same namespace.
    names: OwnedFd,
}

/// The requests to the kernel.
#[derive(Debug)]
struct Exchange {
    socket: Socket,
    /// The sequence number of the last request, which its responses repeat.
    sequence: u32,
    datagram: Vec<u8>,
}

impl Netlink {
    /// Opens the socket, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let names = rustix::net::socket(Family::INET, SocketType::DGRAM, None)?;
        let datagram = Vec::with_capacity(MAX_DATAGRAM_BYTES);
        Ok(Self { exchange: Mutex::new(Exchange { socket, sequence: 0, datagram }), names })
    }

    /// Returns the index of the interface with this name.
    pub fn index_of(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.names, name)?)
    }

    /// Returns the name of an interface; its index if the interface was just removed.
    pub fn name_of(&self, index: u32) -> String {
        netdevice::index_to_name(&self.names, index).unwrap_or_else(|_| index.to_string())
    }

    /// Returns the route to `address`; an error if the kernel has none.
    pub fn route_to(&self, address: IpAddr) -> io::Result<Route> {
        let mut request = RouteMessage::default();
        request.header.address_family = family(address);
        request.header.destination_prefix_length = bits(address);
        request.attributes.push(RouteAttribute::Destination(address.into()));
        let found = self.send(RouteNetlinkMessage::GetRoute(request), 0)?;
        let route = found.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => route(&message),
            _ => None,
        });
        route.ok_or_else(|| io::Error::other("the kernel's response contains no route"))
    }

    /// Returns the Ethernet address of `address`'s neighbour entry on the interface, if there is a valid one.
    pub fn neighbour(&self, interface: u32, address: IpAddr) -> io::Result<Option<Mac>> {
        let mut request = NeighbourMessage::default();
        request.header.family = family(address);
        request.header.ifindex = interface;
        request.attributes.push(NeighbourAttribute::Destination(address.into()));
        match self.send(RouteNetlinkMessage::GetNeighbour(request), 0) {
            Ok(found) => Ok(found.into_iter().find_map(|message| match message {
                RouteNetlinkMessage::NewNeighbour(entry) => owner(&entry),
                _ => None,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the indexes of the interfaces that have `address`.
    pub fn interfaces_with(&self, address: IpAddr) -> io::Result<Vec<u32>> {
        let mut request = AddressMessage::default();
        request.header.family = family(address);
        let found = self.send(RouteNetlinkMessage::GetAddress(request), NLM_F_DUMP)?;
        let indexes = found.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(one) => has(&one, address).then_some(one.header.index),
            _ => None,
        });
        Ok(indexes.collect())
    }

    /// Adds `address` to the interface, as the only one in its network.
    pub fn add_address(&self, interface: u32, address: IpAddr) -> io::Result<()> {
        let request = RouteNetlinkMessage::NewAddress(host_address(interface, address));
        self.send(request, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Removes `address` from the interface.
    pub fn remove_address(&self, interface: u32, address: IpAddr) -> io::Result<()> {
        let request = RouteNetlinkMessage::DelAddress(host_address(interface, address));
        self.send(request, NLM_F_ACK).map(drop)
    }

    /// Lets the interface receive all multicast frames, or only those that somebody on this host has joined.
    pub fn set_all_multicast(&self, interface: u32, is_on: bool) -> io::Result<()> {
        let mut request = LinkMessage::default();
        request.header.index = interface;
        request.header.change_mask = LinkFlags::Allmulti;
        request.header.flags = if is_on { LinkFlags::Allmulti } else { LinkFlags::empty() };
        self.send(RouteNetlinkMessage::SetLink(request), NLM_F_ACK).map(drop)
    }

    /// Sends a request with these additional flags, and returns the kernel's responses.
    fn send(
        &self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let Exchange { socket, sequence, datagram } = &mut *exchange;
        *sequence = sequence.wrapping_add(1);
        socket.send(&encode(request, NLM_F_REQUEST | flags, *sequence), 0)?;
        let mut responses = Vec::new();
        loop {
            datagram.clear();
            socket.recv(datagram, 0)?;
            if read(datagram, flags, *sequence, &mut responses)? {
                return Ok(responses);
            }
        }
    }
}

fn encode(inner: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = NetlinkMessage::from(inner);
    (message.header.flags, message.header.sequence_number) = (flags, sequence);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Returns the messages of a datagram, until the first that cannot be read.
fn messages(
    mut datagram: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkMessage::deserialize(datagram) else {
            datagram = &[];
            return Some(Err(io::ErrorKind::InvalidData.into()));
        };
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        // Messages are padded to four bytes (netlink(7)).
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(message))
    })
}

/// Adds a datagram's messages to `responses`. True if the response to the request with these flags and this number is
/// complete. Skips what was left unread of earlier responses.
fn read(
    datagram: &[u8],
    flags: u16,
    sequence: u32,
    responses: &mut Vec<RouteNetlinkMessage>,
) -> io::Result<bool> {
    let mut is_ours = false;
    for message in messages(datagram) {
        let message = message?;
        if message.header.sequence_number != sequence {
            continue;
        }
        is_ours = true;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => responses.push(inner),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(true),
            _ => {}
        }
    }
    Ok(is_ours && flags & (NLM_F_ACK | NLM_F_DUMP) == 0)
}

fn route(message: &RouteMessage) -> Option<Route> {
    if message.header.kind == RouteType::Local {
        return Some(Route::Local);
    }
    let is_gateway =
        |a: &RouteAttribute| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_));
    if message.attributes.iter().any(is_gateway) {
        return Some(Route::Gateway);
    }
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(Route::OnLink(*index)),
        _ => None,
    })
}

/// Returns the owner of an entry's address; none if it did not answer.
fn owner(entry: &NeighbourMessage) -> Option<Mac> {
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

fn host_address(interface: u32, address: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = bits(address);
    message.header.scope = AddressScope::Universe;
    // Usable at once: other hosts may have the address on purpose (duplicate detection would delay it, RFC 4862 §5.4).
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's response that an interface has `address`, to the request with this number.
    fn response(number: u32, address: [u8; 4]) -> Vec<u8> {
        let inner = RouteNetlinkMessage::NewAddress(host_address(1, IpAddr::from(address)));
        encode(inner, 0, number)
    }

    #[test]
    fn responses_to_another_request_are_skipped() {
        let mut responses = Vec::new();
        let old = response(6, [192, 0, 2, 6]);
        assert!(!read(&old, 0, 7, &mut responses).unwrap(), "the response is still to come");
        let both = [old, response(7, [192, 0, 2, 7])].concat();
        assert!(read(&both, 0, 7, &mut responses).unwrap());
        let own = RouteNetlinkMessage::NewAddress(host_address(1, [192, 0, 2, 7].into()));
        assert_eq!(responses, [own]);
    }

    #[test]
    fn a_request_after_an_unread_response_gets_its_own() {
        let netlink = Netlink::open().unwrap();
        let dump = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let dump = encode(dump, NLM_F_REQUEST | NLM_F_DUMP, 0);
        netlink.exchange.lock().unwrap().socket.send(&dump, 0).unwrap();
        assert_eq!(netlink.route_to([127, 0, 0, 1].into()).unwrap(), Route::Local);
    }
}
