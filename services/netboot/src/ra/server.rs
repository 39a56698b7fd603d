//! The raw socket: receives solicitations, sends advertisements.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::clock::Clock;
use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::packet::{EMPTY, Message};
use crate::dhcp_server::link_state::LinkState;
use crate::metrics::Metrics;

/// All routers on the link (RFC 4291, section 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The hop limit of neighbour discovery: no router has forwarded the message (RFC 4861, section 6.1.2).
const HOP_LIMIT: u32 = 255;
/// The time after an advertisement for which its router counts as present: the longest interval of a router (section 6.2.1).
const ROUTER_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// The longest message that is read.
const MAX_MESSAGE_BYTES: usize = 1500;

/// A raw ICMPv6 socket on one interface. It is read and written like a UDP socket: one message at a time, with an address.
#[derive(Debug)]
pub struct Socket(socket2::Socket);

impl Socket {
    /// Opens the socket on `interface`. Requires CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_unicast_hops_v6(HOP_LIMIT)?;
        socket.set_multicast_hops_v6(HOP_LIMIT)?;
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
    /// The state of DHCP clients on the link.
    pub link_state: Arc<LinkState>,
    /// Counts sent advertisements.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
}

impl Server {
    /// Answers the messages of `socket` until `stop`. Fails when the socket does.
    pub async fn run(self, socket: Socket, stop: CancellationToken) -> anyhow::Result<()> {
        let socket = UdpSocket::from_std(socket.0.into())?;
        let (mut buffer, mut router) = (vec![0; MAX_MESSAGE_BYTES], None);
        while let Some(received) = stop.run_until_cancelled(socket.recv_from(&mut buffer)).await {
            let (length, SocketAddr::V6(source)) = received? else { continue };
            let message = buffer.get(..length).and_then(Message::parse);
            // A source that is not link-local cannot be answered: it is no neighbour, or has no address yet.
            if let Some(message) = message.filter(|_| source.ip().is_unicast_link_local())
                && self.answers(message, &source, &mut router, self.clock.monotonic())
            {
                let to = SocketAddrV6::new(*source.ip(), 0, 0, source.scope_id());
                match socket.send_to(&EMPTY, to).await {
                    Ok(_) => drop(self.metrics.router_advertisements.inc()),
                    // iPXE waits, as it would without an advertisement.
                    Err(error) => tracing::debug!(%to, %error, "advertisement not sent"),
                }
            }
        }
        Ok(())
    }

    /// True if `message` of `source` is answered at `now`. Updates `router`, the time of the last advertisement of a router.
    fn answers(
        &self,
        message: Message,
        source: &SocketAddrV6,
        router: &mut Option<Instant>,
        now: Instant,
    ) -> bool {
        let has_router =
            router.is_some_and(|at| now.saturating_duration_since(at) < ROUTER_LIFETIME);
        match message {
            Message::Advertisement => {
                if !has_router {
                    let router = source.ip();
                    tracing::info!(%router, "router present: solicitations of booting machines are not answered");
                }
                *router = Some(now);
                false
            }
            Message::Solicitation(Some(mac)) => !has_router && self.link_state.is_booting(mac, now),
            Message::Solicitation(None) => false,
        }
    }
}
