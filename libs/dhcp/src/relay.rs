//! Option 82, the relay agent information (RFC 3046), and switch ports.

use std::net::Ipv4Addr;

use crate::options::sub_option;

/// Sub-option 1: the relay's port that received the request.
pub const CIRCUIT_ID: u8 = 1;
/// Sub-option 2: the remote end of that port, or the relay itself: vendors differ.
pub const REMOTE_ID: u8 = 2;
/// Sub-option 5: the client's network (RFC 3527).
pub const LINK_SELECTION: u8 = 5;
/// Sub-option 11: server identifier override (RFC 5107).
const SERVER_IDENTIFIER_OVERRIDE: u8 = 11;

/// The contents of a trusted option 82; empty if there is none. The option is echoed whether it is trusted or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed<'a> {
    /// The relay's port that received the request.
    pub circuit_id: Option<&'a [u8]>,
    /// The remote end of that port, or the relay itself.
    pub remote_id: Option<&'a [u8]>,
    /// The relay's address on the client's link; none if a snooping switch inserted the option.
    pub relay: Option<Ipv4Addr>,
    /// An address of the client's network, if it differs from the relay's own.
    pub link: Option<Ipv4Addr>,
    /// The server identifier to send, so that renewals pass through the relay.
    pub server: Option<Ipv4Addr>,
}

impl<'a> Relayed<'a> {
    /// Parses `option`, a trusted option 82. `relay` is the address in giaddr.
    pub(crate) fn parse(option: &'a [u8], relay: Option<Ipv4Addr>) -> Self {
        let address =
            |code| <[u8; 4]>::try_from(sub_option(option, code)?).ok().map(Ipv4Addr::from);
        Self {
            relay,
            circuit_id: sub_option(option, CIRCUIT_ID),
            remote_id: sub_option(option, REMOTE_ID),
            link: address(LINK_SELECTION),
            server: address(SERVER_IDENTIFIER_OVERRIDE),
        }
    }

    /// Returns the whole circuit id, then its part before the last colon: some relays append a changing suffix.
    pub fn circuits(&self) -> impl Iterator<Item = &'a [u8]> {
        let whole = self.circuit_id;
        let colon = whole.and_then(|whole| whole.iter().rposition(|octet| *octet == b':'));
        let prefix = whole.zip(colon).and_then(|(whole, colon)| whole.get(..colon));
        whole.into_iter().chain(prefix)
    }
}

/// The switch port in a machine's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayPort {
    /// Sub-option 1, whole or up to its last colon.
    pub circuit_id: Vec<u8>,
    /// Sub-option 2. Empty: any.
    pub remote_id: Vec<u8>,
    /// The relay's address or the selected link's. None: any.
    pub link: Option<Ipv4Addr>,
    /// True if the machine is served at no other port.
    pub pinned: bool,
}

impl RelayPort {
    /// True if `relayed` came through this port. A request without trusted relay information matches no port. So the unicast
    /// renewals of a pinned machine are not answered, and it extends its lease by broadcast, through the relay.
    pub fn matches(&self, relayed: &Relayed<'_>) -> bool {
        let circuit = relayed.circuits().any(|circuit| circuit == self.circuit_id);
        let remote =
            self.remote_id.is_empty() || relayed.remote_id == Some(self.remote_id.as_slice());
        let addresses = [relayed.relay, relayed.link];
        circuit && remote && self.link.is_none_or(|link| addresses.contains(&Some(link)))
    }

    /// Returns the number of fields besides the circuit id that must match.
    pub fn specificity(&self) -> usize {
        usize::from(!self.remote_id.is_empty()) + usize::from(self.link.is_some())
    }
}
