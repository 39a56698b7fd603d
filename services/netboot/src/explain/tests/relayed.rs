//! Explanations of machines behind relays.

use super::*;
use crate::bootscripts::tests::fleet_of;

const RELAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);

/// A site whose machine is pinned to the port gi0/1 of the switch leaf.
fn pinned() -> BootScripts {
    let id = HardwareId::new();
    let boots = boots(id);
    let mut machine = machine(id);
    machine.interfaces[0].relay_port = Some(hw::RelayPort {
        circuit_id: "6769302f31".into(),
        remote_id: "6c656166".into(),
        link_address: String::new(),
        pinned: true,
    });
    fleet_of(&boots).hardware(FeedEvent::Snapshot(vec![machine]));
    boots
}

fn relay(address: Ipv4Addr, circuit_id: &[u8]) -> SimulatedRelay {
    SimulatedRelay { address, circuit_id: circuit_id.into(), remote_id: b"leaf".into(), link: None }
}

/// Returns the explanation of `mac` on a link that trusts the relays `FAR` and `RELAY`.
fn through(
    boots: &BootScripts,
    mac: Mac,
    relay: Option<SimulatedRelay>,
) -> pb::ExplainBootResponse {
    let link = Link { relays: vec![FAR, RELAY], ..link() };
    let (target, class) = (Target::Mac(mac), pb::ClientClass::Ipxe);
    let question = BootQuestion { target, class, architecture: None, relay };
    explain(&question, &at(boots, link), &runtime::Clock::system())
}

#[test]
fn a_machine_with_a_relay_port_sends_its_simulated_request_from_there() {
    let told = through(&pinned(), MAC, None);
    assert_eq!(told.dhcp.unwrap().address, "192.0.2.10");
    let looked = told.inputs.unwrap();
    assert_eq!((looked.relay, looked.relay_trusted), (RELAY.to_string(), true));
    assert!(!looked.by_port, "its MAC is in the record");
}

#[test]
fn a_pinned_machine_at_another_port_or_none_is_dropped_with_a_reason() {
    let boots = pinned();
    let direct = SimulatedRelay { circuit_id: Vec::new(), ..relay(Ipv4Addr::UNSPECIFIED, b"") };
    for other in [relay(RELAY, b"gi0/2"), direct] {
        let told = through(&boots, MAC, Some(other)).dhcp.unwrap();
        assert_eq!(told.drop_reason, "its record names another relay port");
    }
    // On a link without trusted relays, the port of a request is ignored.
    let told = asked(&boots, Target::Mac(MAC), pb::ClientClass::Ipxe).dhcp.unwrap();
    assert_eq!(told.drop_reason, "its record names another relay port");
}

#[test]
fn a_new_interface_is_identified_only_at_the_port_of_its_record() {
    let (boots, new) = (pinned(), Mac([2, 0, 0, 0, 0, 9]));
    let told = through(&boots, new, Some(relay(RELAY, b"gi0/1:7")));
    assert_eq!(
        (told.boot, told.dhcp.unwrap().address.as_str()),
        (i32::from(pb::BootTarget::Worker), "192.0.2.10")
    );
    let looked = told.inputs.unwrap();
    assert_eq!((looked.hardware_name.as_str(), looked.by_port), ("node-1", true));
    assert_eq!(told.script.unwrap().status, 200);
    for elsewhere in [relay(RELAY, b"gi0/2"), relay(Ipv4Addr::new(192, 0, 2, 253), b"gi0/1")] {
        let told = through(&boots, new, Some(elsewhere));
        assert_eq!(
            (told.boot, told.inputs.unwrap().by_port),
            (i32::from(pb::BootTarget::Unknown), false)
        );
    }
}

#[test]
fn an_address_outside_the_network_of_the_relay_is_reported() {
    let told = through(&pinned(), MAC, Some(relay(FAR, b"gi0/1")));
    assert_eq!(told.dhcp.unwrap().drop_reason, "its address belongs to another network");
}
