//! Option 82: what a relay says about where a request came from (RFC 3046), and whether to believe it.

use std::net::Ipv4Addr;

use super::options::{code, sub_option};
use super::packet::Packet;
use super::site::Link;

const CIRCUIT_ID: u8 = 1;
const REMOTE_ID: u8 = 2;
/// RFC 3527.
const LINK_SELECTION: u8 = 5;
/// RFC 5107.
const SERVER_OVERRIDE: u8 = 11;

/// What a relay we believe says; nothing where there is none. The option itself is echoed either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed<'a> {
    /// The port the request came in by.
    pub circuit_id: Option<&'a [u8]>,
    /// The switch or the host at that port.
    pub remote_id: Option<&'a [u8]>,
    /// An address of the client's network, where it is not the relay's own.
    pub link: Option<Ipv4Addr>,
    /// The server identifier the client shall see, so that renewals pass the relay.
    pub server: Option<Ipv4Addr>,
}

/// What option 82 of `request` is worth on `link`, the datagram having come from `source`.
pub fn relayed<'a>(request: &'a Packet, source: Ipv4Addr, link: &Link) -> Relayed<'a> {
    let believed = if request.giaddr.is_unspecified() {
        link.trust_switches
    } else {
        link.relays.contains(&request.giaddr) || link.relays.contains(&source)
    };
    let Some(option) = request.options.get(code::RELAY_AGENT).filter(|_| believed) else {
        return Relayed::default();
    };
    let address = |code| <[u8; 4]>::try_from(sub_option(option, code)?).ok().map(Ipv4Addr::from);
    Relayed {
        circuit_id: sub_option(option, CIRCUIT_ID),
        remote_id: sub_option(option, REMOTE_ID),
        link: address(LINK_SELECTION),
        server: address(SERVER_OVERRIDE),
    }
}
