//! A platform takes an enrolled and accepted machine that is off, by the infrastructure abstraction layer and by nothing else, to its own system,
//! and gives it back erased. Before and after, the boot gate refuses the platform's files to the right and to a wrong machine.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use rack::SERVER;
use rack::client::Client as Host;
use rack::lab::wait;
use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::platform::{Client as Platform, SCRIPT_NAME, write_system};
use rack::provision::images;
use rack::server::osie;
use rack::site::Site;
use serde_json::Value;
use tinwright::hardware::v1::{Hardware, State as HardwareState};
use tinwright::instance::v1::State;
use tokio::task::block_in_place;

/// Maximum time until a step of the server or of the machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Interval between two requests for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The network of the machines, which leases other addresses than it grants.
const CONFIG: &str = "
[[subnets]]
network = '198.51.100.0/24'
gateway = '198.51.100.1'
ranges = ['198.51.100.100-198.51.100.150']
unknown = 'enrol'
";
/// The name of that network, which the server makes.
const SUBNET: &str = "config-198-51-100-0-24";
/// Addresses that are granted. The lowest is the machine's.
const GRANTED: &str = "198.51.100.160-198.51.100.167";
const MACHINE_ADDRESS: &str = "198.51.100.160";
/// The address and the MAC of a machine that is not the platform's.
const WRONG_ADDRESS: &str = "198.51.100.170";
const WRONG_MAC: &str = "52:54:00:00:02:01";
/// The least that the platform's nodes need: 4 GiB of memory, and 45 GB of disks. Most of these cannot be written, and so are not wiped.
const MEMORY_MIB: u64 = 4096;
const READ_ONLY_GIB: u64 = 42;
/// The models of the rack.
const MODEL: &str = "
name: node
constraints: {architecture: x86_64, cores: {min: 1, max: 1}}
";
const HUB: &str = "66b1f0c2a9d34e5b7c081f2a";
const SECRET: &str = "w0Jt-RkQ2mZ8-of-the-rack";
/// The bytes at the beginning of the disk to which the platform's system writes.
const WRITTEN_BYTES: u64 = 4 << 20;

/// A rack with a machine of the platform's model, enrolled, accepted and off.
struct Rack {
    machine: Machine,
    hardware: Hardware,
    site: Site,
    _configuration: tempfile::NamedTempFile,
    _files: tempfile::TempDir,
}

impl Rack {
    async fn start() -> Self {
        let configuration = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(configuration.path(), CONFIG).unwrap();
        let (osie, files) = (osie().unwrap(), tempfile::tempdir().unwrap());
        write_system(&osie, files.path()).unwrap();
        let paths = [configuration.path(), files.path()].map(|path| path.display().to_string());
        let flags = ["--config", &paths[0], "--boot-platform-files", &paths[1]].map(str::to_owned);
        let site = Site::start_with(&osie, &images().unwrap(), &flags).await.unwrap();
        let machine = Machine::new(&site.lab, 1, Firmware::Bios).unwrap();
        let machine = machine.with_memory_mib(MEMORY_MIB);
        let machine = machine.with_read_only_disk(&site.lab, READ_ONLY_GIB).unwrap();
        let hardware = enrol(&site, &machine).await;
        let rack = Self { machine, hardware, site, _configuration: configuration, _files: files };
        rack.configure();
        rack
    }

