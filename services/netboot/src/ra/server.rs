//! The raw socket: solicitations in, advertisements out.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Type};
use tokio::io::unix::AsyncFd;
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

/// A raw ICMPv6 socket on one interface.
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

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
        let socket = AsyncFd::register(socket)?;
        let (mut buffer, mut router) = (vec![0; LONGEST], None);
        loop {
            let Some(ready) = stop.run_until_cancelled(socket.readable()).await else {
                return Ok(());
            };
            let received = ready?.try_io(|socket| {
                Ok(rustix::net::recvfrom(&socket.get_ref().0, &mut buffer[..], RecvFlags::empty())?)
            });
            let Ok(received) = received else { continue };
            let (length, _, source) = received?;
            let source = source.and_then(|source| SocketAddr::try_from(source).ok());
            let message = buffer.get(..length).and_then(packet::Message::parse);
            // What is not link-local was forwarded, or asks without an address: nobody is there to answer.
            let (Some(SocketAddr::V6(source)), Some(message)) = (source, message) else { continue };
            if source.ip().is_unicast_link_local() {
                self.take(message, source, &mut router, socket.get_ref());
            }
        }
    }

    fn take(
        &self,
        message: Message,
        source: SocketAddrV6,
        router: &mut Option<Instant>,
        socket: &Socket,
    ) {
        let now = Instant::now();
        let routed = router.is_some_and(|at| now.saturating_duration_since(at) < ROUTER);
        match message {
            Message::Advertisement => {
                if !routed {
                    tracing::info!(router = %source.ip(), "a router is there: booting machines are left to it");
                }
                *router = Some(now);
            }
            Message::Solicitation(Some(mac)) if !routed && self.booting.is_booting(mac, now) => {
                let to = SocketAddrV6::new(*source.ip(), 0, 0, source.scope_id());
                match socket.send(&EMPTY, to) {
                    Ok(()) => {
                        self.metrics.advertised();
                        tracing::debug!(%mac, "spared the wait for a router");
                    }
                    // It waits, as it would without us.
                    Err(error) => tracing::debug!(%mac, %error, "advertisement not sent"),
                }
            }
            Message::Solicitation(_) => {}
        }
    }
}
