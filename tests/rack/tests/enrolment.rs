//! Machines that nobody has described are plugged into a network that enrols. Their records are what the hypervisor gave them; they are accepted,
//! and an instance that was ordered by model and location becomes active on one of them, on the disk that a hint finds. No MAC is typed.
#![allow(clippy::unwrap_used, missing_docs)]

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rack::lab::wait;
use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{System, image_of, images_of, instance};
use rack::server::osie;
use rack::site::Site;
use rack::switch::Switch;
use tinwright::event::v1::EventKind;
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
/// Sizes of the SCSI disks of each machine, in GiB, and if they are SSDs.
const DISKS: [(u64, bool); 3] = [(4, true), (3, false), (5, true)];

/// A running rack with a switch that announces itself.
struct Rack {
    // Dropped before the namespace, which is the site's.
    _switch: Switch,
    site: Site,
    _configuration: tempfile::NamedTempFile,
}

impl Rack {
    async fn start() -> Self {
        let configuration = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(configuration.path(), CONFIG).unwrap();
        let flags = ["--config".to_owned(), configuration.path().display().to_string()];
        let images = images_of(System::Light).unwrap();
        let site = Site::start_with(&osie().unwrap(), &images, &flags).await.unwrap();
        let switch = Switch::start(&site.lab).unwrap();
        Self { _switch: switch, site, _configuration: configuration }
    }

    /// Returns machine `number`, switched off.
    fn machine(&self, number: u8) -> Machine {
        let mut machine = Machine::new(&self.site.lab, number, Firmware::Uefi).unwrap();
        for (gib, is_ssd) in DISKS {
            machine = machine.with_scsi_disk(&self.site.lab, gib, is_ssd).unwrap();
        }
        machine
    }

    /// Runs the `tinwright` command.
    fn tinwright(&self, line: &[&str]) {
        let output = self.site.server.cli().args(line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line:?}: {error}");
    }

    /// Enrols `machine` by the address and the password of its BMC.
    fn enrol_by_bmc(&self, machine: &Machine) {
        let url = format!("{}/redfish/v1/Systems/{}", self.site.redfish.url, machine.uuid);
        let password = self.site.lab.path("password");
        std::fs::write(&password, "unused\n").unwrap();
        let access = ["--username", "admin", "--password-file", password.to_str().unwrap()];
        let line = ["hardware", "enrol", "--bmc", &url, "--name", &machine.name];
        self.tinwright(&[&line[..], &access].concat());
    }

