//! Boot HTTP for one machine whose workflow waits for it, and curl.

use fleet::Fleet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use netboot::bootscripts::BootScripts;
use netboot::bootscripts::custom::ScriptReport;
use netboot::environments::Environments;
use netboot::http::Http;
use netboot::http::phone_home::PhoneHomeSink;
use netboot::iso::Images;
use netboot::machine_view::Index;
use netboot::tftp::{Directories, FileError, FileSource, OpenFile, RequestedFile};
use netboot::{ImageContent, Mac, Metrics, site::Serving};
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use runtime::serve::{self, ConnectionLimits, Transport};
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1::ReportPhoneHomeRequest;
use tinwright::workflow::v1::{Workflow, WorkflowImage};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const MACHINE: &str = "127.0.0.10";
pub(crate) const OTHER: &str = "127.0.0.11";
pub(crate) const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Octets that are no multiple of any chunk.
pub(crate) fn loader() -> Vec<u8> {
    (0..173_793_u32).map(|n| (n % 253) as u8).collect()
}

/// Stores phone-home calls, unless it is broken.
#[derive(Debug, Default)]
pub(crate) struct StoredCalls {
    pub(crate) calls: Mutex<Vec<ReportPhoneHomeRequest>>,
    pub(crate) broken: AtomicBool,
}

#[async_trait]
impl PhoneHomeSink for StoredCalls {
    async fn report(&self, call: ReportPhoneHomeRequest) -> Result<(), tonic::Status> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(tonic::Status::unavailable("the store is away"));
        }
        self.calls.lock().await.push(call);
        Ok(())
    }
}

/// Serves the machine's script by TFTP.
#[derive(Debug)]
struct Scripts(Arc<BootScripts>);

#[async_trait]
impl FileSource for Scripts {
    async fn open(&self, file: &RequestedFile, client: Ipv4Addr) -> Result<OpenFile, FileError> {
        let RequestedFile::Script(mac) = file else { return Err(FileError::NotFound) };
        let request = netboot::bootscripts::ScriptRequest::new(Some(*mac), client.into());
        let served = self.0.serve(&request, std::time::SystemTime::now());
        Ok(OpenFile::Memory(served?.text.into()))
    }
}

pub(crate) struct Site {
    pub(crate) base: String,
    pub(crate) id: HardwareId,
    pub(crate) fleet: Fleet,
    pub(crate) boots: Arc<BootScripts>,
    pub(crate) phone_home: Arc<StoredCalls>,
    pub(crate) reports: Mutex<mpsc::UnboundedReceiver<ScriptReport>>,
    pub(crate) directory: tempfile::TempDir,
    listen: Box<dyn Fn(TcpListener, Transport)>,
    _stop: DropGuard,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> String {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    }

