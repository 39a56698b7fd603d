//! Provisions a bare machine with BIOS. It is installed again and restarted, and then taken back from a tenant who has root on it. The same with UEFI
//! is in `first_screen`, `enrolment` and `restarts`, up to a running system.
//!
//! The lab has no route to other networks: the server gets the image of the first installation, and the environment in memory, from the archive of another site.
//! This environment has a key, and installs signed images only.
//!
//! The first system is Debian, and our iPXE loads the environment that installs it. After that the
//! system is a small one, and the machine's own iPXE loads the environment: both save most of the
//! time of an emulated machine.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "provision/given_back.rs"]
mod given_back;
#[path = "provision/installed_again.rs"]
mod installed_again;
#[path = "provision/signed.rs"]
mod signed;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rack::air_gap::Archive;
use rack::client::Client;
use rack::lab::wait;
use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{Image, System, image, images_of, record, sha256};
use rack::server::{CHAIN_IPXE, osie};
use rack::site::Site;
use rack::tenant::Tenant;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::{ActionState, WorkflowState};
use tokio::task::block_in_place;

/// Name of the tenant's image.
const IMAGE: &str = "debian-bios";
/// Maximum time until an instance is active.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Maximum time until a command on an installed machine has run, which emulates the cryptography of SSH.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// A boot of which nothing is seen is repeated after two minutes: one falls through to the disk here.
const BOOT_TIMEOUTS: [&str; 2] = ["--boot-silent-minutes=2", "--boot-step-minutes=4"];

/// Waits until the image is written, and compares the disk with it before the machine boots from it.
async fn check_disk(site: &Site, machine: &Machine, id: &str, image: &Image) {
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
    tokio::time::timeout(ACTIVE_TIMEOUT, written).await.expect("the image is written");
    site.hypervisor.suspend(machine).unwrap();
    let (disk, length) = (machine.disk.clone(), image.raw_length);
    let digest = tokio::task::spawn_blocking(move || sha256(&disk, Some(length)));
    let digest = digest.await.unwrap().unwrap();
    site.hypervisor.resume(machine).unwrap();
    assert_eq!(digest, image.raw_sha256, "{}", machine.name);
}

/// Checks the line that the system of the installation `number`, counted from 1, prints from cloud-init's data.
fn check_cloud_init(site: &Site, machine: &Machine, instance: &Instance, number: usize) {
    let line = wait("the line of cloud-init", Duration::from_secs(120), || {
        let console = machine.console(&site.lab);
        let mut lines = console.lines().filter_map(|line| Some(line.split_once("RACK ")?.1));
        lines.nth(number - 1).map(str::to_owned)
    });
    let line = line.unwrap();
    for part in [
        format!("id={}", instance.id),
        format!("host={}", machine.name),
        format!("ip={}", machine.address),
        "file=user-data-arrived".into(),
        "key=operator@rack".into(),
    ] {
        assert!(line.contains(&part), "{part} is not in: {line}");
    }
}

/// Logs in with the command line that `cargo rack` prints.
async fn check_login(site: &Site, machine: &Machine) {
    let line = format!("{} hostname", site.ssh.command_line(machine));
    let mut login = tokio::process::Command::new("sh");
    login.args(["-c", &line]).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LOGIN_TIMEOUT, login.output()).await.expect("a shell");
    let output = output.unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), machine.name);
}

/// Checks in the server's log that the firmware loaded our loader and one script, and that the next boot was refused. On a slow host the machine
/// is prepared several times: then each preparation loads both at most once.
fn check_boots(site: &Site, machine: &Machine, preparations: usize) {
    let log = site.lab.log("tinwright");
    let count = |parts: &[&str]| {
        log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    };
    let (address, mac) = (&machine.address, format!("mac={}", machine.mac));
    let client = format!("client={address}:");
    let loaders = count(&["tftp", &client, "undionly.kpxe", "result=complete"]);
    let scripts = count(&["script served", &format!("source={address} "), "kind=worker"]);
    let refusals = count(&[&mac, "kind=ack", "offer=refused"]);
    let found =
        format!("{}: {loaders} loaders, {scripts} scripts, {refusals} refusals", machine.name);
    for count in [loaders, scripts] {
        assert!((1..=preparations).contains(&count), "{found} of {preparations}: {log}");
    }
    // That of the firmware: the installed system asks for no boot.
    let are_right = if preparations == 1 { refusals == 1 } else { refusals >= 1 };
    assert!(are_right, "{found} of {preparations}: {log}");
}

