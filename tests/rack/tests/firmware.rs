//! Roads that firmware takes to a script and away from it: HTTP boot, loaders after loaders, scripts that are not ours, and the
//! disk in the end.
//!
//! Where DHCP is somebody else's, a machine asks for its script although it is its disk's turn; ours refuses it before.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use rack::bare::{DISK_BOOTS, Way, machine};
use rack::client::Client;
use rack::lab::{Lab, wait};
use rack::machines::{Firmware, Machine};
use rack::provision::{Operator, record};
use rack::server::Server;
use tinwright::hardware::v1::netboot::LocalBoot;
use tinwright::hardware::v1::{Hardware, Ipxe, Netboot};
use tinwright::netboot::v1::Boot;
use tinwright::netboot::v1::BootEventKind::{
    self, BinaryServed, DhcpAck, DhcpDiscover, GateRefused, ScriptServed, Started,
};

/// For a machine to boot its disk in the end, beside others on slow processors.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// For events to be kept, which they are once a second.
const KEPT: Duration = Duration::from_secs(30);

/// Why our DHCP does not answer a machine that another server's does.
const THEIRS: &str = "its record leaves it to another server";

/// Scripts on the site's web server: the first goes on to the second.
const SCRIPTS: [(&str, &str); 2] = [
    ("first.ipxe", "#!ipxe\necho RACK the first script\nchain second.ipxe\n"),
    ("second.ipxe", "#!ipxe\necho RACK the second script\n"),
];

/// A machine that has booted its disk, and the server that sent it there.
struct Road {
    lab: Lab,
    operator: Operator,
    machine: Machine,
    hardware: String,
}

