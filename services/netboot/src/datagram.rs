//! UDP datagrams with the address and the interface they came to, and leave by.
//!
//! A host with two provisioning networks must answer from the address that was asked, and a socket bound to every
//! address tells neither unless told to (IP_PKTINFO, ip(7)).

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

/// The kernel's queue of what has come, in bytes: some thousand requests, as a rack sends that is powered on at once.
const QUEUE: usize = 4 * 1024 * 1024;

/// A UDP socket that knows where its datagrams came to.
#[derive(Debug)]
pub struct Socket(UdpSocket);

/// How a datagram came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Octets received; a longer datagram was cut to the buffer.
    pub length: usize,
    /// From where.
    pub source: SocketAddrV4,
    /// To which address of the header: ours, or a broadcast address.
    pub to: Ipv4Addr,
    /// Our own address on the link it came by, to answer from.
    pub local: Ipv4Addr,
    /// The number of the interface it came by.
    pub interface: u32,
}

impl Socket {
    /// Takes over `socket`, which must be an IPv4 one.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        // What everybody may have is some two hundred requests long on most systems (net.core.rmem_max); more is for those who
        // administer the network, as whoever may bind this port mostly does.
        if setsockopt(&socket, RcvBufForce, &QUEUE).is_err() {
            SockRef::from(&socket).set_recv_buffer_size(QUEUE)?;
        }
        setsockopt(&socket, Ipv4PacketInfo, &true)?;
        Ok(Self(socket))
    }

    /// Waits for a datagram and puts it into `buffer`.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Arrival> {
        self.0.async_io(Interest::READABLE, || receive(&self.0, buffer)).await
    }

    /// Waits until there may be a datagram.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Puts a datagram into `buffer`, if one has come.
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        match self.0.try_io(Interest::READABLE, || receive(&self.0, buffer)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            received => received.map(Some),
        }
    }

    /// Sends `datagram` from the address `local` by the interface numbered `interface`; 0 leaves that to the routes.
    pub async fn send(
        &self,
        datagram: &[u8],
        to: SocketAddrV4,
        local: Ipv4Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.send_all(datagram, datagram.len(), to, local, interface).await
    }

    /// Sends `octets` so, as datagrams of `each` octets; the last may be shorter.
    pub async fn send_all(
        &self,
        octets: &[u8],
        each: usize,
        to: SocketAddrV4,
        local: Ipv4Addr,
        interface: u32,
    ) -> io::Result<()> {
        let leaving = leaving(local, interface);
        send_all(&self.0, octets, each, to, Some(ControlMessage::Ipv4PacketInfo(&leaving))).await
    }

    /// The socket itself.
    pub fn udp(&self) -> &UdpSocket {
        &self.0
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
    let mut info = None;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::Ipv4PacketInfo(part) = part {
            info = Some(part);
        }
    }
    let (Some(source), Some(info)) = (message.address, info) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a datagram without its addresses"));
    };
    // The kernel keeps addresses in network order, whatever the machine's.
    let address = |raw: nix::libc::in_addr| Ipv4Addr::from(raw.s_addr.to_ne_bytes());
    Ok(Arrival {
        length: message.bytes,
        source: source.into(),
        to: address(info.ipi_addr),
        local: address(info.ipi_spec_dst),
        interface: info.ipi_ifindex.unsigned_abs(),
    })
}

fn leaving(local: Ipv4Addr, interface: u32) -> nix::libc::in_pktinfo {
    let address =
        |address: Ipv4Addr| nix::libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
    nix::libc::in_pktinfo {
        ipi_ifindex: i32::try_from(interface).unwrap_or_default(),
        ipi_spec_dst: address(local),
        ipi_addr: address(Ipv4Addr::UNSPECIFIED),
    }
}

/// Sends `octets` by any IPv4 `socket` as datagrams of `each` octets; the last may be shorter. `leaving` says where they
/// leave by, if not as the routes have it.
///
/// The kernel cuts them (udp(7), UDP_SEGMENT), so that many cost little more than one. Where it will not, for they are
/// larger than the link carries, or too many, they are sent one by one.
pub async fn send_all(
    socket: &UdpSocket,
    octets: &[u8],
    each: usize,
    to: SocketAddrV4,
    leaving: Option<ControlMessage<'_>>,
) -> io::Result<()> {
    let segment = u16::try_from(each).ok().filter(|_| octets.len() > each);
    if let Some(segment) = segment {
        let cut = ControlMessage::UdpGsoSegments(&segment);
        let parts: Vec<_> = leaving.into_iter().chain([cut]).collect();
        if socket.async_io(Interest::WRITABLE, || send(socket, octets, to, &parts)).await.is_ok() {
            return Ok(());
        }
    }
    let parts: Vec<_> = leaving.into_iter().collect();
    for datagram in octets.chunks(each.max(1)) {
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
    async fn a_wildcard_socket_tells_which_address_was_asked() {
        let server = Socket::new(UdpSocket::bind("0.0.0.0:0").await.unwrap()).unwrap();
        let port = server.udp().local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        client.send_to(b"hi", ("127.0.0.5", port)).await.unwrap();
        let mut buffer = [0; 16];
        server.readable().await.unwrap();
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
    async fn an_answer_leaves_from_the_address_it_is_told() {
        let server = Socket::new(UdpSocket::bind("0.0.0.0:0").await.unwrap()).unwrap();
        let client = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        let std::net::SocketAddr::V4(to) = client.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        server.send(b"hi", to, [127, 0, 0, 7].into(), 0).await.unwrap();
        let (_, from) = client.recv_from(&mut [0; 16]).await.unwrap();
        assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, 7));
    }

    /// Three datagrams that `socket` and `to` exchange, the last one shorter.
    async fn three(each: usize) -> Vec<Vec<u8>> {
        let bound = async || UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (server, client) = (bound().await, bound().await);
        let std::net::SocketAddr::V4(to) = client.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        let octets: Vec<u8> = (0..each * 2 + 5).map(|at| at as u8).collect();
        send_all(&server, &octets, each, to, None).await.unwrap();
        let (mut buffer, mut came) = (vec![0; 65_536], Vec::new());
        for _ in 0..3 {
            let (length, _) = client.recv_from(&mut buffer).await.unwrap();
            came.push(buffer[..length].to_vec());
        }
        assert!(came.concat() == octets);
        came
    }

    #[tokio::test]
    async fn what_is_sent_at_once_comes_in_order_and_in_parts() {
        for each in [8, 1432] {
            assert_eq!(three(each).await.iter().map(Vec::len).collect::<Vec<_>>(), [each, each, 5]);
        }
    }

    #[tokio::test]
    async fn what_the_kernel_will_not_cut_comes_all_the_same() {
        // Together they are more than a datagram may be.
        assert_eq!(three(40_000).await.len(), 3);
    }

    #[tokio::test]
    async fn what_is_sent_at_once_leaves_from_the_address_it_is_told() {
        let server = Socket::new(UdpSocket::bind("0.0.0.0:0").await.unwrap()).unwrap();
        let client = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        let std::net::SocketAddr::V4(to) = client.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        server.send_all(b"hithere", 2, to, [127, 0, 0, 7].into(), 0).await.unwrap();
        for expected in [2, 2, 2, 1] {
            let (length, from) = client.recv_from(&mut [0; 16]).await.unwrap();
            assert_eq!((length, from.ip()), (expected, [127, 0, 0, 7].into()));
        }
    }
}
