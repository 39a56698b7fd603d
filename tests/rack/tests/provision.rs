//! Bare machines, one BIOS and one UEFI, become systems that know who they are; and one of them is given back.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use rack::bmc::Redfish;
use rack::lab::{Lab, wait};
use rack::machines::{Firmware, Hypervisor, Machine};
use rack::provision::{Image, Operator, image, images, sha256};
use rack::server::{Server, osie};
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{ActionState, WorkflowState};

/// How long one machine may take to be active, beside another that is being provisioned.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

struct Rack {
    lab: Lab,
    hypervisor: Hypervisor,
    redfish: Redfish,
    server: Server,
    images: std::path::PathBuf,
}

fn rack() -> Rack {
    assert!(
        rustix::process::geteuid().is_root(),
        "the rack makes network namespaces: run it as root"
    );
    let (osie, images) = (osie().unwrap(), images().unwrap());
    let mut lab = Lab::new().unwrap();
    let hypervisor = Hypervisor::start(&mut lab).unwrap();
    let redfish = Redfish::start(&mut lab, &hypervisor).unwrap();
    let server = Server::new(&lab, &osie, &images).unwrap();
    server.start(&mut lab).unwrap();
    Rack { lab, hypervisor, redfish, server, images }
}

/// The image is on the disk, byte for byte, before the machine boots it.
async fn the_disk_holds_the_image(
    rack: &Rack,
    operator: &Operator,
    machine: &Machine,
    id: &str,
    image: &Image,
) {
    let written = async {
        loop {
            let workflows = operator.workflows(id).await.unwrap();
            let workflow = workflows.last().cloned().unwrap_or_default();
            let failed = workflow.state() == WorkflowState::Failed;
            assert!(!failed, "{}: {}", machine.name, workflow.state_reason);
            let write = workflow.actions.first();
            if write.is_some_and(|action| action.state() == ActionState::Success) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("the image is written");
    rack.hypervisor.suspend(machine).unwrap();
    let digest = sha256(&machine.disk, Some(image.raw_length)).unwrap();
    rack.hypervisor.resume(machine).unwrap();
    assert_eq!(digest, image.raw_sha256, "{}", machine.name);
}

/// What the installed system said of itself, by cloud-init's records.
fn the_system_knows_itself(rack: &Rack, machine: &Machine, instance: &Instance) {
    let said = wait("the system's word", Duration::from_secs(120), || {
        let console = machine.console(&rack.lab);
        console.lines().find_map(|line| Some(line.split_once("RACK ")?.1.to_owned()))
    });
    let said = said.unwrap();
    for part in [
        format!("id={}", instance.id),
        format!("host={}", machine.name),
        "file=user-data-arrived".into(),
        "key=operator@rack".into(),
    ] {
        assert!(said.contains(&part), "{part} is not in: {said}");
    }
}

async fn provision(
    rack: &Rack,
    operator: &Operator,
    template: &str,
    number: u8,
    firmware: Firmware,
) -> (Machine, Instance) {
    let machine = Machine::new(&rack.lab, number, firmware).unwrap();
    rack.hypervisor.define(&rack.lab, &machine).unwrap();
    let image = image(&rack.images, firmware).unwrap();
    let id = operator.rack(&machine).await.unwrap();
    operator.wire(&id, &machine, &rack.redfish).await.unwrap();
    let instance = operator.install(&id, template, &machine.name, &image).await.unwrap();
    the_disk_holds_the_image(rack, operator, &machine, &id, &image).await;
    let tell = |instance: &Instance| {
        println!("{} is {} {}", machine.name, instance.state, instance.state_reason);
    };
    operator.until(&instance.id, "active", PATIENCE, tell).await.unwrap();
    the_system_knows_itself(rack, &machine, &instance);
    (machine, instance)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_bare_machines_come_up_as_themselves_and_one_is_given_back() {
    let rack = rack();
    let operator = Operator::new(rack.server.channel().await.unwrap());
    let template = operator.template().await.unwrap();
    let (bios, uefi) = tokio::join!(
        provision(&rack, &operator, &template, 1, Firmware::Bios),
        provision(&rack, &operator, &template, 2, Firmware::Uefi),
    );
    let ((machine, instance), _) = (bios, uefi);
    operator.release(&instance.id).await.unwrap();
    operator.until(&instance.id, "deleted", PATIENCE, |_| {}).await.unwrap();
    assert!(!rack.hypervisor.is_on(&machine).unwrap(), "switched off by its BMC");
    let image = image(&rack.images, Firmware::Bios).unwrap();
    assert!(rack::machines::reads_as_zeroes(&machine.disk, image.raw_length).unwrap(), "wiped");
}
