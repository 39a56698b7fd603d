//! Option 82: what a relay says about where a request came from (RFC 3046), and whether to believe it.

use std::net::Ipv4Addr;

use super::options::{code, sub_option};
use super::packet::Packet;
use super::site::Link;

/// The port that a request came in by.
pub(crate) const CIRCUIT_ID: u8 = 1;
/// The switch or the host there.
pub(crate) const REMOTE_ID: u8 = 2;
/// The network that the client is in (RFC 3527).
pub(crate) const LINK_SELECTION: u8 = 5;
/// RFC 5107.
const SERVER_OVERRIDE: u8 = 11;

/// What a relay we believe says; nothing where there is none. The option itself is echoed either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed<'a> {
    /// The port the request came in by.
    pub circuit_id: Option<&'a [u8]>,
    /// The switch or the host at that port.
    pub remote_id: Option<&'a [u8]>,
    /// The relay's address on the client's link; none where a switch that is no relay speaks.
    pub relay: Option<Ipv4Addr>,
    /// An address of the client's network, where it is not the relay's own.
    pub link: Option<Ipv4Addr>,
    /// The server identifier the client shall see, so that renewals pass the relay.
    pub server: Option<Ipv4Addr>,
}

impl<'a> Relayed<'a> {
    /// The circuit-id whole, then up to its last colon: some relays append what changes.
    pub fn circuits(&self) -> impl Iterator<Item = &'a [u8]> {
        let whole = self.circuit_id;
        let colon = whole.and_then(|whole| whole.iter().rposition(|octet| *octet == b':'));
        let beginning = whole.zip(colon).and_then(|(whole, colon)| whole.get(..colon));
        whole.into_iter().chain(beginning)
    }
}

/// A port of a switch, as a machine's record names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayPort {
    /// Sub-option 1, whole or up to its last colon.
    pub circuit_id: Vec<u8>,
    /// Sub-option 2. Empty: any.
    pub remote_id: Vec<u8>,
    /// The relay's address or that of the selected link, if it matters.
    pub link: Option<Ipv4Addr>,
    /// Whether the machine is served nowhere else.
    pub pinned: bool,
}

impl RelayPort {
    /// Whether this is the port that `relayed` names. What came without a relay we believe came from no port at all, and
    /// so a pinned machine renews by broadcast.
    pub fn is_where(&self, relayed: &Relayed<'_>) -> bool {
        let circuit = relayed.circuits().any(|circuit| circuit == self.circuit_id);
        let remote =
            self.remote_id.is_empty() || relayed.remote_id == Some(self.remote_id.as_slice());
        let there = [relayed.relay, relayed.link];
        circuit && remote && self.link.is_none_or(|link| there.contains(&Some(link)))
    }

    /// How much it says of the port beside the circuit-id.
    pub(crate) fn details(&self) -> usize {
        usize::from(!self.remote_id.is_empty()) + usize::from(self.link.is_some())
    }
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
        relay: (!request.giaddr.is_unspecified()).then_some(request.giaddr),
        circuit_id: sub_option(option, CIRCUIT_ID),
        remote_id: sub_option(option, REMOTE_ID),
        link: address(LINK_SELECTION),
        server: address(SERVER_OVERRIDE),
    }
}