impl Road {
    /// A server for which a free machine's turn is its disk, and no machine yet.
    async fn to(firmware: Firmware) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests make network namespaces: run them as root"
        );
        let mut lab = Lab::new().unwrap();
        let files = lab.path("files");
        std::fs::create_dir(&files).unwrap();
        for (name, text) in SCRIPTS {
            std::fs::write(files.join(name), text).unwrap();
        }
        let mut server = Server::new(&lab, &files, &files).unwrap();
        server.flags = ["--boot-no-instance", "local-disk"].map(str::to_owned).into();
        server.start(&mut lab).unwrap();
        let operator = Operator::new(server.channel().await.unwrap());
        let machine = machine(&lab, 1, firmware).unwrap();
        Self { lab, operator, machine, hardware: String::new() }
    }

    /// Racks the machine, whose record says this beside the usual, and lets it run to its end.
    async fn taken(mut self, way: Way, say: impl FnOnce(&mut Hardware)) -> Self {
        let mut hardware = record(&self.machine);
        say(&mut hardware);
        self.hardware = self.operator.add(hardware).await.unwrap();
        self.machine.power_on(&mut self.lab, way).unwrap();
        let name = &self.machine.name;
        let ended = wait("its end", PATIENCE, || self.lab.has_ended(name).unwrap().then_some(()));
        let console = self.console();
        assert!(ended.is_ok(), "{ended:?}: {console}\n{}", self.lab.log("tinwright"));
        self
    }

    fn console(&self) -> String {
        self.machine.console(&self.lab)
    }

    /// The console has these `marks` one after another, and then the disk's.
    fn shows(&self, marks: &[&str]) {
        let console = self.console();
        let mut rest = console.as_str();
        for mark in marks.iter().chain([&DISK_BOOTS]) {
            let found = rest.split_once(mark);
            rest = found.unwrap_or_else(|| panic!("no {mark:?} in: {console}")).1;
        }
    }

    /// The server tells the machine's first boot as these events; each once, since clients ask again.
    async fn is_told_as(&self, events: &[(BootEventKind, &str)]) {
        let until = Instant::now() + KEPT;
        loop {
            let boots = self.operator.boots(&self.hardware).await.unwrap();
            let told = told(&boots);
            if told.len() >= events.len() || Instant::now() > until {
                return assert_eq!(told, events, "{boots:#?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What is told of the first of `boots`, in the order in which it happened first.
fn told(boots: &[Boot]) -> Vec<(BootEventKind, &str)> {
    let mut told = Vec::new();
    for event in boots.iter().take(1).flat_map(|boot| &boot.events) {
        let event = (event.kind(), event.detail.as_str());
        if !told.contains(&event) {
            told.push(event);
        }
    }
    told
}

/// Another DHCP server, which gives `machine` its address, and sends it to us for everything else (netboot specification,
/// section 15).
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
        // Firmware that has come back from PXE goes on with HTTP: refused, as we do it.
        "--dhcp-match=set:http64,option:client-arch,16",
        "--dhcp-option-force=tag:http64,60,HTTPClient",
        "--dhcp-boot=tag:!ipxe,tag:http64,http://198.51.100.1:7080/netboot-not-allowed",
    ]);
    lab.start("dnsmasq", &mut command).unwrap();
    client
}

/// The record's word on booting from the network.
fn netboot(hardware: &mut Hardware) -> &mut Netboot {
    hardware.interfaces[0].netboot.as_mut().unwrap()
}

/// The record leaves the machine to another DHCP server.
fn elsewhere(hardware: &mut Hardware) {
    hardware.interfaces[0].dhcp.as_mut().unwrap().disabled = true;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipxe_in_a_rom_loads_ours_which_runs_a_script_that_goes_on_to_another() {
    let url = "http://198.51.100.1:7080/files/first.ipxe".to_owned();
    let custom = Ipxe { url, ..Default::default() };
    let road = Road::to(Firmware::Bios).await;
    let road = road.taken(Way::Pxe, |its| netboot(its).ipxe = Some(custom)).await;
    let disk = "Booting from Hard Disk";
    road.shows(&["undionly.kpxe", "RACK the first script", "RACK the second script", disk]);
    road.is_told_as(&[
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
async fn http_boot_loads_ours_which_runs_the_script_in_the_record() {
    let contents = "#!ipxe\necho RACK the script of ${net0/ip}\n".to_owned();
    let custom = Ipxe { contents, ..Default::default() };
    let road = Road::to(Firmware::Uefi).await;
    let road = road.taken(Way::Http, |its| netboot(its).ipxe = Some(custom)).await;
    road.shows(&["UEFI HTTPv4", "RACK the script of 198.51.100.11", "failed to start"]);
    road.is_told_as(&[
        (DhcpDiscover, "HTTP boot"),
        (DhcpAck, "HTTP boot, file http://198.51.100.1:7080/ipxe/52-54-00-00-01-01/snponly.efi"),
        (BinaryServed, "snponly.efi"),
        (DhcpDiscover, "iPXE"),
        (DhcpAck, "iPXE, file http://198.51.100.1:7080/52-54-00-00-01-01/auto.ipxe"),
        (ScriptServed, "custom"),
        (Started, ""),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_leaves_a_bios_machine_to_its_next_boot_device() {
    let mut road = Road::to(Firmware::Bios).await;
    let _other = dnsmasq(&mut road.lab, &road.machine);
    let road = road.taken(Way::Pxe, elsewhere).await;
    road.shows(&["/auto.ipxe", "Booting from Hard Disk"]);
    let told = [(DhcpDiscover, "iPXE"), (GateRefused, THEIRS), (ScriptServed, "local_disk")];
    road.is_told_as(&told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_boots_the_disk_of_a_bios_that_would_come_back_to_the_network() {
    let mut road = Road::to(Firmware::Bios).await;
    let _other = dnsmasq(&mut road.lab, &road.machine);
    let say = |its: &mut Hardware| {
        elsewhere(its);
        netboot(its).set_local_boot(LocalBoot::Sanboot);
    };
    let road = road.taken(Way::Pxe, say).await;
    // The disk's own words may come before the last of iPXE's have left the serial port.
    road.shows(&["/auto.ipxe", "Booting from SAN device"]);
    assert!(!road.console().contains("Booting from Hard Disk"), "firmware did");
    let told = [(DhcpDiscover, "iPXE"), (GateRefused, THEIRS), (ScriptServed, "local_disk")];
    road.is_told_as(&told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_leaves_a_uefi_machine_to_its_next_boot_device() {
    let mut road = Road::to(Firmware::Uefi).await;
    let _other = dnsmasq(&mut road.lab, &road.machine);
    let road = road.taken(Way::Pxe, elsewhere).await;
    road.shows(&["UEFI PXEv4", "/auto.ipxe", "failed to start"]);
    road.is_told_as(&[
        (DhcpDiscover, "PXE"),
        (GateRefused, THEIRS),
        (BinaryServed, "snponly.efi"),
        (DhcpDiscover, "iPXE"),
        (ScriptServed, "local_disk"),
    ])
    .await;
}
