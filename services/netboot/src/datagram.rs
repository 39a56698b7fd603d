//! UDP datagrams with their local address and interface.
//!
//! A host with two provisioning networks must answer from the address that received the request. A socket that is bound to
//! all addresses reports and sets that address only with IP_PKTINFO (ip(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt::{Ipv4PacketInfo, RcvBufForce},
};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The size of the kernel's receive buffer: some thousand requests, as a rack sends that is powered on at once.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// A UDP socket that reports the local address and interface of its datagrams.
#[derive(Debug)]
pub struct Socket(pub UdpSocket);

/// The addresses of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Octets received; a longer datagram is truncated to the buffer.
    pub length: usize,
    /// The source.
    pub source: SocketAddrV4,
    /// The destination: our address, or a broadcast address.
    pub to: Ipv4Addr,
    /// Our address on the receiving link. The reply is sent from it.
    pub local: Ipv4Addr,
    /// The number of the receiving interface.
    pub interface: u32,
}

impl Socket {
    /// Configures `socket`, an IPv4 socket.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        // On most systems net.core.rmem_max allows a buffer of some two hundred requests. A larger one requires CAP_NET_ADMIN,
        // which a process that may bind this port usually has.
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        }
        setsockopt(&socket, Ipv4PacketInfo, &true)?;
        Ok(Self(socket))
    }

    /// Receives a datagram into `buffer`.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Arrival> {
        self.0.async_io(Interest::READABLE, || receive(&self.0, buffer)).await
    }

    /// Receives a datagram into `buffer`, if there is one.
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        match self.0.try_io(Interest::READABLE, || receive(&self.0, buffer)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            received => received.map(Some),
        }
    }

    /// Sends `datagram` from the address `local` by the interface number `interface`; with 0 the routing table selects it.
    pub async fn send(
        &self,
        datagram: &[u8],
        to: SocketAddrV4,
        local: Ipv4Addr,
        interface: u32,
    ) -> io::Result<()> {
        send_all(&self.0, datagram, datagram.len(), to, Some((local, interface))).await
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrival> {
    let mut control = nix::cmsg_space!(nix::libc::in_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrIn>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let info = message.cmsgs()?.find_map(|part| {
        let ControlMessageOwned::Ipv4PacketInfo(info) = part else { return None };
        Some(info)
    });
    let (Some(source), Some(info)) = (message.address, info) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "datagram without addresses"));
    };
    // The kernel's addresses are in network byte order.
    let address = |raw: nix::libc::in_addr| Ipv4Addr::from(raw.s_addr.to_ne_bytes());
    Ok(Arrival {
        length: message.bytes,
        source: source.into(),
        to: address(info.ipi_addr),
        local: address(info.ipi_spec_dst),
        interface: info.ipi_ifindex.unsigned_abs(),
    })
}

fn packet_info(local: Ipv4Addr, interface: u32) -> nix::libc::in_pktinfo {
    let address =
        |address: Ipv4Addr| nix::libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
    nix::libc::in_pktinfo {
        ipi_ifindex: i32::try_from(interface).unwrap_or_default(),
        ipi_spec_dst: address(local),
        ipi_addr: address(Ipv4Addr::UNSPECIFIED),
    }
}

/// Sends `octets` by an IPv4 `socket` as datagrams of `datagram_octets`; the last may be shorter. `source` is the
/// address and the interface; without it the routing table selects them.
///
/// The kernel segments them (udp(7), UDP_SEGMENT), so that many cost little more than one. It refuses datagrams that exceed the
/// link's MTU, and too many of them: then they are sent one by one.
pub async fn send_all(
    socket: &UdpSocket,
    octets: &[u8],
    datagram_octets: usize,
    to: SocketAddrV4,
    source: Option<(Ipv4Addr, u32)>,
) -> io::Result<()> {
    let source = source.map(|(local, interface)| packet_info(local, interface));
    let source = source.as_ref().map(ControlMessage::Ipv4PacketInfo);
    let segment = u16::try_from(datagram_octets).ok().filter(|_| octets.len() > datagram_octets);
    if let Some(segment) = segment {
        let segments = ControlMessage::UdpGsoSegments(&segment);
        let parts: Vec<_> = source.into_iter().chain([segments]).collect();
        if socket.async_io(Interest::WRITABLE, || send(socket, octets, to, &parts)).await.is_ok() {
            return Ok(());
        }
    }
    let parts: Vec<_> = source.into_iter().collect();
    for datagram in octets.chunks(datagram_octets.max(1)) {
        socket.async_io(Interest::WRITABLE, || send(socket, datagram, to, &parts)).await?;
    }
    Ok(())
}

