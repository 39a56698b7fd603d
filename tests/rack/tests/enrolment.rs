//! A machine that nobody has described is switched on in a network that enrols. Its record is what the hypervisor gave it; it is accepted, and an
//! instance that was ordered by model and location becomes active on it, on the disk that its hint finds. No MAC is typed.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use rack::lab::wait;
use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{image, images, instance};
use rack::server::osie;
use rack::site::Site;
use tinwright::hardware::v1::disk_hint::Choose;
use tinwright::hardware::v1::{DiskHint, DiskMedium, Hardware, State as HardwareState};
use tinwright::instance::v1::{Instance, Placement, State};
use tokio::task::block_in_place;

/// Maximum time until a step of the server or of the machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Interval between two requests for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The network of the machines.
const CONFIG: &str = "
[[subnets]]
network = '198.51.100.0/24'
gateway = '198.51.100.1'
ranges = ['198.51.100.100-198.51.100.150']
unknown = 'enrol'
";
/// The machines of the rack.
const MODEL: &str = "
name: small
constraints:
  firmware_mode: FIRMWARE_MODE_UEFI
  cores: {min: 1, max: 1}
  disks:
    - {count: {min: 2, max: 2}, medium: DISK_MEDIUM_SSD}
";

/// Runs the `tinwright` command.
fn tinwright(site: &Site, line: &[&str]) {
    let output = site.server.cli().args(line).output().unwrap();
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until the machine has a record.
async fn enrolled(site: &Site, machine: &Machine) -> Hardware {
    let polling = async {
        loop {
            if let Some(found) = site.operator.enrolled().await.unwrap().pop() {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let found = tokio::time::timeout(STEP_TIMEOUT, polling).await;
    found.unwrap_or_else(|_| panic!("not enrolled: {}", machine.console(&site.lab)))
}

/// Accepts the machine with the record `hardware`, whose BMC an operator adds, and describes where it stands.
async fn accept(site: &Site, machine: &Machine, hardware: &Hardware) {
    site.operator.create_bmc(&hardware.id, machine, &site.redfish).await.unwrap();
    let model = site.lab.path("model.yaml");
    std::fs::write(&model, MODEL).unwrap();
    let place = ["hardware", "set-location", &hardware.name, "--location", "kir1"];
    for line in [
        &["hardware", "accept", &hardware.name][..],
        &["location", "create", "kir1"],
        &place,
        &["model", "create", "-f", model.to_str().unwrap()],
    ] {
        tinwright(site, line);
    }
    let accepted = site.operator.hardware(&hardware.id).await.unwrap();
    assert_eq!(accepted.state(), HardwareState::Provisionable);
}

/// Orders an instance by model and location, for the smallest SSD.
async fn order(site: &Site, machine: &Machine) -> Instance {
    let template = site.operator.create_template_named("hinted", "{{ .disk }}").await.unwrap();
    let image = image(&site.server.files, machine.firmware).unwrap();
    let (model_id, location_id) = ("small".into(), "kir1".into());
    let placement = Placement { model_id, location_id, ..Placement::default() };
    let root_disk = DiskHint {
        medium: DiskMedium::Ssd.into(),
        choose: Choose::Smallest.into(),
        ..DiskHint::default()
    };
    let ordered = Instance {
        placement: Some(Box::new(placement)),
        root_disk: Some(Box::new(root_disk)),
        ..instance(&template, &machine.name, &image)
    };
    site.operator.order(ordered).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_machine_enrols_and_an_instance_ordered_by_model_is_on_the_disk_of_its_hint() {
    let configuration = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(configuration.path(), CONFIG).unwrap();
    let flags = ["--config".to_owned(), configuration.path().display().to_string()];
    let site = Site::start_with(&osie().unwrap(), &images().unwrap(), &flags).await.unwrap();
    let mut machine = Machine::new(&site.lab, 1, Firmware::Uefi).unwrap();
    for (gib, is_ssd) in [(4, true), (3, false), (5, true)] {
        machine = machine.with_scsi_disk(&site.lab, gib, is_ssd).unwrap();
    }
    site.hypervisor.define(&site.lab, &machine).unwrap();
    site.hypervisor.power_on(&machine).unwrap();

    let hardware = enrolled(&site, &machine).await;
    machine.assert_inventory(hardware.inventory.as_deref().unwrap());
    println!("{} is enrolled as {}", machine.name, hardware.name);
    let is_off = || (!site.hypervisor.is_on(&machine).unwrap()).then_some(());
    block_in_place(|| wait("the machine to switch itself off", STEP_TIMEOUT, is_off)).unwrap();

    accept(&site, &machine, &hardware).await;
    let ordered = order(&site, &machine).await;
    assert_eq!(ordered.hardware_id, hardware.id);
    let print_state = |it: &Instance| println!("{} {}", it.state().word(), it.state_reason);
    let active =
        site.operator.wait_for_state(&ordered.id, State::Active, STEP_TIMEOUT, print_state);
    active.await.unwrap();
    let has_started =
        || machine.console(&site.lab).contains(&format!("id={}", ordered.id)).then_some(());
    block_in_place(|| wait("the installed system", STEP_TIMEOUT, has_started)).unwrap();
    let is_written = |file| !reads_as_zeroes(file, u64::MAX).unwrap();
    let disks = machine.scsi_disks.iter().map(|disk| &*disk.file).chain([&*machine.disk]);
    assert_eq!(disks.map(is_written).collect::<Vec<_>>(), [true, false, false, false]);
}
