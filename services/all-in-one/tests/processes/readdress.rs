//! An address that is changed on a running machine, and then given to another one. Both machines run real DHCP clients, and
//! request their metadata all the time.

mod listener;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use runtime::Channel;
use rustix::process::Signal;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::metadata::v1::explain_metadata_request::By;
use tinwright::metadata::v1::metadata_service_client::MetadataServiceClient;
use tinwright::metadata::v1::{ExplainMetadataRequest, ExplainMetadataResponse};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use self::listener::{Heard, PATHS};
use super::network::{Network, OURS, Program};
use super::peer::free_port;
use super::process::{Place, Process, arguments, soon};

const MACS: [&str; 2] = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
/// The first address of the first machine, and the later one of the second.
const OLD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 50);
/// The later address of the first machine.
const NEW: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 60);
/// The first address of the second machine.
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 70);
/// A client renews at half of it.
const LEASE: i64 = 12;

/// Sets the interface by the options of the client: dhclient passes them in its environment, udhcpc also in its first argument.
/// Announces the address (RFC 5227 §2.3).
const SET: &str = r#"#!/bin/sh
own=${new_ip_address:-$ip}
case "${reason:-$1}" in
BOUND | RENEW | REBIND | REBOOT | bound | renew)
    if ! ip -4 addr show dev eth0 | grep -q "inet $own/"; then
        ip -4 addr flush dev eth0
        ip addr add "$own/24" dev eth0
    fi
    busybox arping -q -U -c 1 -I eth0 "$own"
    ;;
EXPIRE | FAIL | RELEASE | STOP | deconfig) ip -4 addr flush dev eth0 ;;
esac
exit 0
"#;

/// The site with its two machines, their instances, and the metadata of an instance.
struct Site<'a> {
    network: &'a Network,
    server: Process,
    channel: Channel,
    machines: Vec<String>,
    facts: Vec<[String; PATHS.len()]>,
}

/// A change of a record: the time of the request, and the time at which metadata served it.
#[derive(Clone, Copy, Debug)]
struct Change {
    asked: Instant,
    known: Instant,
}

impl<'a> Site<'a> {
    async fn start(network: &'a Network) -> Self {
        let (api, metadata) = (format!("{OURS}:{}", free_port()), format!("{OURS}:8080"));
        let flags =
            ["--netboot-interface", "br0", "--metadata-listen", &metadata, "--listen", &api];
        let server = Place::new().start(&arguments(&flags)).await;
        let channel = server.channel().await;
        let (machines, facts) = (Vec::new(), Vec::new());
        let mut site = Self { network, server, channel, machines, facts };
        site.occupied(MACS[0], OLD, "alpha").await;
        site.occupied(MACS[1], OTHER, "beta").await;
        site
    }

    /// Creates a machine and an instance on it.
    async fn occupied(&mut self, mac: &str, address: Ipv4Addr, hostname: &str) {
        let lease_time = Some(prost_types::Duration { seconds: LEASE, nanos: 0 });
        let dhcp = hw::Dhcp { address: at(address), lease_time, ..Default::default() };
        let interface = hw::Interface { mac: mac.into(), dhcp: Some(dhcp), ..Default::default() };
        let hardware = hw::Hardware {
            interfaces: vec![interface],
            state: hw::State::Provisionable.into(),
            ..Default::default()
        };
        let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
        let made = self.hardware().create_hardware(request).await.unwrap().into_inner();
        let hardware_id = made.hardware.unwrap().id;
        let script = inst::instance::CustomIpxe {
            contents: "#!ipxe\nshell\n".into(),
            always_pxe: true,
            ..Default::default()
        };
        let userdata = format!("#cloud-config\n# of {hostname}\n");
        let instance = inst::Instance {
            hardware_id: hardware_id.clone(),
            hostname: hostname.into(),
            userdata: userdata.clone(),
            os: Some(inst::instance::Os::CustomIpxe(script)),
            ..Default::default()
        };
        let request =
            inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
        let mut instances = InstanceServiceClient::new(self.channel.clone());
        let made = instances.create_instance(request).await.unwrap().into_inner();
        self.machines.push(hardware_id);
        self.facts.push([made.instance.unwrap().id, userdata, hostname.into()]);
    }

