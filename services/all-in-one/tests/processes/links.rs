//! Machines on two links of one process, and metadata for those with leased addresses.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::netboot::v1::DeleteLeaseRequest;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;

use super::peer::free_port;
use super::process::{Place, Process, arguments, soon};

/// The machine on the first link: its record has no address.
const LENT: &str = "52:54:00:00:00:01";
/// The machine on the second link: its record has 192.0.2.50.
const RESERVED: &str = "52:54:00:00:00:02";
/// A machine without a record.
const UNKNOWN: &str = "52:54:00:00:00:99";

const CONFIG: &str = "
metadata_listen = ['0.0.0.0:8080']
syslog = false

[dhcp]
boot_lease = 300

[[links]]
interface = 'v0'

[[links]]
interface = 'v1'
http_port = 7081
ra_assist = false
[links.dhcp]
domain = 'second.example'

[[subnets]]
network = '198.51.100.0/24'
ranges = ['198.51.100.100-198.51.100.120']
unknown = 'enrol'

[[subnets]]
network = '192.0.2.0/24'
ranges = ['192.0.2.100-192.0.2.120']
";

/// A namespace for the site's processes, and two for machines, each with its own cable. Dropping it deletes them.
struct Network {
    site: String,
    machines: [String; 2],
    dir: tempfile::TempDir,
}