/// Orders a machine in the location of `tenant` for its caller, with an image of its own.
async fn order(site: &Site, tenant: &Tenant, machine: &Machine) -> Instance {
    let order = Instance { placement: Some(Box::new(tenant.placement())), ..Instance::default() };
    site.install(&tenant.operator, machine, IMAGE, order).await.unwrap()
}

/// Provisions the machine for `tenant`, from an image of that which another site exported. Returns the hardware id, the machine, and its active instance.
async fn provision(site: &Site, tenant: &Tenant) -> (String, Machine, Instance) {
    let machine = Machine::new(&site.lab, 1, Firmware::Bios).unwrap();
    let location_id = tenant.create_location(site).await.unwrap();
    let record = Hardware { location_id, ..record(&machine) };
    let id = site.add_machine_with(&machine, record).await.unwrap();
    let instance = order(site, tenant, &machine).await;
    assert_eq!(instance.tenant, tenant.name);
    let image = image(&site.server.files, machine.firmware).unwrap();
    check_disk(site, &machine, &id, &image).await;
    let print_state = |instance: &Instance| {
        println!("{} is {} {}", machine.name, instance.state().word(), instance.state_reason);
    };
    site.operator
        .wait_for_state(&instance.id, State::Active, ACTIVE_TIMEOUT, print_state)
        .await
        .unwrap();
    check_cloud_init(site, &machine, &instance, 1);
    check_login(site, &machine).await;
    let workflows = site.operator.workflows(&id).await.unwrap();
    let [workflow] = workflows.as_slice() else { panic!("one workflow: {workflows:?}") };
    check_boots(site, &machine, workflow.preparations.try_into().unwrap());
    let log = output(site, &["workflow", "logs", &workflow.id]);
    assert!(log.contains(&format!("the signature of {IMAGE} is valid")), "{log}");
    (id, machine, instance)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_machine_is_provisioned_and_installed_again_and_given_back() {
    provision_and_give_back(System::Light).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "installs and boots Debian twice"]
async fn a_bare_machine_is_provisioned_with_debian_twice_and_given_back() {
    provision_and_give_back(System::Debian).await;
}

/// Starts a server that has what it installs from the archive of another site. Returns it and a tenant. The folder `imported` gets the
/// environment.
async fn imported_site(imported: &Path, images: &Path, flags: &[&str]) -> (Site, Tenant) {
    let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut site = Site::start_with(imported, images, &flags).await.unwrap();
    let tenant = Tenant::create(&site, "acme").await.unwrap();
    let archive = Archive::export(&mut site.lab, images, &tenant.name, Firmware::Bios);
    assert_eq!(block_in_place(|| archive.unwrap().import(&site.server)).unwrap(), IMAGE);
    (site, tenant)
}

/// Returns the output of a command of the site's operator.
fn output(site: &Site, line: &[&str]) -> String {
    let output = site.server.cli().args(line).output().unwrap();
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Provisions a machine, installs it again with the system `again`, and takes it back.
async fn provision_and_give_back(again: System) {
    let flags = [&BOOT_TIMEOUTS[..], &[CHAIN_IPXE]].concat();
    let images = images_of(again).unwrap();
    let imported = tempfile::tempdir().unwrap();
    let (mut site, tenant) = imported_site(imported.path(), &images, &flags).await;
    let (id, machine, instance) = provision(&site, &tenant).await;
    site.server.flags.retain(|flag| flag != CHAIN_IPXE);
    site.server.osie = osie().unwrap();
    block_in_place(|| site.restart_server()).unwrap();
    installed_again::install_again(&site, &id, &machine, &instance, again).await;
    given_back::give_back(&site, &id, &machine, &instance).await;
    assert!(!site.hypervisor.is_on(&machine).unwrap(), "powered off through its BMC");
    let image = image(&site.server.files, Firmware::Bios).unwrap();
    assert!(reads_as_zeroes(&machine.disk, image.raw_length).unwrap(), "wiped");

    // The machine is off: another host uses its address.
    let stand_in = Client::new(&site.lab, 9, &machine.mac).unwrap();
    stand_in.configure(&machine.address).unwrap();
    let metadata = |path: &str| {
        let url = format!("http://169.254.169.254/latest/{path}");
        stand_in.get(&machine.address, &url).unwrap()
    };
    assert_eq!(metadata("user-data"), (404, String::new()));
    assert_eq!(
        metadata("meta-data/instance-id"),
        (404, String::new()),
        "no metadata for a free machine"
    );
    drop(stand_in);

    let second = order(&site, &tenant, &machine).await;
    site.operator
        .wait_for_state(&second.id, State::Provisioning, ACTIVE_TIMEOUT, |_| {})
        .await
        .unwrap();
}
