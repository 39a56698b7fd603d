//! Warnings in the log, with one subscriber for the whole process: tracing caches for each log statement if a subscriber wants
//! it. So these tests are in a test binary of their own.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dhcp::options::code;
use dhcp::{Link, ListenPort, MessageType, Packet};
use fleet::Fleet;
use netboot::bootscripts::platform::PrivateFileRequest;
use netboot::bootscripts::{BootScripts, ScriptRequest};
use netboot::datagram::Arrival;
use netboot::dhcp_server::{Remaining, Server, View};
use netboot::leases::{Claim, ClaimResult, Leases};
use netboot::machine_view::Index;
use netboot::pool::{Event, State};
use netboot::{Mac, Metrics, site};
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use runtime::neighbour::NeighbourCheck;
use runtime::{Clock, SiteKey};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as occ;
use tinwright::workflow::v1::Workflow;
use tokio_util::sync::CancellationToken;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    log
});

/// The log of the process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns the number of lines with `text`.
    fn count(&self, text: &str) -> usize {
        self.count_both(text, "")
    }

    /// Returns the number of lines with `first` and `second`.
    fn count_both(&self, first: &str, second: &str) -> usize {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(first) && line.contains(second)).count()
    }
}

impl Write for Log {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn settings() -> netboot::Site {
    netboot::Site {
        interface: "lo".into(),
        address: [192, 0, 2, 1].into(),
        http_port: 7080,
        dhcp: site::Dhcp::default(),
        loaders: Vec::new(),
        osie: "/nowhere".into(),
        files: None,
        grpc_authority: "192.0.2.1:42113".into(),
        grpc_servers: Vec::new(),
        authority: std::sync::Arc::new(netboot::site::FixedAuthority("PEM", "ab")),
        consoles: Vec::new(),
        metadata_route: false,
        rate_limits: true,
        policy: netboot::decision::Policy::default(),
        syslog: None,
        ra_assist: false,
        subnets: Vec::new(),
        serving: site::Serving::default(),
    }
}

/// Returns a machine with a workflow and a kernel argument that cannot stand in a script.
fn machine(id: HardwareId) -> (BootScripts, Fleet) {
    let address =
        hw::Address { address: MACHINE.to_string(), prefix_length: 24, gateway: String::new() };
    let interface = hw::Interface {
        mac: MAC.to_string(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..hw::Interface::default()
    };
    let kernel_params = vec!["quiet${password}".into()];
    let hardware = hw::Hardware {
        id: id.to_string(),
        architecture: "x86_64".into(),
        interfaces: vec![interface],
        policy: Some(hw::Policy { kernel_params, ..hw::Policy::default() }),
        ..hw::Hardware::default()
    };
    let workflow = Workflow {
        id: "w".into(),
        hardware_id: id.to_string(),
        wants_machine: true,
        ..Workflow::default()
    };
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![hardware]));
    fleet.instance(FeedEvent::Snapshot(vec![]));
    fleet.workflow(FeedEvent::Snapshot(vec![workflow]));
    let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
    (BootScripts::new(index, tokens, settings()), fleet)
}

