//! Instances with custom scripts.

use std::time::Duration;

use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;

use super::network::{Network, OURS};
use super::process::{Place, Process, arguments, soon};

const MAC: &str = "52:54:00:00:00:01";
const MACHINE: &str = "198.51.100.50";

/// Returns the status and the body of a machine's request for `url`.
pub(crate) fn get(network: &Network, url: &str) -> (String, String) {
    let output = network.run(0, &format!("curl -s -w \n%{{http_code}} {url}"));
    let (body, status) = output.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// Creates an instance with a custom script on the machine with the interface `mac`. With `always` it runs at every boot.
pub(crate) async fn occupied(
    control: &Process,
    mac: &str,
    address: &str,
    always: bool,
) -> inst::Instance {
    let address =
        hw::Address { address: address.into(), prefix_length: 24, ..hw::Address::default() };
    let interface = hw::Interface {
        mac: mac.into(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..hw::Interface::default()
    };
    let hardware = hw::Hardware {
        interfaces: vec![interface],
        state: hw::State::Provisionable.into(),
        ..hw::Hardware::default()
    };
    let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
    let mut machines = HardwareServiceClient::new(control.channel().await);
    let machine = machines.create_hardware(request).await.unwrap().into_inner().hardware.unwrap();
    let script = inst::instance::CustomIpxe {
        contents: "#!ipxe\nshell\n".into(),
        always_pxe: always,
        ..Default::default()
    };
    let instance = inst::Instance {
        hardware_id: machine.id,
        userdata: "#cloud-config".into(),
        os: Some(inst::instance::Os::CustomIpxe(script)),
        ..Default::default()
    };
    let request = inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    let mut instances = InstanceServiceClient::new(control.channel().await);
    instances.create_instance(request).await.unwrap().into_inner().instance.unwrap()
}

#[test]
fn a_machine_runs_its_owners_script_once_and_once_more_where_it_could_not_be_had() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        network.set(0, &format!("addr add {MACHINE}/24 dev eth0"));
        let served = ["--netboot-interface", "br0", "--listen", &format!("{OURS}:42113")];
        let control = Place::new().start(&arguments(&served)).await;
        let instance = occupied(&control, MAC, MACHINE, false).await;
        let mut instances = InstanceServiceClient::new(control.channel().await);
        let mut until_recorded = async |expected: bool| {
            let by = inst::get_instance_request::By::Id(instance.id.clone());
            let request = inst::GetInstanceRequest { by: Some(by), ..Default::default() };
            while {
                let found = instances.get_instance(request.clone()).await.unwrap().into_inner();
                found.instance.unwrap().script_time.is_some() != expected
            } {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let script = format!("http://{OURS}:7080/52-54-00-00-00-01/auto.ipxe");
        let theirs = async |runs: bool| loop {
            let text = get(&network, &script).1;
            let note = text.split_whitespace().find(|word| word.ends_with("/instance.started"));
            match note {
                Some(note) if runs => return note.to_owned(),
                None if !runs => return text,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        for _ in 0..2 {
            let note = soon(theirs(true)).await;
            assert_eq!(get(&network, &note).0, "200");
            soon(until_recorded(true)).await;
            let text = get(&network, &note.replace(".started", ".ipxe"));
            assert_eq!(text, ("200".into(), "#!ipxe\nshell\n".into()));
            assert!(soon(theirs(false)).await.contains("exit 1"));
            assert_eq!(get(&network, &note.replace(".started", ".failed")).0, "200");
            soon(until_recorded(false)).await;
        }
    });
}