    /// Returns the lines of the head, except the date.
    pub(crate) fn head(&self) -> Vec<&str> {
        self.head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

fn record(id: HardwareId) -> hw::Hardware {
    let address = hw::Address { address: MACHINE.into(), prefix_length: 8, gateway: String::new() };
    let interface = hw::Interface {
        mac: MAC.to_string(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..hw::Interface::default()
    };
    hw::Hardware {
        id: id.to_string(),
        architecture: "x86_64".into(),
        interfaces: vec![interface],
        ..hw::Hardware::default()
    }
}

fn fleet(id: HardwareId) -> (Fleet, Arc<Index>) {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![record(id)]));
    fleet.instance(FeedEvent::Snapshot(vec![]));
    let waiting = Workflow {
        id: "w".into(),
        hardware_id: id.to_string(),
        wants_machine: true,
        image: Some(WorkflowImage { stored_sha256: "ab12".into(), ..Default::default() }),
        ..Workflow::default()
    };
    fleet.workflow(FeedEvent::Snapshot(vec![waiting]));
    (fleet, index)
}

fn settings(port: u16) -> netboot::Site {
    netboot::Site {
        interface: "lo".into(),
        address: Ipv4Addr::LOCALHOST,
        http_port: port,
        dhcp: netboot::site::Dhcp::default(),
        loaders: Vec::new(),
        osie: "/nowhere".into(),
        files: None,
        grpc_authority: "127.0.0.1:42113".into(),
        grpc_servers: Vec::new(),
        authority: std::sync::Arc::new(netboot::site::FixedAuthority("PEM", "ab")),
        consoles: Vec::new(),
        metadata_route: false,
        syslog: None,
        ra_assist: false,
        subnets: Vec::new(),
        rate_limits: true,
        policy: netboot::decision::Policy::default(),
        serving: Serving::default(),
    }
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a site with changed settings.
    pub(crate) async fn with(change: impl FnOnce(&mut netboot::Site)) -> Self {
        Self::with_content(None, change).await
    }

    /// Starts a site with images from `content`, and changed settings.
    pub(crate) async fn with_content(
        content: Option<ImageContent>,
        change: impl FnOnce(&mut netboot::Site),
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut site = settings(listener.local_addr().unwrap().port());
        change(&mut site);
        let (id, directory) = (HardwareId::new(), tempfile::tempdir().unwrap());
        for name in ["snponly.efi", "vmlinuz-x86_64"] {
            std::fs::write(directory.path().join(name), loader()).unwrap();
        }
        let files = Directories::open([directory.path()]).unwrap();
        let base = site.base_url();
        let images = site.serving.iso.as_ref().map(|iso| Arc::new(Images::open(iso).unwrap()));
        let platform_files = site.serving.platform_files.as_ref();
        let platform_files = platform_files.map(|path| Directories::open([path]).unwrap());
        let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
        let bounds = ConnectionLimits {
            per_source: 64,
            exempt: site.serving.trusted_proxies.clone(),
            max_head_bytes: 16 * 1024,
            ..ConnectionLimits::default()
        };
        let (fleet, index) = fleet(id);
        let boots = Arc::new(BootScripts::new(index, tokens, site));
        let (scripts, reports) = mpsc::unbounded_channel();
        let phone_home = Arc::new(StoredCalls::default());
        let http = Http {
            boots: boots.clone(),
            loaders: files.clone(),
            osie: Environments::new(directory.path()),
            files: None,
            platform_files,
            tftp: Arc::new(Scripts(boots.clone())),
            images,
            content,
            home: phone_home.clone(),
            scripts,
            metrics: Metrics::default(),
        };
        let (service, stop) = (http.into_service(), CancellationToken::new());
        let plaintext = Transport::Plaintext;
        tokio::spawn(serve::limited_tcp(
            listener,
            plaintext,
            bounds,
            service.clone(),
            stop.clone(),
        ));
        // Further listeners live as long as the test's runtime.
        let listen = Box::new(move |listener, transport| {
            let stop = CancellationToken::new();
            drop(tokio::spawn(serve::tcp(listener, transport, service.clone(), stop)));
        });
        let (reports, _stop) = (Mutex::new(reports), stop.drop_guard());
        Self { base, id, fleet, boots, phone_home, reports, directory, listen, _stop }
    }

    /// Also serves TLS, with a new key whose certificate is `c.pem` in the directory. Returns the port.
    pub(crate) async fn listen_tls(&self) -> u16 {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let [certificate, key] = ["c.pem", "k.pem"].map(|name| self.directory.path().join(name));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let transport = Transport::from_key_pair(&certificate, &key).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (self.listen)(listener, transport);
        port
    }

    /// Requests `path` from the address `source` with curl.
    pub(crate) async fn curl(&self, source: &str, options: &[&str], path: &str) -> Answer {
        self.curl_url(source, options, &format!("{}{path}", self.base)).await
    }

    pub(crate) async fn curl_url(&self, source: &str, options: &[&str], url: &str) -> Answer {
        let head = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("curl");
        command.args(["-s", "--interface", source, "-D"]).arg(head.path()).args(options).arg(url);
        let ran = tokio::time::timeout(TEST_TIMEOUT, command.kill_on_drop(true).output()).await;
        let output = ran.expect("curl ends").expect("curl is installed");
        let head = std::fs::read_to_string(head.path()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = if options.contains(&"-I") { Vec::new() } else { output.stdout };
        Answer { status, head, body }
    }

    /// Begins a boot, and returns the path of its kernel.
    pub(crate) async fn kernel_url(&self) -> String {
        let script = self.curl(MACHINE, &[], "/auto.ipxe").await.text();
        let base = script.lines().find_map(|line| line.strip_prefix("set base ")).unwrap();
        format!("{}/vmlinuz-x86_64", base.strip_prefix(&self.base).unwrap())
    }
}
