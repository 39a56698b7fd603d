//! The log of answered requests.

use std::net::Ipv4Addr;

use dhcp::{Reply, Request};
use ipnet::Ipv4Net;

use crate::Mac;
use crate::decision::Decision;
use crate::machine_view::MachineView;
use crate::site::networks_of;

/// Logs the requests of one link that are answered.
#[derive(Debug)]
pub(super) struct AnswerLog {
    /// The networks of the interface; empty if they are not known.
    networks: Vec<Ipv4Net>,
}

impl AnswerLog {
    /// Creates the log of the link at `interface`.
    pub(super) fn new(interface: &str) -> Self {
        Self { networks: networks_of(interface).unwrap_or_default() }
    }

    /// Logs the `reply` to `request` of `machine`, and warns if the machine cannot use its address here.
    pub(super) fn write(
        &self,
        request: &Request,
        machine: Option<&MachineView>,
        reply: &Reply,
        decision: &Decision,
    ) {
        let (kind, mac, xid) = (reply.kind_label(), Mac(request.mac), request.packet.xid);
        let by_port = machine.is_some_and(|machine| machine.mac != mac);
        let id = machine.map(|machine| machine.hardware.id.as_str());
        let name = machine.map(MachineView::label);
        let (offer, reason) = (reply.boot.label(), reply.boot.refusal(decision.fact));
        tracing::info!(machine = name, hardware.id = id, %mac, dhcp.xid = xid, kind, boot = %decision.fact, offer, reason, by_port, "DHCP request answered");
        let address = reply.packet.yiaddr;
        if request.relay().is_none() && self.is_elsewhere(address) {
            tracing::warn!(
                machine = name,
                %mac,
                %address,
                "the address of the record is in no network of this interface"
            );
        }
    }

    /// True if a machine on the link cannot use `address`: it is in no network of the interface.
    fn is_elsewhere(&self, address: Ipv4Addr) -> bool {
        let is_here = |network: &Ipv4Net| network.contains(&address);
        !address.is_unspecified() && !self.networks.is_empty() && !self.networks.iter().any(is_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_outside_of_the_networks_of_the_interface_cannot_be_used_there() {
        let log = AnswerLog::new("lo");
        assert!(log.is_elsewhere(Ipv4Addr::new(192, 0, 2, 10)));
        for address in [Ipv4Addr::new(127, 0, 0, 9), Ipv4Addr::UNSPECIFIED] {
            assert!(!log.is_elsewhere(address), "{address}");
        }
        assert!(!AnswerLog::new("nowhere").is_elsewhere(Ipv4Addr::new(192, 0, 2, 10)));
    }
}