fn send(
    socket: &UdpSocket,
    octets: &[u8],
    to: SocketAddrV4,
    parts: &[ControlMessage<'_>],
) -> io::Result<()> {
    let to = SockaddrIn::from(to);
    let octets = [IoSlice::new(octets)];
    sendmsg(socket.as_raw_fd(), &octets, parts, MsgFlags::MSG_DONTWAIT, Some(&to))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_wildcard_socket_reports_the_destination_of_a_datagram() {
        let server = Socket::new(UdpSocket::bind("0.0.0.0:0").await.unwrap()).unwrap();
        let port = server.0.local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        client.send_to(b"hi", ("127.0.0.5", port)).await.unwrap();
        let mut buffer = [0; 16];
        server.0.readable().await.unwrap();
        let arrival = server.try_receive(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (arrival.length, arrival.local, arrival.to),
            (2, [127, 0, 0, 5].into(), [127, 0, 0, 5].into())
        );
        assert_eq!(std::net::SocketAddr::V4(arrival.source), client.local_addr().unwrap());
        assert_ne!(arrival.interface, 0);
        assert_eq!(server.try_receive(&mut buffer).unwrap(), None);
    }

    #[tokio::test]
    async fn a_datagram_is_sent_from_the_given_address() {
        let server = Socket::new(UdpSocket::bind("0.0.0.0:0").await.unwrap()).unwrap();
        let client = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        let std::net::SocketAddr::V4(to) = client.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        server.send(b"hi", to, [127, 0, 0, 7].into(), 0).await.unwrap();
        let (_, from) = client.recv_from(&mut [0; 16]).await.unwrap();
        assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, 7));
    }

    /// Sends three datagrams, the last one shorter, and returns those that arrive.
    async fn three(each: usize) -> Vec<Vec<u8>> {
        let bound = async || UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (server, client) = (bound().await, bound().await);
        let std::net::SocketAddr::V4(to) = client.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        let octets: Vec<u8> = (0..each * 2 + 5).map(|at| at as u8).collect();
        send_all(&server, &octets, each, to, None).await.unwrap();
        let (mut buffer, mut arrived) = (vec![0; 65_536], Vec::new());
        for _ in 0..3 {
            let (length, _) = client.recv_from(&mut buffer).await.unwrap();
            arrived.push(buffer[..length].to_vec());
        }
        assert!(arrived.concat() == octets);
        arrived
    }

    #[tokio::test]
    async fn datagrams_that_are_sent_together_arrive_in_order() {
        for each in [8, 1432] {
            assert_eq!(three(each).await.iter().map(Vec::len).collect::<Vec<_>>(), [each, each, 5]);
        }
    }

    #[tokio::test]
    async fn datagrams_that_the_kernel_does_not_segment_arrive() {
        // Together they exceed the maximum size of a datagram.
        assert_eq!(three(40_000).await.len(), 3);
    }

    #[tokio::test]
    async fn datagrams_that_are_sent_together_come_from_the_given_address() {
        let server = Socket::new(UdpSocket::bind("0.0.0.0:0").await.unwrap()).unwrap();
        let client = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        let std::net::SocketAddr::V4(to) = client.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        let source = Some(([127, 0, 0, 7].into(), 0));
        send_all(&server.0, b"hithere", 2, to, source).await.unwrap();
        for expected in [2, 2, 2, 1] {
            let (length, from) = client.recv_from(&mut [0; 16]).await.unwrap();
            assert_eq!((length, from.ip()), (expected, [127, 0, 0, 7].into()));
        }
    }
}