    fn hardware(&self) -> HardwareServiceClient<Channel> {
        HardwareServiceClient::new(self.channel.clone())
    }

    /// Writes `address` into the record of a machine at its present revision.
    async fn write(&self, machine: usize, address: Ipv4Addr) -> Result<i64, Status> {
        let by = Some(hw::get_hardware_request::By::Id(self.machines[machine].clone()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let mut hardware =
            self.hardware().get_hardware(request).await.unwrap().into_inner().hardware.unwrap();
        hardware.interfaces[0].dhcp.as_mut().unwrap().address = at(address);
        let mask = prost_types::FieldMask { paths: vec!["interfaces".into()] };
        let request = hw::UpdateHardwareRequest {
            hardware: Some(hardware),
            update_mask: Some(mask),
            force: true,
        };
        let stored = self.hardware().update_hardware(request).await?.into_inner().hardware;
        Ok(stored.unwrap().revision)
    }

    /// Moves a machine from one address to another, and waits until metadata serves the change. Both addresses change at once.
    async fn readdress(&self, machine: usize, from: Ipv4Addr, to: Ipv4Addr) -> Change {
        let asked = Instant::now();
        self.write(machine, to).await.unwrap();
        let known = async {
            while self.explained(to).await.hardware_id != self.machines[machine] {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(known).await;
        let known = Instant::now();
        assert_eq!(self.explained(from).await.hardware_id, "", "{from} is nobody's");
        Change { asked, known }
    }

    /// Returns the machine that metadata identifies by `address`.
    async fn explained(&self, address: Ipv4Addr) -> ExplainMetadataResponse {
        let by = Some(By::Address(address.to_string()));
        let mut metadata = MetadataServiceClient::new(self.channel.clone());
        let explained = metadata.explain_metadata(ExplainMetadataRequest { by }).await;
        explained.unwrap().into_inner()
    }

    /// Starts a DHCP client on a machine. `SET` and `DIR` in `line` stand for the script and for a directory.
    fn client(&self, machine: usize, line: &str, log: &str) -> Program {
        use std::os::unix::fs::PermissionsExt as _;
        let (set, directory) = (self.server.place.path("set"), self.server.place.path("."));
        std::fs::write(&set, SET).unwrap();
        std::fs::set_permissions(&set, std::fs::Permissions::from_mode(0o755)).unwrap();
        let line = line.replace("SET", &set.display().to_string());
        let line = line.replace("DIR", &directory.display().to_string());
        self.network.start(machine, &line, &self.server.place.path(log))
    }

    /// Returns the output of a client.
    fn output(&self, log: &str) -> String {
        std::fs::read_to_string(self.server.place.path(log)).unwrap()
    }
}

fn at(address: Ipv4Addr) -> Option<hw::Address> {
    let address = address.to_string();
    Some(hw::Address { address, prefix_length: 24, gateway: String::new() })
}

const DHCLIENT: &str = "dhclient -4 -d -v -cf /dev/null -sf SET -lf DIR/leases -pf DIR/pid eth0";
const UDHCPC: &str = "busybox udhcpc -f -i eth0 -t 20 -T 1 -A 1 -s SET";

/// Makes the two changes. The second machine gets the old address after the first one has left it.
async fn one_after_the_other(site: &Site<'_>, heard: &Heard) -> [Change; 3] {
    let _dhclient = site.client(0, DHCLIENT, "dhclient");
    let udhcpc = site.client(1, UDHCPC, "udhcpc");
    let asked = Instant::now();
    soon(heard.all(0, OLD)).await;
    soon(heard.all(1, OTHER)).await;
    let begun = Change { asked, known: Instant::now() };
    let taken = site.write(1, OLD).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists, "{taken}");

    let first = site.readdress(0, OLD, NEW).await;
    soon(heard.all(0, NEW)).await;
    let output = site.output("dhclient");
    let (before, after) = output.split_once("DHCPNAK from 198.51.100.1").expect(&output);
    assert!(before.contains("DHCPACK of 198.51.100.50"), "{output}");
    let (_, after) = after.split_once("DHCPDISCOVER on eth0").expect(&output);
    assert!(after.contains("DHCPACK of 198.51.100.60"), "{output}");

    let second = site.readdress(1, OTHER, OLD).await;
    udhcpc.signal(Signal::USR1); // renews now
    soon(heard.all(1, OLD)).await;
    let output = site.output("udhcpc");
    let (_, after) = output.split_once("received DHCP NAK").expect(&output);
    assert!(after.contains("lease of 198.51.100.50 obtained"), "{output}");
    [begun, first, second]
}

/// Makes both changes while the first machine still has the old address, so that both use it.
async fn both_at_once(site: &Site<'_>, heard: &Heard) -> [Change; 3] {
    let _dhclient = site.client(0, DHCLIENT, "dhclient");
    let udhcpc = site.client(1, UDHCPC, "udhcpc");
    let asked = Instant::now();
    soon(heard.all(0, OLD)).await;
    soon(heard.all(1, OTHER)).await;
    let begun = Change { asked, known: Instant::now() };
    let first = site.readdress(0, OLD, NEW).await;
    let second = site.readdress(1, OTHER, OLD).await;
    udhcpc.signal(Signal::USR1);
    soon(heard.all(1, OLD)).await;
    soon(heard.all(0, NEW)).await;
    [begun, first, second]
}

/// Runs `story` while each machine requests its metadata, and checks all responses.
fn readdress(story: impl AsyncFnOnce(&Site<'_>, &Heard) -> [Change; 3] + Send) -> Heard {
    let (network, heard, stop) = (Network::new(&MACS), Heard::default(), CancellationToken::new());
    std::thread::scope(|listeners| {
        let (network, heard, stop) = (&network, &heard, &stop);
        network.on_site(async move || {
            let site = Site::start(network).await;
            let _ends = stop.clone().drop_guard();
            for machine in 0..MACS.len() {
                let listen = async move || heard.listen(machine, stop).await;
                listeners.spawn(move || network.on(machine, listen));
            }
            let [begun, first, second] = story(&site, heard).await;
            // Shown if a check below fails.
            println!("{:?}\n{begun:?}\n{first:?}\n{second:?}", site.facts);
            println!("dhclient:\n{}\nudhcpc:\n{}", site.output("dhclient"), site.output("udhcpc"));
            heard.is(0, OLD, &site.facts[0], begun, Some(first));
            heard.is(0, NEW, &site.facts[0], first, None);
            heard.is(1, OTHER, &site.facts[1], begun, Some(second));
            heard.is(1, OLD, &site.facts[1], second, None);
            for (machine, source, change) in [(0, NEW, first), (1, OLD, second)] {
                let (known, all) = (change.known - change.asked, heard.within(machine, source));
                println!("{source}: known to metadata {known:?} after it was written, all received {all:?} after it was taken");
            }
            heard.nothing(0, OTHER);
            heard.nothing(1, NEW);
        });
    });
    heard
}

#[test]
fn an_address_that_changes_hands_tells_nobody_of_the_machine_that_had_it() {
    // On a busy host it may make no request in the time in which it has an address that is nobody's.
    let is_nobody = (0..3).any(|_| readdress(one_after_the_other).statuses(0, OLD).contains(&404));
    assert!(is_nobody, "while it still had the address");
}

#[test]
fn an_address_that_two_machines_have_at_once_tells_each_of_itself_or_of_nobody() {
    readdress(both_at_once);
}
