//! Two machines that cannot boot from the network, one with BIOS and one with UEFI, are installed by virtual media, and cleaned in the same way.
//!
//! Their interfaces are not in the boot order and have no ROM. A BMC fetches iPXE as an ISO and shows it as a CD. iPXE drives the interface itself:
//! it asks DHCP, and gets the machine's script.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use rack::SERVER;
use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{System, image, images, record};
use rack::server::osie;
use rack::site::Site;
use tinwright::hardware::v1::policy::BootMethod;
use tinwright::hardware::v1::{FirmwareMode, Hardware};
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::{Workflow, WorkflowState};

/// Maximum time until an instance is active, or gone. The installed system is booted after iPXE on the CD has given up.
const STEP_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// iPXE as an ISO, for BIOS and UEFI, of Debian's package `ipxe`.
const IPXE_ISO: &str = "/usr/lib/ipxe/ipxe.iso";
/// The ISO's name below `/files`.
const ISO_NAME: &str = "ipxe.iso";

/// Returns the URL of the ISO.
fn iso_url() -> String {
    format!("http://{SERVER}:7080/files/{ISO_NAME}")
}

/// Returns the record of `machine`, with the policy to boot it from the ISO.
fn record_with_policy(machine: &Machine) -> Hardware {
    let mut hardware = record(machine);
    let mut policy = hardware.policy.take().unwrap_or_default();
    policy.set_boot_method(BootMethod::VirtualMedia);
    policy.boot_image_url = iso_url();
    Hardware { policy: Some(policy), ..hardware }
}

/// Waits until `instance` is in `state`.
async fn wait_for(site: &Site, instance: &Instance, state: State) {
    let print_state = |it: &Instance| println!("{} {}", it.state().word(), it.state_reason);
    let reached = site.operator.wait_for_state(&instance.id, state, STEP_TIMEOUT, print_state);
    reached.await.unwrap();
}

/// Checks that `workflow` was carried out from virtual media.
fn check_workflow(workflow: &Workflow, firmware_mode: FirmwareMode) {
    assert_eq!(workflow.state(), WorkflowState::Success, "{}", workflow.state_reason);
    assert_eq!(workflow.warning, "", "the CD was ejected");
    assert_eq!(workflow.boot_image_url, iso_url());
    assert_eq!(workflow.firmware_mode(), firmware_mode);
}

/// Installs machine `number`, and takes it back. The BMC of a UEFI machine names its boot mode, that of a BIOS machine does not.
async fn install_and_clean(site: &Site, template: &str, number: u8, firmware: Firmware) {
    let machine = Machine::new(&site.lab, number, firmware).unwrap().without_network_boot();
    let id = site.add_machine_with(&machine, record_with_policy(&machine)).await.unwrap();

    let instance = site.install_system(&id, &machine, template, System::Debian).await.unwrap();
    wait_for(site, &instance, State::Active).await;
    let installation = site.operator.workflows(&id).await.unwrap().remove(0);
    // There is no inventory before the first boot.
    check_workflow(&installation, FirmwareMode::Unspecified);
    assert!(!site.hypervisor.has_cd(&machine).unwrap(), "ejected after the installation");
    let hardware = site.operator.hardware(&id).await.unwrap();
    let inventory = hardware.inventory.as_deref().unwrap();
    machine.assert_inventory(inventory);

    site.operator.delete_instance(&instance.id).await.unwrap();
    wait_for(site, &instance, State::Deleted).await;
    let workflows = site.operator.workflows(&id).await.unwrap();
    let clean_up = workflows.iter().find(|workflow| workflow.id != installation.id).unwrap();
    check_workflow(clean_up, inventory.firmware_mode());
    assert!(!site.hypervisor.has_cd(&machine).unwrap(), "ejected after the clean-up");
    assert!(!site.hypervisor.is_on(&machine).unwrap(), "switched off");
    let image = image(&site.server.files, firmware).unwrap();
    assert!(reads_as_zeroes(&machine.disk, image.raw_length).unwrap(), "wiped");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo rack test --long"]
async fn machines_without_network_boot_are_installed_and_cleaned_by_virtual_media() {
    let (osie, files) = (osie().unwrap(), images().unwrap());
    std::fs::copy(IPXE_ISO, files.join(ISO_NAME)).unwrap();
    let site = Site::start(&osie, &files).await.unwrap();
    site.hypervisor.create_media_pool(&site.lab).unwrap();
    let template = site.operator.create_template().await.unwrap();
    tokio::join!(
        install_and_clean(&site, &template, 1, Firmware::Bios),
        install_and_clean(&site, &template, 2, Firmware::Uefi),
    );
}