#[test]
fn a_simulated_request_logs_nothing_and_the_real_one_after_it_logs_its_warning() {
    let log = &*LOG;
    let (id, now) = (HardwareId::new(), UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let (boots, fleet) = machine(id);
    let request = ScriptRequest::new(Some(MAC), MACHINE.into());
    // Other tests write to the same log at the same time.
    let logged = |text: &str| log.count_both(text, &format!("hardware.id={id}"));
    let warned = |text: &str| {
        let before = logged(text);
        let _simulated = boots.simulate(&request, now);
        assert_eq!(logged(text), before, "a simulated request logs {text}");
        let _served = boots.serve(&request, now);
        assert_eq!(logged(text), before + 1, "a request logs {text}");
    };

    warned("kernel argument left out");
    (1..10).for_each(|_| assert!(boots.serve(&request, now).is_ok()));
    warned("boot loop");
    fleet.instance(FeedEvent::Snapshot(vec![occ::Instance {
        id: "i".into(),
        state: occ::State::Provisioning.into(),
        hardware_id: id.to_string(),
        boot_gate: Some(occ::BootGate::default()),
        ..occ::Instance::default()
    }]));
    warned("boot gate closed");
}

#[test]
fn a_refusal_of_a_platforms_machine_is_logged_with_what_was_presented_and_without_the_token() {
    let log = &*LOG;
    let (id, now) = (HardwareId::new(), UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let (boots, fleet) = machine(id);
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let gate = occ::BootGate { open: true, uuid: uuid.into(), ..occ::BootGate::default() };
    let boot_url = "/platform/start.ipxe".into();
    let boot = occ::PlatformBoot { boot_url, ..occ::PlatformBoot::default() };
    let instance = |gate| occ::Instance {
        id: "i".into(),
        state: occ::State::Active.into(),
        hardware_id: id.to_string(),
        os: Some(occ::instance::Os::Platform(boot.clone())),
        boot_gate: Some(gate),
        ..occ::Instance::default()
    };
    fleet.instance(FeedEvent::Snapshot(vec![instance(gate)]));
    let right =
        ScriptRequest { uuid: Some(uuid.into()), ..ScriptRequest::new(Some(MAC), MACHINE.into()) };
    let script = boots.serve(&right, now).unwrap().text;
    let path = script.split_once("/platform/").unwrap().1.split(' ').next().unwrap();
    let other: std::net::IpAddr = [192, 0, 2, 77].into();
    let presented = |source, uuid: &str, rule: &str| {
        let line = format!("mac={MAC} uuid={uuid:?} source={source} rule=\"{rule}\"");
        log.count(&format!("boot gate closed hardware.id={id} {line}"))
    };
    let request = ScriptRequest { source: other, uuid: Some("other".into()), ..right.clone() };
    assert!(boots.serve(&request, now).is_err());
    assert_eq!(presented(other, "other", "the address is not that machine's"), 1);
    let request = ScriptRequest { uuid: Some("other".into()), ..right };
    assert!(boots.serve(&request, now).is_err());
    assert_eq!(presented(MACHINE.into(), "other", "the platform allows another UUID"), 1);
    let neighbour = NeighbourCheck::Unchecked;
    let file = |source, uuid| {
        let request = PrivateFileRequest { path, uuid: Some(uuid), source, neighbour };
        let (reply, effects) = boots.respond_private_file(&request, now);
        let _no_report = boots.apply(effects, now);
        reply.is_ok()
    };
    assert!(file(MACHINE.into(), "stolen"));
    assert!(!file(other, "stolen"));
    assert_eq!(presented(other, "stolen", "the token is another address's"), 1);
    fleet.instance(FeedEvent::Put(instance(occ::BootGate::default())));
    assert!(!file(MACHINE.into(), "closed"));
    assert_eq!(log.count("uuid=\"closed\""), 1);
    assert_eq!(log.count(path.split('/').nth(1).unwrap()), 0, "the token");
}

/// Sends `packet` to a server with the machine of `boots` and without loaders, and with the option
/// `vendor_class`.
fn send(boots: &BootScripts, mut packet: Packet, vendor_class: &str) {
    packet.options.set(code::VENDOR_CLASS, vendor_class);
    let link = Arc::new(Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080"));
    let view = View { scripts: Arc::new(boots.clone()), link, link_state: Arc::default() };
    let server = Server::new(view, Metrics::default(), tokio::sync::mpsc::channel(1).0);
    let datagram = packet.encode(1500).unwrap();
    let arrival = Arrival {
        length: datagram.len(),
        source: "0.0.0.0:68".parse().unwrap(),
        to: Ipv4Addr::BROADCAST,
        local: [192, 0, 2, 1].into(),
        interface: 1,
    };
    server.reply(&datagram, &arrival, ListenPort::Dhcp, &mut Remaining::default());
}

#[test]
fn a_refused_boot_file_is_logged_as_refused_with_its_reason() {
    let log = &*LOG;
    let id = HardwareId::new();
    let (boots, fleet) = machine(id);
    let line = |offer: &str| {
        log.count_both(&format!("hardware.id=\"{id}\""), &format!("offer=\"{offer}\""))
    };
    let discover = Packet::request(MessageType::Discover, MAC.0);
    send(&boots, discover.clone(), "PXEClient:Arch:00012:UNDI:003016");
    assert_eq!((line("refused"), line("offered")), (1, 0));
    let reason = "offer=\"refused\" reason=\"no loader for architecture 12\"";
    assert_eq!(log.count_both(&format!("hardware.id=\"{id}\""), reason), 1);
    send(&boots, discover, "an installed system");
    assert_eq!((line("none"), line("offered")), (1, 0));
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    fleet.instance(FeedEvent::Snapshot(vec![occ::Instance {
        id: "i".into(),
        state: occ::State::Active.into(),
        hardware_id: id.to_string(),
        os: Some(occ::instance::Os::OperatingSystem(Default::default())),
        ..occ::Instance::default()
    }]));
    let renewal = Packet { ciaddr: MACHINE, ..Packet::request(MessageType::Request, MAC.0) };
    send(&boots, renewal, "an installed system");
    assert_eq!((line("none"), line("refused")), (2, 1));
}

#[test]
fn a_request_over_infiniband_is_logged_as_refused_with_its_client_identifier() {
    let log = &*LOG;
    let (boots, _fleet) = machine(HardwareId::new());
    let mut discover = Packet::request(MessageType::Discover, [0; 6]);
    (discover.htype, discover.hlen) = (32, 0);
    let client_id: [u8; 13] = [0xff, 0, 0, 0, 0, 0x24, 0x8a, 0x07, 0x03, 0x00, 0x91, 0x6e, 0x12];
    discover.options.set(code::CLIENT_IDENTIFIER, client_id);
    send(&boots, discover, "PXEClient:Arch:00007:UNDI:003016");
    let line =
        "DHCP request refused mac=24:8a:07:91:6e:12 client_id=\"ff00000000248a070300916e12\"";
    assert_eq!(log.count_both(line, "reason=InfiniBand is not supported"), 1);
}

#[test]
fn a_client_without_a_usable_client_identifier_is_logged_with_what_it_sent() {
    let log = &*LOG;
    let (boots, _fleet) = machine(HardwareId::new());
    let mut discover = Packet::request(MessageType::Discover, [0; 6]);
    (discover.htype, discover.hlen) = (32, 0);
    discover.options.set(code::CLIENT_IDENTIFIER, [0xff, 1, 2, 3, 4, 5, 6, 7]);
    send(&boots, discover, "PXEClient:Arch:00007:UNDI:003016");
    let line = "DHCP request refused client_id=\"ff01020304050607\"";
    assert_eq!(log.count_both(line, "reason=InfiniBand is not supported"), 1);
}

#[tokio::test]
async fn a_declined_pool_address_is_a_warning_only_if_it_is_withheld() {
    let log = &*LOG;
    let leases = Leases::new(Arc::new(MemoryStore::default()), Clock::system());
    let (address, now) = (Ipv4Addr::new(192, 0, 2, 77), SystemTime::now());
    let [own, other] = [Mac([2, 0, 0, 0, 0, 7]), Mac([2, 0, 0, 0, 0, 8])];
    let duration = Duration::from_secs(3600);
    let claim = Claim { address, mac: own, duration, at_port: None };
    assert_eq!(leases.claim(claim, now).await, ClaimResult::Granted(duration));
    leases.take_back(address, other, Event::Decline, now);
    leases.take_back(address, own, Event::Decline, now);
    let stop = CancellationToken::new();
    let declined = async {
        while leases.at(address, now).is_none_or(|lease| lease.state != State::Declined) {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(leases.clone().run(stop.clone()), declined) };
    tokio::time::timeout(Duration::from_secs(60), both).await.unwrap().0.unwrap();
    assert_eq!(log.count(&format!("address declined: another host uses it address={address}")), 1);
}