    /// Waits until the machine has a record with its own inventory and its neighbour, and checks both.
    async fn enrolled(&self, machine: &Machine) -> Hardware {
        let is_complete = |found: &Hardware| {
            let inventory = found.inventory.as_deref();
            inventory.is_some_and(|own| {
                own.uuid == machine.uuid
                    && own.interfaces.iter().all(|it| it.lldp_neighbour.is_some())
            })
        };
        let polling = async {
            loop {
                let enrolled = self.site.operator.enrolled().await.unwrap();
                if let Some(found) = enrolled.into_iter().find(is_complete) {
                    return found;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let found = tokio::time::timeout(STEP_TIMEOUT, polling).await;
        let found =
            found.unwrap_or_else(|_| panic!("not enrolled: {}", machine.console(&self.site.lab)));
        let inventory = found.inventory.as_deref().unwrap();
        machine.assert_inventory(inventory);
        assert_eq!(inventory.interfaces[0].lldp_neighbour, Some(Switch::neighbour()));
        println!("{} is enrolled as {:?}", machine.name, found.name);
        found
    }

    /// Waits until `machine`, which got its record by its own report, has switched itself off.
    fn until_off(&self, machine: &Machine) {
        let is_off = || (!self.site.hypervisor.is_on(machine).unwrap()).then_some(());
        block_in_place(|| wait("the machine to switch itself off", STEP_TIMEOUT, is_off)).unwrap();
    }

    /// Describes the model and the location.
    fn describe_models(&self) {
        let model = self.site.lab.path("model.yaml");
        std::fs::write(&model, MODEL).unwrap();
        self.tinwright(&["model", "create", "-f", model.to_str().unwrap()]);
        self.tinwright(&["location", "create", "kir1"]);
    }

    /// Accepts the machine with the record `hardware`, and describes where it stands.
    async fn accept(&self, hardware: &Hardware) {
        self.tinwright(&["hardware", "accept", &hardware.name]);
        self.tinwright(&["hardware", "set-location", &hardware.name, "--location", "kir1"]);
        let accepted = self.site.operator.hardware(&hardware.id).await.unwrap();
        assert_eq!(accepted.state(), HardwareState::Provisionable);
    }

    /// Orders an instance by model and location. Without a hint, that of the machine's record counts.
    async fn order(&self, root_disk: Option<DiskHint>) -> Instance {
        let operator = &self.site.operator;
        let template = operator.create_template_named("hinted", "{{ .disk }}").await.unwrap();
        let image = image_of(System::Light, &self.site.server.files, Firmware::Uefi).unwrap();
        let (model_id, location_id) = ("small".into(), "kir1".into());
        let placement = Placement { model_id, location_id, ..Placement::default() };
        let ordered = Instance {
            placement: Some(Box::new(placement)),
            root_disk: root_disk.map(Box::new),
            ..instance(&template, "ordered", &image)
        };
        operator.order(ordered).await.unwrap()
    }

    /// Waits until the instance `id` is active and its system runs on `machine`. Checks that only the SCSI disk at `place` was written.
    async fn until_installed(&self, id: &str, machine: &Machine, place: usize) {
        let print_state = |it: &Instance| println!("{} {}", it.state().word(), it.state_reason);
        let active =
            self.site.operator.wait_for_state(id, State::Active, STEP_TIMEOUT, print_state);
        active.await.unwrap();
        let line = format!("RACK id={id} ");
        let has_started = || machine.console(&self.site.lab).contains(&line).then_some(());
        block_in_place(|| wait("the installed system", STEP_TIMEOUT, has_started)).unwrap();
        let is_written = |file| !reads_as_zeroes(file, u64::MAX).unwrap();
        let disks = machine.scsi_disks.iter().map(|disk| &*disk.file).chain([&*machine.disk]);
        let expected: Vec<_> = (0..=machine.scsi_disks.len()).map(|disk| disk == place).collect();
        assert_eq!(disks.map(is_written).collect::<Vec<_>>(), expected);
    }
}

/// True if nothing was ever written to the disks of `machine`.
fn is_untouched(machine: &Machine) -> bool {
    let mut disks = machine.scsi_disks.iter().map(|disk| &disk.file).chain([&machine.disk]);
    disks.all(|file| file.metadata().unwrap().blocks() == 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_unknown_machines_enrol_and_an_instance_ordered_by_model_is_on_the_disk_with_the_wwn() {
    /// The disk that the hints name, neither the smallest nor the largest of all, and one that is exchanged.
    const HINTED: usize = 2;
    const EXCHANGED: usize = 0;
    let rack = Rack::start().await;
    let (unknown, by_bmc) = (rack.machine(1).with_tpm(), rack.machine(2));
    for machine in [&unknown, &by_bmc] {
        rack.site.hypervisor.define(&rack.site.lab, machine).unwrap();
    }
    rack.site.hypervisor.power_on(&unknown).unwrap();
    rack.enrol_by_bmc(&by_bmc);
    let records = [rack.enrolled(&unknown).await, rack.enrolled(&by_bmc).await];
    rack.until_off(&unknown);
    // It waits for work: its record lets it boot the environment without a workflow.
    rack.site.hypervisor.power_off(&by_bmc).unwrap();

    rack.site.operator.create_bmc(&records[0].id, &unknown, &rack.site.redfish).await.unwrap();
    rack.describe_models();
    let mut taken_out = Vec::new();
    let mut machines = [unknown, by_bmc];
    for (machine, record) in machines.iter_mut().zip(&records) {
        rack.accept(record).await;
        let hint = format!("wwn=0x{}", machine.scsi_disks[HINTED].wwn);
        rack.tinwright(&["hardware", "update", &record.name, "--root-disk", &hint]);
        taken_out.push(machine.exchange_disk(&rack.site.lab, EXCHANGED).unwrap());
        rack.site.hypervisor.define(&rack.site.lab, machine).unwrap();
    }

    let ordered = rack.order(None).await;
    let chosen = records.iter().position(|record| record.id == ordered.hardware_id).unwrap();
    println!("{} is chosen", machines[chosen].name);
    rack.until_installed(&ordered.id, &machines[chosen], HINTED).await;
    assert!(is_untouched(&machines[1 - chosen]));

    let reports = rack.site.operator.events(&ordered.hardware_id, EventKind::Report).await.unwrap();
    let texts: Vec<_> = reports.iter().map(|report| report.text.as_str()).collect();
    let gone = format!("disk with serial {} is gone", taken_out[chosen].serial);
    let new = format!("disk with serial {} is new", machines[chosen].scsi_disks[EXCHANGED].serial);
    let names_both = |text: &&str| text.contains(&gone) && text.contains(&new);
    assert_eq!(texts.iter().copied().filter(names_both).count(), 1, "{texts:?}");
    let record = rack.site.operator.hardware(&ordered.hardware_id).await.unwrap();
    machines[chosen].assert_inventory(record.inventory.as_deref().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "one more installation, for the long tests"]
async fn an_instance_ordered_for_the_smallest_ssd_is_on_that_one_of_three_disks() {
    let rack = Rack::start().await;
    let machine = rack.machine(1);
    rack.site.hypervisor.define(&rack.site.lab, &machine).unwrap();
    rack.site.hypervisor.power_on(&machine).unwrap();
    let hardware = rack.enrolled(&machine).await;
    rack.until_off(&machine);
    rack.site.operator.create_bmc(&hardware.id, &machine, &rack.site.redfish).await.unwrap();
    rack.describe_models();
    rack.accept(&hardware).await;
    let hint = DiskHint {
        medium: DiskMedium::Ssd.into(),
        choose: Choose::Smallest.into(),
        ..DiskHint::default()
    };
    let ordered = rack.order(Some(hint)).await;
    assert_eq!(ordered.hardware_id, hardware.id);
    rack.until_installed(&ordered.id, &machine, 0).await;
}
