//! Relays of simulated requests, which insert option 82 as real ones do.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::config::Link;
use crate::options::code;
use crate::packet::Packet;
use crate::relay::{CIRCUIT_ID, LINK_SELECTION, REMOTE_ID, RelayPort};

/// A relay and the option 82 that it inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedRelay {
    /// Its address on the client's link. Unspecified: the client is on our own link, at a switch
    /// that may insert the option.
    pub address: Ipv4Addr,
    /// The circuit-id, sub-option 1. Empty: absent.
    pub circuit_id: Vec<u8>,
    /// The remote-id, sub-option 2. Empty: absent.
    pub remote_id: Vec<u8>,
    /// The link selection, sub-option 5: the client's network, if it is not the relay's own.
    pub link: Option<Ipv4Addr>,
}

impl SimulatedRelay {
    /// Returns the relay of `port`, whose machine has an address in `network`: the relay that the
    /// record names, else one in that network, else the first. None if no relay is trusted: then
    /// the port of a request is ignored.
    pub fn of(port: &RelayPort, network: Option<Ipv4Net>, link: &Link) -> Option<Self> {
        let near = |relay: &&Ipv4Addr| network.is_some_and(|network| network.contains(*relay));
        let relays = || link.relays.iter();
        let named = relays().find(|relay| port.link == Some(**relay));
        let relay = named.or_else(|| relays().find(near)).or_else(|| relays().next()).copied();
        let address = relay.or(link.trust_switches.then_some(Ipv4Addr::UNSPECIFIED))?;
        Some(Self {
            address,
            circuit_id: port.circuit_id.clone(),
            remote_id: port.remote_id.clone(),
            link: port.link.filter(|link| *link != address),
        })
    }

    /// Returns `request` as the relay forwards it.
    pub fn forward(&self, mut request: Packet) -> Packet {
        let link = self.link.map(|link| link.octets());
        let sub_options = [
            (CIRCUIT_ID, self.circuit_id.as_slice()),
            (REMOTE_ID, self.remote_id.as_slice()),
            (LINK_SELECTION, link.as_ref().map_or(&[], <[u8; 4]>::as_slice)),
        ];
        let mut option = Vec::new();
        for (code, value) in sub_options.into_iter().filter(|(_, value)| !value.is_empty()) {
            let Ok(length) = u8::try_from(value.len()) else { continue };
            option.extend([code, length]);
            option.extend(value);
        }
        if !option.is_empty() {
            request.options.set(code::RELAY_AGENT, option);
        }
        Packet { giaddr: self.address, ..request }
    }
}
