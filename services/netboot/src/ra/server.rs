//! The raw socket: solicitations in, advertisements out.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::packet::{EMPTY, Message};
use super::{Booting, packet};
use crate::metrics::Metrics;

/// All routers on the link (RFC 4291, section 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// What neighbour discovery must have, so that it came from the link (RFC 4861, section 6.1.2).
const HOPS: u32 = 255;
/// How long a router that was heard is taken to be there: the longest it may be silent (section 6.2.1).
const ROUTER: Duration = Duration::from_secs(30 * 60);
/// The longest message read.
const LONGEST: usize = 1500;

/// A raw ICMPv6 socket on one interface. It is read and written as a UDP socket is: with an address, a message at a time.
#[derive(Debug)]
pub struct Socket(socket2::Socket);

impl Socket {
    /// On `interface`; takes CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_unicast_hops_v6(HOPS)?;
        socket.set_multicast_hops_v6(HOPS)?;
        socket.set_nonblocking(true)?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        socket.join_multicast_v6(&ALL_ROUTERS, index)?;
        Ok(Self(socket))
    }

    /// Sends an ICMPv6 message.
    pub fn send(&self, message: &[u8], to: SocketAddrV6) -> io::Result<()> {
        self.0.send_to(message, &to.into())?;
        Ok(())
    }
}

/// Answers solicitations on one interface.
#[derive(Debug)]
pub struct Server {
    /// Who boots.
    pub booting: Booting,
    /// What is counted.
    pub metrics: Metrics,
}

impl Server {
    /// Answers what comes to `socket` until `stop`. Fails when the socket does.
    pub async fn run(self, socket: Socket, stop: CancellationToken) -> anyhow::Result<()> {
        let socket = UdpSocket::from_std(socket.0.into())?;
        let (mut buffer, mut router) = (vec![0; LONGEST], None);
        while let Some(received) = stop.run_until_cancelled(socket.recv_from(&mut buffer)).await {
            let (length, SocketAddr::V6(source)) = received? else { continue };
            let message = buffer.get(..length).and_then(packet::Message::parse);
            // What is not link-local was forwarded, or asks without an address: nobody is there to answer.
            if let Some(message) = message.filter(|_| source.ip().is_unicast_link_local())
                && self.answers(message, &source, &mut router, Instant::now())
            {
                let to = SocketAddrV6::new(*source.ip(), 0, 0, source.scope_id());
                match socket.send_to(&EMPTY, to).await {
                    Ok(_) => self.metrics.advertised(),
                    // It waits, as it would without us.
                    Err(error) => tracing::debug!(%to, %error, "advertisement not sent"),
                }
            }
        }
        Ok(())
    }

    /// Whether `message` of `source` is answered at `now`, when a router was last heard as `router` says.
    fn answers(
        &self,
        message: Message,
        source: &SocketAddrV6,
        router: &mut Option<Instant>,
        now: Instant,
    ) -> bool {
        let routed = router.is_some_and(|at| now.saturating_duration_since(at) < ROUTER);
        match message {
            Message::Advertisement => {
                if !routed {
                    let router = source.ip();
                    tracing::info!(%router, "a router is there: booting machines are left to it");
                }
                *router = Some(now);
                false
            }
            Message::Solicitation(Some(mac)) => !routed && self.booting.is_booting(mac, now),
            Message::Solicitation(None) => false,
        }
    }
}