impl Network {
    fn new(name: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "namespaces are root's: run tests as root");
        let named = |end: &str| format!("lk{name}{end}-{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let network = Self { site: named("s"), machines: [named("a"), named("b")], dir };
        let site = &network.site;
        ip(&format!("netns add {site}"));
        ip(&format!("-n {site} link set lo up"));
        let links = [("v0", "198.51.100.1/24", LENT), ("v1", "192.0.2.1/24", RESERVED)];
        for (machine, (link, address, mac)) in network.machines.iter().zip(links) {
            ip(&format!("netns add {machine}"));
            ip(&format!("-n {site} link add {link} type veth peer name eth0 netns {machine}"));
            ip(&format!("-n {site} addr add {address} dev {link}"));
            ip(&format!("-n {site} link set {link} up"));
            ip(&format!("-n {machine} link set eth0 address {mac} up"));
        }
        let script = network.dir.path().join("bound.sh");
        std::fs::write(&script, "#!/bin/sh\n[ \"$1\" != bound ] || env\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(network.dir.path().join("config.toml"), CONFIG).unwrap();
        network
    }

    fn config(&self) -> String {
        self.dir.path().join("config.toml").display().to_string()
    }

    /// Runs `work` in the namespace of the site's processes. Its sockets and child processes stay there.
    fn on_site(&self, work: impl AsyncFnOnce() + Send) {
        let namespace = Path::new("/run/netns").join(&self.site);
        let work = move || {
            use std::os::fd::AsFd as _;
            let namespace = std::fs::File::open(namespace).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(work());
        };
        // Only this thread enters the namespace, and it ends there.
        let ended = std::thread::scope(|threads| threads.spawn(work).join());
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    /// Returns the output of `program` on a machine.
    fn on(&self, machine: usize, program: &str) -> Output {
        let words = format!("netns exec {} timeout 60 {program}", self.machines[machine]);
        Command::new("ip").args(words.split(' ')).output().unwrap()
    }

    /// Returns the options of the lease of a machine's client; empty without a lease.
    fn lease(&self, machine: usize, more: &str) -> Lease {
        let script = self.dir.path().join("bound.sh");
        let client = "busybox udhcpc -i eth0 -n -q -f -t 4 -T 2";
        let output = self.on(machine, &format!("{client} -s {} {more}", script.display()));
        Lease(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts to record the packets of DHCP servers to a machine.
    fn capture(&self, machine: usize) -> Capture {
        let words = ["netns", "exec", &self.machines[machine], "timeout", "60", "tcpdump"];
        let mut command = Command::new("ip");
        command.args(words).args(["--immediate-mode", "-lni", "eth0", "udp src port 67"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let messages = BufReader::new(child.stderr.take().unwrap());
        let capture = Capture(child);
        let listens = messages.lines().map_while(Result::ok).any(|line| line.contains("listening"));
        assert!(listens, "tcpdump ended");
        capture
    }

    /// Sets another Ethernet address on the machine.
    fn change(&self, machine: usize, mac: &str) {
        ip(&format!("-n {} link set eth0 address {mac}", self.machines[machine]));
        ip(&format!("-n {} neigh flush all", self.site));
    }

    /// Sets `address` as the machine's only address.
    fn set(&self, machine: usize, address: &str) {
        let name = &self.machines[machine];
        ip(&format!("-n {name} addr flush dev eth0"));
        ip(&format!("-n {name} addr add {address}/24 dev eth0"));
    }

    /// Returns the status and the body of a machine's request for `url`.
    fn get(&self, machine: usize, url: &str) -> (String, String) {
        let output = self.on(machine, &format!("curl -s -m 5 -w \n%{{http_code}} {url}"));
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = output.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    }

    /// Waits until the machine's request for `url` returns `expected`.
    async fn until_answered(&self, machine: usize, url: &str, expected: (&str, &str)) {
        let answered = async {
            loop {
                let got = self.get(machine, url);
                if (got.0.as_str(), got.1.as_str()) == expected {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(answered).await;
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in [&self.site].into_iter().chain(&self.machines) {
            let _may_not_exist = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

fn ip(command: &str) {
    let done = Command::new("ip").args(command.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {command}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A tcpdump, stopped when it is dropped.
struct Capture(Child);

impl Capture {
    /// Returns the recorded packets up to the one from `last`.
    fn packets_until(mut self, last: &str) -> Vec<String> {
        let mut packets = Vec::new();
        for line in BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok) {
            packets.push(line);
            if packets.last().is_some_and(|line| line.contains(last)) {
                return packets;
            }
        }
        panic!("nothing from {last}: {packets:?}");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // This ends tcpdump too.
        let _already_gone = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _already_waited_for = self.0.wait();
    }
}

/// The options of a lease in the environment of the client's script.
#[derive(Debug, PartialEq)]
struct Lease(String);

impl Lease {
    /// Returns the value of option `name`; empty if it was not sent.
    fn says(&self, name: &str) -> &str {
        let mut lines = self.0.lines().filter_map(|line| line.split_once('='));
        lines.find(|(option, _)| *option == name).map_or("", |(_, value)| value)
    }

    fn last(&self) -> u8 {
        self.says("ip").rsplit('.').next().unwrap().parse().unwrap()
    }
}

/// Creates the records of both machines, and returns their ids.
async fn machines(control: &Process) -> [String; 2] {
    let mut hardware = HardwareServiceClient::new(control.channel().await);
    let mut made = [(LENT, ""), (RESERVED, "192.0.2.50")].map(|(mac, address)| {
        let own = hw::Address { address: address.into(), prefix_length: 24, ..Default::default() };
        let own = Some(own).filter(|own| !own.address.is_empty());
        let interface = hw::Interface {
            mac: mac.into(),
            dhcp: Some(hw::Dhcp { address: own, ..hw::Dhcp::default() }),
            netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
            ..hw::Interface::default()
        };
        hw::Hardware { interfaces: vec![interface], ..hw::Hardware::default() }
    });
    for one in &mut made {
        let request =
            hw::CreateHardwareRequest { hardware: Some(one.clone()), ..Default::default() };
        *one = hardware.create_hardware(request).await.unwrap().into_inner().hardware.unwrap();
    }
    made.map(|one| one.id)
}

/// The options that iPXE sends besides those of every client.
const IPXE: &str = "-V PXEClient -x 0x5d:0007 -x 0x4d:69505845 -x 0xaf:130101 -O bootfile";

#[test]
fn each_machine_is_answered_by_its_own_link_and_told_of_nothing_else() {
    let network = Network::new("t");
    network.on_site(async || {
        let flags = ["--config", &network.config()];
        let server = Place::new().start(&arguments(&flags)).await;
        let [_, reserved] = machines(&server).await;
        network.set(1, "192.0.2.50");
        let id = "http://192.0.2.1:8080/latest/meta-data/instance-id";
        network.until_answered(1, id, ("200", &reserved)).await;

        let capture = network.capture(1);
        let first = network.lease(0, IPXE);
        assert!(first.says("ip").starts_with("198.51.100.1"), "{first:?}");
        assert_eq!((first.says("serverid"), first.says("domain")), ("198.51.100.1", ""));
        assert!(
            first.0.contains("http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe"),
            "{first:?}"
        );
        let second = network.lease(1, IPXE);
        assert_eq!((second.says("ip"), second.says("lease")), ("192.0.2.50", "300"));
        assert_eq!((second.says("serverid"), second.says("siaddr")), ("192.0.2.1", "192.0.2.1"));
        assert_eq!(second.says("domain"), "second.example");
        assert!(
            second.0.contains("http://192.0.2.1:7081/52-54-00-00-00-02/auto.ipxe"),
            "{second:?}"
        );
        let script = network.get(1, "http://192.0.2.1:7081/52-54-00-00-00-02/auto.ipxe").1;
        assert!(script.contains("set base http://192.0.2.1:7081/"), "{script}");
        assert!(script.contains("192.0.2.1:42113") && !script.contains("198.51.100.1"), "{script}");

        // Every reply on the second link was for the machine there.
        let packets = capture.packets_until("IP 192.0.2.1.67 >");
        assert_eq!(packets.len(), 1, "{packets:?}");

        // The machine of the second link gets no address of the first link.
        network.change(0, RESERVED);
        let moved = network.lease(0, "-r 192.0.2.50");
        assert_eq!(moved.says("serverid"), "198.51.100.1");
        assert!(moved.last() >= 100 && moved.says("ip").starts_with("198.51.100."), "{moved:?}");
    });
}

#[test]
fn a_machine_is_itself_under_a_lent_address_and_nobody_else_is() {
    let network = Network::new("m");
    network.on_site(async || {
        let flags = ["--config", &network.config()];
        let server = Place::new().start(&arguments(&flags)).await;
        let [lent, _] = machines(&server).await;
        let base = "http://198.51.100.1:8080/latest/meta-data";
        let id = format!("{base}/instance-id");

        let lease = network.lease(0, "");
        let address = lease.says("ip");
        network.set(0, address);
        network.until_answered(0, &id, ("200", &lent)).await;
        assert_eq!(network.get(0, &format!("{base}/local-ipv4")), ("200".into(), address.into()));

        network.change(0, UNKNOWN);
        assert_eq!(network.get(0, &id), ("403".into(), String::new()), "another has the address");
        let enrolled = network.lease(0, "");
        assert!(!enrolled.says("ip").is_empty() && enrolled.says("ip") != address, "{enrolled:?}");
        network.set(0, enrolled.says("ip"));
        assert_eq!(network.get(0, &id), ("404".into(), String::new()), "nobody knows who that is");

        network.change(0, LENT);
        network.set(0, address);
        network.until_answered(0, &id, ("200", &lent)).await;
        let mut leases = LeaseServiceClient::new(server.channel().await);
        let delete = DeleteLeaseRequest { address: address.into(), revision: 0 };
        leases.delete_lease(delete).await.unwrap();
        network.until_answered(0, &id, ("404", "")).await;
    });
}

#[test]
fn a_process_of_its_own_is_told_of_leases_and_goes_on_with_its_copy() {
    let network = Network::new("s");
    network.on_site(async || {
        let api = format!("198.51.100.1:{}", free_port());
        let (config, url) = (network.config(), format!("https://{api}"));
        let owners = "address,hardware,identity,instance,workflow,power,netboot";
        let flags = ["--config", &config, "--only", owners, "--listen", &api];
        let control = Place::new().start(&arguments(&flags)).await;
        let peers = format!("{url},netboot={url}");
        let flags = ["--config", &config, "--only", "metadata", "--peers", &peers];
        let edge = Place::new().with_secrets_of(&control.place, &["ca-key.pem"]);
        let edge = edge.start(&arguments(&flags)).await;
        let [lent, _] = machines(&control).await;

        let lease = network.lease(0, "");
        network.set(0, lease.says("ip"));
        let id = "http://198.51.100.1:8080/latest/meta-data/instance-id";
        network.until_answered(0, id, ("200", &lent)).await;

        let place = edge.terminate();
        control.kill();
        let _edge = place.start(&arguments(&flags)).await;
        network.until_answered(0, id, ("200", &lent)).await;
        network.set(0, "198.51.100.119");
        assert_eq!(network.get(0, id), ("404".into(), String::new()), "that is lent to nobody");
    });
}
