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
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
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
    asking: Mutex<Asking>,
    /// Any socket will do for interfaces' names; this one is in the same namespace.
    names: OwnedFd,
}

/// The socket, and how many questions went out by it: an answer bears its question's number.
#[derive(Debug)]
struct Asking {
    socket: Socket,
    asked: u32,
}

impl Netlink {
    /// Opens the socket, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let names = rustix::net::socket(Family::INET, SocketType::DGRAM, None)?;
        Ok(Self { asking: Mutex::new(Asking { socket, asked: 0 }), names })
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
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let Asking { socket, asked } = &mut *asking;
        *asked = asked.wrapping_add(1);
        request.header.sequence_number = *asked;
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        while !read(&socket.recv_from_full()?.0, &request.header, &mut answers)? {}
        Ok(answers)
    }
}

/// Reads a datagram's messages into `answers`, and says whether what was `asked` is answered with it. What is left of an
/// answer that was not read to its end is passed over.
fn read(
    mut datagram: &[u8],
    asked: &NetlinkHeader,
    answers: &mut Vec<RouteNetlinkMessage>,
) -> io::Result<bool> {
    let odd = |_| io::Error::from(io::ErrorKind::InvalidData);
    let mut ours = false;
    while !datagram.is_empty() {
        let message = NetlinkMessage::deserialize(datagram).map_err(odd)?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        // Messages are padded to four bytes (netlink(7)).
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        if message.header.sequence_number != asked.sequence_number {
            continue;
        }
        ours = true;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => answers.push(inner),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(true),
            NetlinkPayload::Noop | NetlinkPayload::Overrun(_) => {}
            _ => {}
        }
    }
    Ok(ours && asked.flags & (NLM_F_ACK | NLM_F_DUMP) == 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's word that `address` is one of an interface, to the question with this number.
    fn told(number: u32, address: [u8; 4]) -> Vec<u8> {
        let message = RouteNetlinkMessage::NewAddress(alone(1, IpAddr::from(address)));
        let mut message = NetlinkMessage::from(message);
        message.header.sequence_number = number;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_left_of_another_answer_is_passed_over() {
        let mut asked = NetlinkHeader::default();
        (asked.flags, asked.sequence_number) = (NLM_F_REQUEST, 7);
        let mut answers = Vec::new();
        let old = told(6, [192, 0, 2, 6]);
        assert!(!read(&old, &asked, &mut answers).unwrap(), "the answer is still to come");
        let both = [old, told(7, [192, 0, 2, 7])].concat();
        assert!(read(&both, &asked, &mut answers).unwrap());
        let own = RouteNetlinkMessage::NewAddress(alone(1, [192, 0, 2, 7].into()));
        assert_eq!(answers, [own]);
    }

    #[test]
    fn a_question_after_an_answer_that_was_not_read_gets_its_own() {
        let netlink = Netlink::open().unwrap();
        let here = IpAddr::from([127, 0, 0, 1]);
        let mut dump =
            NetlinkMessage::from(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
        dump.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        dump.finalize();
        let mut bytes = vec![0; dump.buffer_len()];
        dump.serialize(&mut bytes);
        netlink.asking.lock().unwrap().socket.send(&bytes, 0).unwrap();
        assert_eq!(netlink.way_to(here).unwrap(), Way::Here);
    }
}
