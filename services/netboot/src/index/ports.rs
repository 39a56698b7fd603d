//! Which machine is plugged in where, for requests whose Ethernet address nobody has.

use std::collections::HashMap;

use tinwright::hardware::v1::Hardware;

use crate::Mac;
use crate::facts;
use dhcp::relay::{RelayPort, Relayed};

/// Ports by circuit-id, as the records have it.
#[derive(Debug, Default)]
pub(super) struct Ports(HashMap<Vec<u8>, Vec<Plug>>);

#[derive(Debug)]
struct Plug {
    hardware: String,
    mac: Mac,
    port: RelayPort,
}

impl Ports {
    /// Takes in the ports of a machine.
    pub(super) fn put(&mut self, hardware: &Hardware) {
        for interface in &hardware.interfaces {
            if let (Some(port), Ok(mac)) = (facts::relay_port(interface), interface.mac.parse()) {
                let plugs = self.0.entry(port.circuit_id.clone()).or_default();
                plugs.push(Plug { hardware: hardware.id.clone(), mac, port });
            }
        }
    }

    /// Forgets them.
    pub(super) fn drop(&mut self, hardware: &Hardware) {
        for port in hardware.interfaces.iter().filter_map(facts::relay_port) {
            let Some(plugs) = self.0.get_mut(&port.circuit_id) else { continue };
            plugs.retain(|plug| plug.hardware != hardware.id);
            if plugs.is_empty() {
                self.0.remove(&port.circuit_id);
            }
        }
    }

    /// The machine at the port that `relayed` names, and its interface there: by the whole circuit-id before its
    /// beginning, and by the record that says most of the port.
    pub(super) fn find(&self, relayed: &Relayed<'_>) -> Option<(&str, Mac)> {
        relayed.circuits().find_map(|circuit| {
            let plugs = self.0.get(circuit)?.iter();
            let here = plugs.filter(|plug| plug.port.matches(relayed));
            let most = here.max_by_key(|plug| plug.port.specificity())?;
            Some((most.hardware.as_str(), most.mac))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinwright::hardware::v1::{Interface, RelayPort as Record};

    fn hardware(id: &str, last: u8, record: (&str, &str, &str)) -> Hardware {
        let (circuit_id, remote_id, link_address) = record;
        let relay_port = Some(Record {
            circuit_id: circuit_id.into(),
            remote_id: remote_id.into(),
            link_address: link_address.into(),
            pinned: false,
        });
        let mac = Mac([2, 0, 0, 0, 0, last]).to_string();
        let interfaces = vec![Interface { mac, relay_port, ..Interface::default() }];
        Hardware { id: id.into(), interfaces, ..Hardware::default() }
    }

    fn found<'a>(
        ports: &'a Ports,
        circuit: &[u8],
        remote: &[u8],
        relay: [u8; 4],
    ) -> Option<&'a str> {
        let relayed = Relayed {
            circuit_id: Some(circuit),
            remote_id: Some(remote),
            relay: Some(relay.into()),
            ..Relayed::default()
        };
        ports.find(&relayed).map(|(id, _)| id)
    }

    #[test]
    fn a_port_is_found_whole_or_up_to_its_last_colon() {
        let mut ports = Ports::default();
        ports.put(&hardware("a", 1, ("6769302f31", "", ""))); // gi0/1
        ports.put(&hardware("b", 2, ("6769302f313a37", "", ""))); // gi0/1:7
        assert_eq!(found(&ports, b"gi0/1", b"", [192, 0, 2, 1]), Some("a"));
        assert_eq!(found(&ports, b"gi0/1:8", b"", [192, 0, 2, 1]), Some("a"));
        assert_eq!(found(&ports, b"gi0/1:7", b"", [192, 0, 2, 1]), Some("b"));
        assert_eq!(found(&ports, b"gi0/1:7:8", b"", [192, 0, 2, 1]), Some("b"));
        assert_eq!(found(&ports, b"gi0/10", b"", [192, 0, 2, 1]), None);
    }

    #[test]
    fn the_record_that_says_most_of_a_port_goes_first_and_none_that_says_otherwise() {
        let mut ports = Ports::default();
        ports.put(&hardware("leaf2", 1, ("31", "6c65616632", ""))); // leaf2
        ports.put(&hardware("any", 2, ("31", "", "")));
        ports.put(&hardware("there", 3, ("31", "6c65616632", "198.51.100.254")));
        assert_eq!(found(&ports, b"1", b"leaf2", [192, 0, 2, 1]), Some("leaf2"));
        assert_eq!(found(&ports, b"1", b"leaf3", [192, 0, 2, 1]), Some("any"));
        assert_eq!(found(&ports, b"1", b"leaf2", [198, 51, 100, 254]), Some("there"));
    }

    #[test]
    fn a_machine_that_is_gone_is_at_no_port() {
        let mut ports = Ports::default();
        let machine = hardware("a", 1, ("31", "", ""));
        ports.put(&machine);
        ports.drop(&machine);
        assert_eq!(found(&ports, b"1", b"", [192, 0, 2, 1]), None);
        assert!(ports.0.is_empty());
    }
}
