//! Router advertisements for booting machines (RFC 4861).
//!
//! After DHCP has given it an address, iPXE waits 16 s for an IPv6 router at every boot, in vain where there is none. An
//! advertisement without a router lifetime, prefixes or routes ends the wait: it gives no host an address or a route (section
//! 6.3.4). So one is sent to each host that solicits routers and is booting by our DHCP; to no other host, and to none on a link
//! that has a router.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::clock::Clock;
use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use crate::Mac;
use crate::dhcp_server::link_state::LinkState;
use crate::metrics::Metrics;

/// Router solicitation and advertisement (RFC 4861, sections 4.1 and 4.2).
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// The option with the source's link-layer address (section 4.6.1).
const SOURCE_ADDRESS: u8 = 1;
/// Octets of a solicitation before its options.
const HEADER_OCTETS: usize = 8;
/// All routers on the link (RFC 4291, section 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The hop limit of neighbour discovery: no router has forwarded the message (RFC 4861, section 6.1.2).
const HOP_LIMIT: u32 = 255;
/// A router counts as present for this time after an advertisement: the longest interval of a router
/// (section 6.2.1).
const ROUTER_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// The longest message that is read.
const MAX_MESSAGE_BYTES: usize = 1500;

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A host solicits routers; with its Ethernet address if the message has it.
    Solicitation(Option<Mac>),
    /// The message of a router.
    Advertisement,
}

impl Message {
    /// Parses an ICMPv6 message; none if it is of another type, or malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.split_at_checked(HEADER_OCTETS)? {
            ([SOLICITATION, 0, ..], options) => source(options).map(Self::Solicitation),
            ([ADVERTISEMENT, 0, ..], _) => Some(Self::Advertisement),
            _ => None,
        }
    }
}

/// An empty advertisement: no hop limit, no flags, no lifetime, no times, no options.
pub const EMPTY: [u8; 16] = [ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Returns the link-layer address among `options`, if there is one. None if an option is malformed (section 6.1.1).
fn source(mut options: &[u8]) -> Option<Option<Mac>> {
    let mut found = None;
    while let [kind, length, ..] = options {
        let (option, rest) = options.split_at_checked(usize::from(*length) * 8)?;
        match (*kind, option) {
            (_, []) => return None, // a length of 0 would never end
            (SOURCE_ADDRESS, &[_, 1, a, b, c, d, e, f]) => found = Some(Mac([a, b, c, d, e, f])),
            _ => {}
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}

/// Opens a raw ICMPv6 socket on `interface`. Requires CAP_NET_RAW. It is read and written like a UDP socket: one message at a
/// time, with an address. Checksums are the kernel's.
pub fn open(interface: &str) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_unicast_hops_v6(HOP_LIMIT)?;
    socket.set_multicast_hops_v6(HOP_LIMIT)?;
    socket.set_nonblocking(true)?;
    let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
    socket.join_multicast_v6(&ALL_ROUTERS, index)?;
    Ok(socket)
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
    pub async fn run(self, socket: socket2::Socket, stop: CancellationToken) -> anyhow::Result<()> {
        let socket = UdpSocket::from_std(socket.into())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn solicitation(options: &[u8]) -> Option<Message> {
        Message::parse(&[&[SOLICITATION, 0, 0xab, 0xcd, 0, 0, 0, 0][..], options].concat())
    }

    #[test]
    fn a_solicitation_has_the_address_of_its_host_if_it_names_one() {
        assert_eq!(
            solicitation(&[1, 1, 0x52, 0x54, 0, 0, 0, 1]),
            Some(Message::Solicitation(Some(MAC)))
        );
        let after_another_option =
            [&[14, 1, 0, 0, 0, 0, 0, 0][..], &[1, 1, 0x52, 0x54, 0, 0, 0, 1]];
        assert_eq!(
            solicitation(&after_another_option.concat()),
            Some(Message::Solicitation(Some(MAC)))
        );
        assert_eq!(solicitation(&[]), Some(Message::Solicitation(None)));
    }

    #[test]
    fn malformed_and_other_messages_are_not_parsed() {
        for malformed in [&[1, 0][..], &[1], &[1, 2, 0, 0, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 0, 0]] {
            assert_eq!(solicitation(malformed), None);
        }
        assert_eq!(Message::parse(&[135, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Message::parse(&[SOLICITATION, 0, 0]), None);
        assert_eq!(Message::parse(&EMPTY), Some(Message::Advertisement));
    }

    proptest! {
        #[test]
        fn no_message_makes_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _parsed = Message::parse(&bytes);
        }

        #[test]
        fn an_address_is_found_after_any_option(mac: [u8; 6], kind in 2..=255_u8, words in 1..4_u8) {
            let other = [&[kind, words][..], &vec![7; usize::from(words) * 8 - 2]].concat();
            let own = [&[1, 1][..], &mac].concat();
            let found = solicitation(&[other, own].concat());
            prop_assert_eq!(found, Some(Message::Solicitation(Some(Mac(mac)))));
        }
    }
}
