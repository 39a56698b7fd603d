//! Our server in its own network namespaces, and its records.

use fleet::Fleet;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::process::{Child, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use netboot::pool::Subnet;
use netboot::site::Dhcp;
use netboot::{Netboot, Reports, Site};
use runtime::SiteKey;
use runtime::feed::FeedEvent;
use tempfile::TempDir;
use tinwright::HardwareId;
use tinwright::hardware::v1::{self as hw, Hardware, Interface};
use tokio_util::sync::CancellationToken;

use crate::network::{Host, Network};

pub(crate) const US: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The most DISCOVERs of udhcpc where a lease is expected; there are two seconds between them. The server may be slow on a busy host.
pub(crate) const TRIES: u32 = 20;
/// The DISCOVERs of udhcpc where no lease is expected.
pub(crate) const TRIES_WITHOUT_REPLY: u32 = 3;

/// The server, the machine at v1, and a directory for files.
pub(crate) struct Lab {
    pub(crate) network: Arc<Network>,
    pub(crate) directory: TempDir,
    pub(crate) fleet: Fleet,
    started: RefCell<Vec<Child>>,
    stop: CancellationToken,
    serving: Option<std::thread::JoinHandle<()>>,
}

/// The machine with the interface 52:54:00:00:00:`last`, at `address`; callers add further fields.
pub(crate) fn machine(last: u8, address: &str) -> Hardware {
    let address = hw::Address {
        address: address.into(),
        prefix_length: 24,
        gateway: address.rsplit_once('.').map_or_else(String::new, |(net, _)| format!("{net}.1")),
    };
    let interface = Interface {
        mac: format!("52:54:00:00:00:{last:02x}"),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        ..Interface::default()
    };
    Hardware {
        id: HardwareId::new().to_string(),
        architecture: "x86_64".into(),
        state: hw::State::Provisionable.into(),
        interfaces: vec![interface],
        ..Hardware::default()
    }
}

/// Allows `machine` to boot from the network.
pub(crate) fn booting(mut machine: Hardware) -> Hardware {
    let allowed = hw::Netboot { allow_pxe: true, ..hw::Netboot::default() };
    machine.interfaces[0].netboot = Some(allowed);
    machine
}

fn site(dhcp: Dhcp) -> Site {
    Site {
        interface: "br0".into(),
        address: US,
        http_port: 7080,
        dhcp,
        loaders: vec!["/usr/lib/ipxe".into()],
        osie: "/nowhere".into(),
        files: None,
        grpc_authority: "198.51.100.1:42113".into(),
        grpc_servers: Vec::new(),
        authority: std::sync::Arc::new(netboot::site::FixedAuthority("PEM", "ab")),
        consoles: Vec::new(),
        metadata_route: false,
        syslog: None,
        ra_assist: false,
        rate_limits: true,
        policy: netboot::decision::Policy::default(),
        subnets: Vec::new(),
        serving: netboot::site::Serving::default(),
    }
}

impl Lab {
    /// Starts a server with the records of `machines`.
    pub(crate) fn new(dhcp: Dhcp, machines: Vec<Hardware>) -> Self {
        Self::on(Network::new(), dhcp, machines)
    }

    /// Starts one on an existing network.
    pub(crate) fn on(network: Network, dhcp: Dhcp, machines: Vec<Hardware>) -> Self {
        Self::with(network, site(dhcp), machines, None)
    }

    /// Starts a server that leases addresses of `subnet`, with its leases in `store`.
    pub(crate) fn with_pool(
        subnet: Subnet,
        machines: Vec<Hardware>,
        store: Arc<dyn store::Store>,
    ) -> Self {
        let site = Site { subnets: vec![subnet], ..site(Dhcp::default()) };
        Self::with(Network::new(), site, machines, Some(store))
    }

    fn with(
        network: Network,
        site: Site,
        machines: Vec<Hardware>,
        store: Option<Arc<dyn store::Store>>,
    ) -> Self {
        let network = Arc::new(network);
        let stop = CancellationToken::new();
        let (ready, bound) = mpsc::channel();
        let (there, until) = (network.clone(), stop.clone());
        // TFTP transfers bind further sockets: all tasks run on one thread inside the namespace.
        let serving = std::thread::spawn(move || {
            there.enter(Host::Server);
            let serve = async {
                let http = tokio::net::TcpListener::bind((US, 7080)).await.expect("port 7080");
                let key = SiteKey::new([1; 32]);
                let mut netboot = Netboot::bind(site, &key, http, runtime::Clock::system())
                    .await
                    .expect("every port");
                let fleet = Fleet::new(netboot.observers());
                fleet.hardware(FeedEvent::Snapshot(machines));
                fleet.instance(FeedEvent::Snapshot(Vec::new()));
                fleet.workflow(FeedEvent::Snapshot(Vec::new()));
                if let Some(store) = store {
                    netboot.enable_leases(store);
                }
                let leases = netboot.lease_api(until.clone());
                tokio::spawn(async move {
                    // Until leases have been read, clients without a reserved address get no reply.
                    if let Some(leases) = leases {
                        leases.leases.ready().await;
                    }
                    ready.send(fleet).expect("a test");
                });
                let (firmware, _signs) = tokio::sync::mpsc::channel(16);
                let (scripts, _reports) = tokio::sync::mpsc::unbounded_channel();
                // No machine phones home here.
                let home = Arc::new(runtime::Channel::unconnected());
                let reports = Reports { firmware, scripts, home, content: None };
                netboot.serve(reports, until).await.expect("to serve");
            };
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().expect("a runtime").block_on(serve);
        });
        let fleet = bound.recv().expect("a server");
        let directory = TempDir::new().expect("a directory");
        let started = RefCell::default();
        Self { network, directory, fleet, started, stop, serving: Some(serving) }
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("text").to_owned()
    }

    /// Runs a program on the machine; `{dir}` stands for the directory.
    pub(crate) fn client(&self, line: &str) -> Output {
        let line = line.replace("{dir}", self.directory.path().to_str().expect("text"));
        let words: Vec<_> = line.split(' ').collect();
        self.network.run(Host::Client, &words)
    }

    /// Returns the address that udhcpc gets on the machine, after at most so many DISCOVERs.
    pub(crate) fn lease(&self, tries: u32) -> Option<String> {
        let line = format!("busybox udhcpc -i v1 -n -q -f -t {tries} -T 2 -s /bin/true");
        let output = String::from_utf8_lossy(&self.client(&line).stderr).into_owned();
        let (_, lease) = output.split_once("lease of ")?;
        lease.split([' ', ',']).next().map(str::to_owned)
    }

    /// Starts a program that ends with the network; its output is in the file `log`.
    pub(crate) fn start(&self, host: Host, line: &str, log: &str) {
        let line = line.replace("{dir}", self.directory.path().to_str().expect("text"));
        let words: Vec<_> = line.split(' ').collect();
        let log = std::fs::File::create(self.path(log)).expect("a log");
        let errors = Stdio::from(log.try_clone().expect("a log"));
        let program = self.network.start(host, &words, log.into(), errors);
        self.started.borrow_mut().push(program);
    }

    /// Waits until the file `log` contains `text`, at most a minute.
    pub(crate) fn until_logged(&self, log: &str, text: &str) {
        let read = || std::fs::read_to_string(self.path(log)).expect("a log");
        let is_logged = (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            read().contains(text)
        });
        assert!(is_logged, "not in {log}: {text}: {}", read());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for program in self.started.get_mut() {
            let _ended_already = program.kill();
            let _ended_already = program.wait();
        }
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            let _failed_already = serving.join();
        }
    }
}
