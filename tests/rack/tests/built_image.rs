//! An image that `tinwright image build` makes from a Debian mirror is installed on a machine with BIOS and on one with UEFI, and starts there.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rack::machines::{Firmware, Machine};
use rack::provision::{Image, instance, sha256};
use rack::server::osie;
use rack::site::Site;
use tinwright::instance::v1::{Instance, State};

/// Maximum time until an instance is active. The image has all of cloud-init, and starts slowly without KVM.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(40 * 60);
/// Size of the root file system in MiB, for the disks of the rack.
const SIZE_MIB: &str = "1600";

/// Builds the image into `files`.
fn build(files: &Path) -> Image {
    let mut build = Command::new(setup::program("tinwright"));
    build.args(["image", "build", "debian-12", "--size", SIZE_MIB]).arg("--files").arg(files);
    // Smaller than the kernel for real hardware.
    build.args(["--kernel", "linux-image-cloud-amd64"]);
    build.args(["--kernel-parameters", "console=tty0 console=ttyS0 mitigations=off"]);
    setup::run(&mut build).unwrap();
    let mut check = Command::new("sha256sum");
    let checked = check.args(["--check", "debian-12.raw.zst.sha256"]).current_dir(files).output();
    assert!(checked.unwrap().status.success(), "the checksum is right");
    let name = "debian-12.raw.zst".to_owned();
    let compressed_sha256 = sha256(&files.join(&name), None).unwrap();
    Image { name, compressed_sha256, raw_sha256: String::new(), raw_length: 0 }
}

/// Installs `image` on machine `number`. The instance is active when cloud-init of the installed system has called home.
async fn install(site: &Site, template: &str, image: &Image, number: u8, firmware: Firmware) {
    let machine = Machine::new(&site.lab, number, firmware).unwrap();
    let id = site.add_machine(&machine).await.unwrap();
    let order = Instance { hardware_id: id, ..instance(template, &machine.name, image) };
    let order = site.operator.order(order).await.unwrap();
    let print_state = |it: &Instance| println!("{} {}", it.state().word(), it.state_reason);
    let active =
        site.operator.wait_for_state(&order.id, State::Active, INSTALL_TIMEOUT, print_state);
    if let Err(error) = active.await {
        let console = machine.console(&site.lab);
        let end = console.floor_char_boundary(console.len().saturating_sub(4000));
        panic!("{error:#}: the console ends with\n{}", &console[end..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo rack test --long"]
async fn a_built_image_is_installed_and_starts_with_bios_and_with_uefi() {
    let (osie, files) = (osie().unwrap(), tempfile::tempdir().unwrap());
    let image = build(files.path());
    let site = Site::start(&osie, files.path()).await.unwrap();
    let template = site.operator.create_template().await.unwrap();
    tokio::join!(
        install(&site, &template, &image, 1, Firmware::Bios),
        install(&site, &template, &image, 2, Firmware::Uefi),
    );
}
