//! Bare machines, one BIOS and one UEFI, become systems that know who they are; and one of them is given back.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use rack::client::Client;
use rack::lab::wait;
use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{Image, image, images, sha256};
use rack::server::osie;
use rack::site::Site;
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::{ActionState, WorkflowState};

/// How long one machine may take to be active, beside another that is being provisioned.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The image is on the disk, byte for byte, before the machine boots it.
async fn the_disk_holds_the_image(site: &Site, machine: &Machine, id: &str, image: &Image) {
    let written = async {
        loop {
            let workflows = site.operator.workflows(id).await.unwrap();
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
    site.hypervisor.suspend(machine).unwrap();
    let digest = sha256(&machine.disk, Some(image.raw_length)).unwrap();
    site.hypervisor.resume(machine).unwrap();
    assert_eq!(digest, image.raw_sha256, "{}", machine.name);
}

/// What the installed system said of itself, by cloud-init's records.
fn the_system_knows_itself(site: &Site, machine: &Machine, instance: &Instance) {
    let said = wait("the system's word", Duration::from_secs(120), || {
        let console = machine.console(&site.lab);
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

/// By the server's log: firmware fetched our loader, that one script, and then one boot was sent to the disk.
fn the_network_booted_it_once(site: &Site, machine: &Machine) {
    let log = site.lab.log("tinwright");
    let count = |parts: &[&str]| {
        log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    };
    let (address, mac) = (&machine.address, format!("mac={}", machine.mac));
    let loader = match machine.firmware {
        Firmware::Bios => "undionly.kpxe",
        Firmware::Uefi => "snponly.efi",
    };
    let loaders = count(&["tftp", &format!("client={address}:"), loader, "result=\"complete\""]);
    let scripts = count(&["script served", &format!("source={address} "), "kind=\"worker\""]);
    let refusals = count(&[&mac, "kind=\"ack\"", "offer=Refused"]);
    // The last of those is the installed system, which asks for its address.
    let wanted = match machine.firmware {
        Firmware::Bios => (1, 1, 1 + 1),
        // In one boot it asks by PXE, then by HTTP.
        Firmware::Uefi => (1, 1, 2 + 1),
    };
    assert_eq!((loaders, scripts, refusals), wanted, "{}: {log}", machine.name);
}

/// The hardware's id, the machine, and the instance that is active on it.
async fn provision(
    site: &Site,
    template: &str,
    number: u8,
    firmware: Firmware,
) -> (String, Machine, Instance) {
    let machine = Machine::new(&site.lab, number, firmware).unwrap();
    let id = site.rack(&machine).await.unwrap();
    let instance = site.install(&id, &machine, template).await.unwrap();
    let image = image(&site.server.files, firmware).unwrap();
    the_disk_holds_the_image(site, &machine, &id, &image).await;
    let tell = |instance: &Instance| {
        println!("{} is {} {}", machine.name, instance.state().word(), instance.state_reason);
    };
    site.operator.until(&instance.id, State::Active, PATIENCE, tell).await.unwrap();
    the_system_knows_itself(site, &machine, &instance);
    the_network_booted_it_once(site, &machine);
    (id, machine, instance)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_bare_machines_come_up_as_themselves_and_one_is_given_back() {
    let site = Site::start(&osie().unwrap(), &images().unwrap()).await.unwrap();
    let template = site.operator.template().await.unwrap();
    let ((id, machine, instance), _) = tokio::join!(
        provision(&site, &template, 1, Firmware::Bios),
        provision(&site, &template, 2, Firmware::Uefi),
    );
    site.operator.release(&instance.id).await.unwrap();
    site.operator.until(&instance.id, State::Deleted, PATIENCE, |_| {}).await.unwrap();
    assert!(!site.hypervisor.is_on(&machine).unwrap(), "switched off by its BMC");
    let image = image(&site.server.files, Firmware::Bios).unwrap();
    assert!(reads_as_zeroes(&machine.disk, image.raw_length).unwrap(), "wiped");

    // The machine is off: somebody else asks from its address.
    let stand_in = Client::new(&site.lab, 9, &machine.mac).unwrap();
    stand_in.settle(&machine.address).unwrap();
    let metadata = |path: &str| {
        let url = format!("http://169.254.169.254/latest/{path}");
        stand_in.get(&machine.address, &url).unwrap()
    };
    assert_eq!(metadata("user-data"), (404, String::new()));
    assert_eq!(metadata("meta-data/instance-id"), (404, String::new()), "a free machine is nobody");
    drop(stand_in);

    let second = site.install(&id, &machine, &template).await.unwrap();
    site.operator.until(&second.id, State::Provisioning, PATIENCE, |_| {}).await.unwrap();
}