    /// Accepts the machine, and configures location, addresses, and the platform's credential. Nothing is configured later.
    fn configure(&self) {
        let lab = &self.site.lab;
        let model = lab.path("model.yaml");
        std::fs::write(&model, MODEL).unwrap();
        let fields = lab.path("fields.yaml");
        std::fs::write(&fields, format!("client_id: acme-metal\nsecret: {SECRET}\n")).unwrap();
        let script = format!("/platform/{SCRIPT_NAME}");
        let name = self.hardware.name.as_str();
        for line in [
            &["model", "create", "-f", model.to_str().unwrap()][..],
            &["location", "create", "kir1", "--boot-url", &script, "--zone", "a"],
            &["hardware", "accept", name],
            &["hardware", "set-location", name, "--location", "kir1", "--zone", "a"],
            &["range", "create", "nodes", GRANTED, "--subnet", SUBNET],
            &["address", "binding", "create", "kir1", "--range", "nodes"],
            &["tenant", "create", "acme"],
            &["identity", "credential", "create", "--role", "operator", "--tenant", "acme"]
                .into_iter()
                .chain(["--hub", HUB, "--location", "kir1"])
                .chain(["--fields-file", fields.to_str().unwrap()])
                .collect::<Vec<_>>(),
        ] {
            self.tinwright(line);
        }
    }

    /// Runs the `tinwright` command.
    fn tinwright(&self, line: &[&str]) {
        let output = self.site.server.cli().args(line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line:?}: {error}");
    }

    /// Starts the platform's client with the credential.
    fn platform(&self) -> Platform {
        let credentials = self.site.lab.path("auth.json");
        let auth = serde_json::json!({
            "client_id": "acme-metal",
            "secret": SECRET,
            "cycle": {"hub_name": "Acme", "hub_id": HUB},
        });
        std::fs::write(&credentials, auth.to_string()).unwrap();
        let authority = self.site.server.data.join("secrets/ca.pem");
        let url = "https://127.0.0.1:8080/";
        Platform::start(&self.site.lab, url, &authority, &credentials).unwrap()
    }

    /// Requests the platform's script as a host with this MAC and address, with the UUID of the machine. Returns the status.
    ///
    /// The machine itself must not run meanwhile, if it is the one with this MAC.
    fn script_status(&self, number: u8, mac: &str, address: &str) -> u16 {
        let host = Host::new(&self.site.lab, number, mac).unwrap();
        host.configure(address).unwrap();
        let path = format!("platform/{SCRIPT_NAME}?uuid={}", self.machine.uuid);
        let (status, body) = host.get(address, &format!("http://{SERVER}:7080/{path}")).unwrap();
        let is_script = body.contains("#!ipxe");
        assert_eq!(is_script, status == 200, "{status}: {body}");
        assert!(is_script || body.trim_end().lines().count() <= 1, "{status}: {body}");
        status
    }

    /// Checks that the platform's script is served to no machine, not even to the right one, which is off.
    fn check_gate_is_closed(&self) {
        assert_eq!(self.script_status(1, &self.machine.mac, MACHINE_ADDRESS), 403);
        self.check_gate_is_closed_for_others();
    }

    fn check_gate_is_closed_for_others(&self) {
        assert_eq!(self.script_status(2, WRONG_MAC, WRONG_ADDRESS), 403);
    }

    /// Returns the lines that the platform's system has printed on the machine, one for each boot.
    fn boots(&self) -> Vec<String> {
        let console = self.machine.console(&self.site.lab);
        let complete = console.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = complete.filter_map(|line| Some(line[line.find("PLATFORM runs ")?..].trim()));
        lines.map(str::to_owned).collect()
    }

    /// Waits until the platform's system has booted more often than `earlier` times. Returns the line of its last boot.
    fn until_running(&self, earlier: usize) -> String {
        let line = || self.boots().get(earlier..).and_then(<[String]>::last).cloned();
        block_in_place(|| wait("the platform's system", STEP_TIMEOUT, line)).unwrap()
    }

    /// Returns if the beginning of the disk reads as zeroes.
    fn is_erased(&self) -> bool {
        reads_as_zeroes(&self.machine.disk, WRITTEN_BYTES).unwrap()
    }
}

