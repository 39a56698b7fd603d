//! Boots of real firmware up to the local disk: HTTP boot, chainloaded iPXE, custom scripts, another DHCP server.
//!
//! With another DHCP server a machine requests its script even if it is to boot its disk; our DHCP would refuse it earlier.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use rack::bare::{DISK_BOOTS, NetworkBoot, machine};
use rack::client::Client;
use rack::lab::{Lab, wait};
use rack::machines::{Firmware, Machine};
use rack::provision::{Operator, record};
use rack::server::{CHAIN_IPXE, Server};
use tinwright::hardware::v1::netboot::LocalBoot;
use tinwright::hardware::v1::{Hardware, Ipxe, Netboot};
use tinwright::netboot::v1::Boot;
use tinwright::netboot::v1::BootEventKind::{
    self, BinaryServed, DhcpAck, DhcpDiscover, GateRefused, ScriptServed, Started,
};

/// Maximum time until a machine has booted its disk.
const BOOT_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Maximum time until events are stored; they are written once per second.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason in events of machines whose record disables DHCP.
const DHCP_DISABLED_REASON: &str = "its record leaves it to another server";

/// Custom scripts: the first chains to the second.
const SCRIPTS: [(&str, &str); 2] = [
    ("first.ipxe", "#!ipxe\necho RACK the first script\nchain second.ipxe\n"),
    ("second.ipxe", "#!ipxe\necho RACK the second script\n"),
];

/// A server and one machine.
struct Fixture {
    lab: Lab,
    operator: Operator,
    machine: Machine,
    hardware: String,
}

