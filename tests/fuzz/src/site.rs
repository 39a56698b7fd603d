//! A small site: two hardware records, an instance on the first, a workflow for the second, and a relay.

use fleet::Fleet;
use std::sync::Arc;

use netboot::bootscripts::BootScripts;
use netboot::decision::Policy;
use netboot::machine_view::Index;
use netboot::site::{Dhcp, Serving, Site};
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1::{self as hw, Hardware, Interface};
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::Workflow;

/// The server's address.
pub(crate) const SERVER: [u8; 4] = [198, 51, 100, 1];
/// Address of the first machine, which an instance occupies.
pub(crate) const NODE1: [u8; 4] = [198, 51, 100, 50];
/// Address of the second machine, for which a workflow is pending.
pub(crate) const NODE2: [u8; 4] = [198, 51, 100, 60];
/// Address of the relay.
pub(crate) const RELAY: [u8; 4] = [198, 51, 100, 254];
/// Circuit id of the relay port that the second machine is on.
pub(crate) const CIRCUIT_ID: &str = "eth1/2:7";
/// A secret that only the first machine may read.
pub(crate) const SECRET: &str = "correct horse battery staple";
/// Lookup id of the first machine's instance.
pub(crate) const LOOKUP_ID: &str = "00112233445566778899aabbccddeeff";

const ID1: &str = "0197f0a0-0000-7000-8000-000000000001";
const ID2: &str = "0197f0a0-0000-7000-8000-000000000002";

/// Returns the hardware records.
pub(crate) fn machines() -> [Hardware; 2] {
    let circuit_id = crate::hex::encode(CIRCUIT_ID.as_bytes());
    let port = hw::RelayPort { circuit_id, ..hw::RelayPort::default() };
    let mut second = machine(ID2, "52:54:00:00:00:02", NODE2);
    second.interfaces.iter_mut().for_each(|interface| interface.relay_port = Some(port.clone()));
    [machine(ID1, "52:54:00:00:00:01", NODE1), second]
}

/// Returns the instance on the first machine.
pub(crate) fn instance() -> Instance {
    Instance {
        id: "i-0001".into(),
        state: tinwright::instance::v1::State::Active.into(),
        hostname: "node1".into(),
        hardware_id: ID1.into(),
        userdata: format!("#cloud-config\npassword: {SECRET}\n"),
        crypted_root_password: SECRET.into(),
        ssh_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey user@host".into()],
        tags: vec!["rack=1".into(), "spare".into()],
        lookup_id: LOOKUP_ID.into(),
        ..Instance::default()
    }
}

/// Returns netboot's index of all records.
pub(crate) fn index() -> Arc<Index> {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(machines().into()));
    fleet.instance(FeedEvent::Snapshot(vec![instance()]));
    let workflow = Workflow {
        id: "w".into(),
        hardware_id: ID2.into(),
        wants_machine: true,
        ..Workflow::default()
    };
    fleet.workflow(FeedEvent::Snapshot(vec![workflow]));
    index
}

/// Returns the boot script service.
pub(crate) fn boot_scripts(
    index: Arc<Index>,
    rate_limits: bool,
) -> anyhow::Result<Arc<BootScripts>> {
    let site = Site {
        interface: "lo".into(),
        address: SERVER.into(),
        http_port: 7080,
        dhcp: Dhcp::default(),
        loaders: Vec::new(),
        osie: "/nowhere".into(),
        files: None,
        grpc_authority: "198.51.100.1:42113".into(),
        grpc_servers: Vec::new(),
        authority: std::sync::Arc::new(netboot::site::FixedAuthority("PEM", "ab")),
        consoles: vec!["ttyS0".into()],
        metadata_route: true,
        rate_limits,
        policy: Policy::default(),
        syslog: None,
        ra_assist: false,
        subnets: Vec::new(),
        serving: Serving::default(),
    };
    Ok(Arc::new(BootScripts::new(index, BootTokens::new(&SiteKey::new([1; 32]))?, site)))
}

fn machine(id: &str, mac: &str, address: [u8; 4]) -> Hardware {
    let [gateway, address] =
        [SERVER, address].map(|octets| std::net::Ipv4Addr::from(octets).to_string());
    let dhcp = hw::Dhcp {
        address: Some(hw::Address { address, prefix_length: 24, gateway }),
        hostname: "rack1-slot7".into(),
        domain_name: "lab".into(),
        name_servers: vec!["198.51.100.53".into()],
        ..hw::Dhcp::default()
    };
    let interface = Interface {
        mac: mac.into(),
        dhcp: Some(dhcp),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..Interface::default()
    };
    Hardware {
        id: id.into(),
        architecture: "x86_64".into(),
        interfaces: vec![interface],
        ..Hardware::default()
    }
}