/// Lets `machine` report itself, and waits until it has switched itself off. Gives its record a BMC.
async fn enrol(site: &Site, machine: &Machine) -> Hardware {
    site.hypervisor.define(&site.lab, machine).unwrap();
    site.hypervisor.power_on(machine).unwrap();
    let polling = async {
        loop {
            let enrolled = site.operator.enrolled().await.unwrap();
            if let Some(found) = enrolled.into_iter().find(|it| it.inventory.is_some()) {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let found = tokio::time::timeout(STEP_TIMEOUT, polling).await;
    let found = found.unwrap_or_else(|_| panic!("not enrolled: {}", machine.console(&site.lab)));
    machine.assert_inventory(found.inventory.as_deref().unwrap());
    let is_off = || (!site.hypervisor.is_on(machine).unwrap()).then_some(());
    block_in_place(|| wait("the machine to switch itself off", STEP_TIMEOUT, is_off)).unwrap();
    site.operator.create_bmc(&found.id, machine, &site.redfish).await.unwrap();
    found
}

/// Returns the result of a step of the platform's client.
fn result(platform: &mut Platform, step: &str) -> Value {
    let line = block_in_place(|| platform.step(step)).unwrap();
    let mut line: Value = serde_json::from_str(&line).unwrap();
    line["result"].take()
}

/// Returns the word after `key=` in a line of the console.
fn word<'a>(line: &'a str, key: &str) -> &'a str {
    let words = line.split(' ').filter_map(|word| word.split_once('='));
    words.filter(|(name, _)| *name == key).map(|(_, value)| value).next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_takes_a_machine_to_its_own_system_and_gives_it_back_erased() {
    let rack = Rack::start().await;
    let Rack { site, machine, hardware, .. } = &rack;
    rack.check_gate_is_closed();

    let mut platform = rack.platform();
    for step in ["verify", "verify-wrong", "locations", "models", "configure"] {
        result(&mut platform, step);
    }
    assert!(!site.hypervisor.is_on(machine).unwrap(), "off until it is ordered");
    let server = result(&mut platform, "provision")["server_id"].as_str().unwrap().to_owned();
    let status = result(&mut platform, "status");
    assert_eq!(status["auth"]["uuid"], machine.uuid.as_str());
    assert_eq!(status["auth"]["mac_addr"], machine.mac.as_str());
    assert_eq!(status["auth"]["initial_ips"], serde_json::json!([MACHINE_ADDRESS]));

    let first = rack.until_running(0);
    let values = ["id", "host", "ip", "uuid"].map(|key| word(&first, key));
    let address = format!("{MACHINE_ADDRESS}/24");
    assert_eq!(values, [&server, "edge-1.example.net", &address, &machine.uuid]);
    let print_state = |it: &tinwright::instance::v1::Instance| {
        println!("{} {}", it.state().word(), it.state_reason);
    };
    let operator = &site.operator;
    operator.wait_for_state(&server, State::Active, STEP_TIMEOUT, print_state).await.unwrap();
    rack.check_gate_is_closed_for_others();

    result(&mut platform, "allocate");
    let earlier = rack.boots().len();
    result(&mut platform, "restart");
    let second = rack.until_running(earlier);
    assert_ne!(word(&first, "boot"), word(&second, "boot"), "another boot");
    for step in ["refuse-decommission", "release"] {
        result(&mut platform, step);
    }
    assert!(!rack.is_erased(), "the platform has written to it");

    // A host takes the place of the machine, which does nothing meanwhile.
    site.hypervisor.suspend(machine).unwrap();
    assert_eq!(rack.script_status(1, &machine.mac, MACHINE_ADDRESS), 200, "a gate that is open");
    result(&mut platform, "decommission");
    rack.check_gate_is_closed();
    result(&mut platform, "gone");
    platform.finish().unwrap();

    operator.wait_for_state(&server, State::Deleted, STEP_TIMEOUT, print_state).await.unwrap();
    assert!(rack.is_erased());
    let off = || (!site.hypervisor.is_on(machine).unwrap()).then_some(());
    block_in_place(|| wait("the machine to be off", STEP_TIMEOUT, off)).unwrap();
    let free = operator.hardware(&hardware.id).await.unwrap();
    assert_eq!(free.state(), HardwareState::Provisionable);
    rack.check_gate_is_closed();
    assert!(!site.lab.log("tinwright").contains(SECRET), "secrets are not logged");
}