impl Fixture {
    /// Starts a server that boots machines without an instance from disk.
    async fn new(firmware: Firmware) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "run this as root: it creates network namespaces"
        );
        let mut lab = Lab::new().unwrap();
        let files = lab.path("files");
        std::fs::create_dir(&files).unwrap();
        for (name, text) in SCRIPTS {
            std::fs::write(files.join(name), text).unwrap();
        }
        let mut server = Server::new(&lab, &files, &files).unwrap();
        server.flags = ["--boot-no-instance", "local-disk", CHAIN_IPXE].map(str::to_owned).into();
        server.start(&mut lab).unwrap();
        let operator = Operator::new(server.channel().await.unwrap());
        let machine = machine(&lab, 1, firmware).unwrap();
        Self { lab, operator, machine, hardware: String::new() }
    }

    /// Creates the machine's record, changed by `change`, and runs the machine until it has booted its disk.
    async fn boot(mut self, method: NetworkBoot, change: impl FnOnce(&mut Hardware)) -> Self {
        let mut hardware = record(&self.machine);
        change(&mut hardware);
        self.hardware = self.operator.create_hardware(hardware).await.unwrap();
        self.machine.power_on(&mut self.lab, method).unwrap();
        let name = &self.machine.name;
        let ended = wait("the machine's end", BOOT_TIMEOUT, || {
            self.lab.has_ended(name).unwrap().then_some(())
        });
        let console = self.console();
        assert!(ended.is_ok(), "{ended:?}: {console}\n{}", self.lab.log("tinwright"));
        self
    }

    fn console(&self) -> String {
        self.machine.console(&self.lab)
    }

    /// Checks that the console contains `marks` in this order, and then the line of the disk.
    fn check_console(&self, marks: &[&str]) {
        let console = self.console();
        let mut rest = console.as_str();
        for mark in marks.iter().chain([&DISK_BOOTS]) {
            let found = rest.split_once(mark);
            rest = found.unwrap_or_else(|| panic!("no {mark:?} in: {console}")).1;
        }
    }

    /// Checks the events of the machine's first boot; repeated events, of repeated requests, count once.
    async fn check_events(&self, events: &[(BootEventKind, &str)]) {
        let until = Instant::now() + EVENTS_TIMEOUT;
        loop {
            let boots = self.operator.boots(&self.hardware).await.unwrap();
            let recorded = first_boot_events(&boots);
            if recorded.len() >= events.len() || Instant::now() > until {
                return assert_eq!(recorded, events, "{boots:#?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns the distinct events of the first boot, in the order of their first occurrence.
fn first_boot_events(boots: &[Boot]) -> Vec<(BootEventKind, &str)> {
    let mut events = Vec::new();
    for event in boots.iter().take(1).flat_map(|boot| &boot.events) {
        let event = (event.kind(), event.detail.as_str());
        if !events.contains(&event) {
            events.push(event);
        }
    }
    events
}

/// Starts another DHCP server, which assigns the address of `machine` and names our boot files (docs/site.md, "Beside another
/// DHCP server").
fn dnsmasq(lab: &mut Lab, machine: &Machine) -> Client {
    let client = Client::new(lab, 9, "52:54:00:00:02:09").unwrap();
    client.ip("addr add 198.51.100.2/24 dev eth0").unwrap();
    let mut command = client.command("dnsmasq");
    command.args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root"]);
    command.args(["--interface=eth0", "--bind-interfaces", "--pid-file=", "--no-ping"]);
    command.args(["--log-dhcp", "--dhcp-range=198.51.100.0,static,255.255.255.0,1h"]);
    command.arg(format!("--dhcp-leasefile={}", lab.path("leases").display()));
    command.arg(format!("--dhcp-host={},{}", machine.mac, machine.address));
    command.args([
        "--dhcp-match=set:ipxe,175",
        "--dhcp-match=set:bios,option:client-arch,0",
        "--dhcp-match=set:efi64,option:client-arch,7",
        "--dhcp-boot=tag:ipxe,http://198.51.100.1:7080/auto.ipxe,,198.51.100.1",
        "--dhcp-boot=tag:!ipxe,tag:bios,undionly.kpxe,,198.51.100.1",
        "--dhcp-boot=tag:!ipxe,tag:efi64,snponly.efi,,198.51.100.1",
        // After PXE the firmware tries HTTP boot, which is refused with a file that does not exist, as our DHCP does.
        "--dhcp-match=set:http64,option:client-arch,16",
        "--dhcp-option-force=tag:http64,60,HTTPClient",
        "--dhcp-boot=tag:!ipxe,tag:http64,http://198.51.100.1:7080/netboot-not-allowed",
    ]);
    lab.start("dnsmasq", &mut command).unwrap();
    client
}

/// Returns the network boot settings of the record's first interface.
fn netboot(hardware: &mut Hardware) -> &mut Netboot {
    hardware.interfaces[0].netboot.as_mut().unwrap()
}

/// Disables our DHCP for the record's first interface.
fn disable_dhcp(hardware: &mut Hardware) {
    hardware.interfaces[0].dhcp.as_mut().unwrap().disabled = true;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipxe_in_a_rom_chainloads_our_ipxe_which_runs_a_script_that_chains_to_another() {
    let url = "http://198.51.100.1:7080/files/first.ipxe".to_owned();
    let custom = Ipxe { url, ..Default::default() };
    let fixture = Fixture::new(Firmware::Bios).await;
    let fixture =
        fixture.boot(NetworkBoot::Pxe, |hardware| netboot(hardware).ipxe = Some(custom)).await;
    let disk = "Booting from Hard Disk";
    fixture.check_console(&[
        "undionly.kpxe",
        "RACK the first script",
        "RACK the second script",
        disk,
    ]);
    fixture
        .check_events(&[
            (DhcpDiscover, "iPXE"),
            (DhcpAck, "iPXE, file undionly.kpxe"),
            (BinaryServed, "undionly.kpxe"),
            (DhcpAck, "iPXE, file http://198.51.100.1:7080/52-54-00-00-01-01/auto.ipxe"),
            (ScriptServed, "custom"),
            (Started, ""),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_boot_loads_our_ipxe_which_runs_the_script_in_the_record() {
    let contents = "#!ipxe\necho RACK the script of ${net0/ip}\n".to_owned();
    let custom = Ipxe { contents, ..Default::default() };
    let fixture = Fixture::new(Firmware::Uefi).await;
    let fixture =
        fixture.boot(NetworkBoot::Http, |hardware| netboot(hardware).ipxe = Some(custom)).await;
    fixture.check_console(&["UEFI HTTPv4", "RACK the script of 198.51.100.11", "failed to start"]);
    fixture
        .check_events(&[
            (DhcpDiscover, "HTTP boot"),
            (
                DhcpAck,
                "HTTP boot, file http://198.51.100.1:7080/ipxe/52-54-00-00-01-01/snponly.efi",
            ),
            (BinaryServed, "snponly.efi"),
            (DhcpDiscover, "iPXE"),
            (DhcpAck, "iPXE, file http://198.51.100.1:7080/52-54-00-00-01-01/auto.ipxe"),
            (ScriptServed, "custom"),
            (Started, ""),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_disk_script_lets_a_bios_boot_its_next_device() {
    let mut fixture = Fixture::new(Firmware::Bios).await;
    let _other = dnsmasq(&mut fixture.lab, &fixture.machine);
    let fixture = fixture.boot(NetworkBoot::Pxe, disable_dhcp).await;
    fixture.check_console(&["/auto.ipxe", "Booting from Hard Disk"]);
    let events =
        [(DhcpDiscover, "iPXE"), (GateRefused, DHCP_DISABLED_REASON), (ScriptServed, "local_disk")];
    fixture.check_events(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sanboot_script_boots_the_disk_of_a_bios_machine() {
    let mut fixture = Fixture::new(Firmware::Bios).await;
    let _other = dnsmasq(&mut fixture.lab, &fixture.machine);
    let change = |hardware: &mut Hardware| {
        disable_dhcp(hardware);
        netboot(hardware).set_local_boot(LocalBoot::Sanboot);
    };
    let fixture = fixture.boot(NetworkBoot::Pxe, change).await;
    // The disk's line may overtake iPXE's last lines on the serial port.
    fixture.check_console(&["/auto.ipxe", "Booting from SAN device"]);
    assert!(
        !fixture.console().contains("Booting from Hard Disk"),
        "the firmware booted the disk, not iPXE"
    );
    let events =
        [(DhcpDiscover, "iPXE"), (GateRefused, DHCP_DISABLED_REASON), (ScriptServed, "local_disk")];
    fixture.check_events(&events).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "two minutes: the firmware tries PXE and HTTP"]
async fn the_local_disk_script_lets_uefi_boot_its_next_device() {
    let mut fixture = Fixture::new(Firmware::Uefi).await;
    let _other = dnsmasq(&mut fixture.lab, &fixture.machine);
    let fixture = fixture.boot(NetworkBoot::Pxe, disable_dhcp).await;
    fixture.check_console(&["UEFI PXEv4", "/auto.ipxe", "failed to start"]);
    fixture
        .check_events(&[
            (DhcpDiscover, "PXE"),
            (GateRefused, DHCP_DISABLED_REASON),
            (BinaryServed, "snponly.efi"),
            (DhcpDiscover, "iPXE"),
            (ScriptServed, "local_disk"),
        ])
        .await;
}
