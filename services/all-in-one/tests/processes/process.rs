//! A process of the site: `tinwright serve` with a directory of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use runtime::authority::SiteAuthority;
use runtime::{Caller, Channel, Role};
use rustix::process::{Pid, Signal, kill_process};
use tinwright::hardware::v1 as hw;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::peer::{free_port, loopback};

/// The time limit of a start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Mounts a file system of 24 MiB at its first argument, and becomes the program in the others.
const ON_SMALL_DISK: &str = r#"mount -t tmpfs -o size=24m store "$1"; shift; exec "$@""#;

/// The directory and the addresses of a process.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) grpc: SocketAddr,
    pub(crate) vitals: SocketAddr,
    /// The path of a file system of 24 MiB that only the process sees.
    small_disk: Option<PathBuf>,
    program: PathBuf,
}

pub(crate) struct Process {
    pub(crate) place: Place,
    child: Child,
}

impl Place {
    pub(crate) fn new() -> Self {
        let [grpc, vitals] = [0, 1].map(|_| free_address());
        let program = env!("CARGO_BIN_EXE_tinwright").into();
        Self { dir: tempfile::tempdir().unwrap(), grpc, vitals, small_disk: None, program }
    }

    /// Makes `program` the one that is started here.
    pub(crate) fn with_program(self, program: PathBuf) -> Self {
        Self { program, ..self }
    }

    /// A place with a file system of 24 MiB at `path`, which only the process sees, and which goes with it.
    pub(crate) fn with_small_disk(path: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "mounts are root's: run tests as root");
        let place = Self::new();
        Self { small_disk: Some(place.path(path)), ..place }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn secrets(&self) -> PathBuf {
        self.path("data/secrets")
    }

    /// Copies the secrets of `other`, except the files in `but`.
    pub(crate) fn with_secrets_of(self, other: &Self, but: &[&str]) -> Self {
        std::fs::create_dir_all(self.secrets()).unwrap();
        for file in std::fs::read_dir(other.secrets()).unwrap().map(Result::unwrap) {
            if !but.iter().any(|name| file.file_name() == *name) {
                std::fs::copy(file.path(), self.secrets().join(file.file_name())).unwrap();
            }
        }
        self
    }

    /// Compares the records of the store with their indexes, while no process runs here. Panics if they differ.
    pub(crate) fn check_store(&self) {
        let mut command = Command::new(&self.program);
        let output = command.args(["store", "check", "--data"]).arg(self.path("data")).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts a process here, and waits until it is ready.
    pub(crate) async fn start(self, arguments: &[String]) -> Process {
        let mut process = self.begin(arguments);
        process.ready().await;
        process
    }

    /// Returns the error with which a process fails to start here.
    pub(crate) async fn refused(self, arguments: &[String]) -> String {
        let mut process = self.begin(arguments);
        let ended = async {
            loop {
                match process.ended() {
                    Some(ended) => return ended,
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        assert!(!soon(ended).await.success());
        process.log()
    }

    fn begin(self, arguments: &[String]) -> Process {
        let mut command = self.program();
        command.arg("serve").arg("--data").arg(self.path("data"));
        command.args(["--listen", &self.grpc.to_string()]);
        // A free port, unless the arguments name one.
        command.env("TINWRIGHT_GATEWAY_LISTEN", "127.0.0.1:0");
        command.args(["--metrics-listen", &self.vitals.to_string()]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = std::fs::File::create(self.path("log")).unwrap();
        Process { child: command.stderr(log).spawn().unwrap(), place: self }
    }

    fn program(&self) -> Command {
        let Some(small_disk) = &self.small_disk else { return Command::new(&self.program) };
        std::fs::create_dir_all(small_disk).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", ON_SMALL_DISK, "sh"]);
        command.arg(small_disk).arg(&self.program);
        command
    }
}

impl Process {
    pub(crate) async fn ready(&mut self) {
        let ready = async {
            while !self.is_ready().await {
                assert!(self.ended().is_none(), "{}", self.log());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon(ready).await;
    }

    pub(crate) async fn is_ready(&self) -> bool {
        get(self.place.vitals, "/readyz").await.is_some()
    }

    /// Returns how it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Returns the small disk of its place, as seen from outside of its mount namespace.
    pub(crate) fn small_disk(&self) -> PathBuf {
        let mounted = self.place.small_disk.as_ref().unwrap();
        format!("/proc/{}/root{}", self.child.id(), mounted.display()).into()
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("log")).unwrap()
    }

    /// Returns the bytes of memory in `field` of its status, such as `VmRSS` (proc(5)).
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kilobytes.unwrap_or_else(|| panic!("no {field}: {status}")).parse::<u64>().unwrap() * 1024
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(self) -> Place {
        self.end(Signal::KILL)
    }

    /// Ends it with SIGTERM, and waits for its end.
    pub(crate) fn terminate(self) -> Place {
        self.end(Signal::TERM)
    }

    fn end(mut self, signal: Signal) -> Place {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
        let Place { dir, grpc, vitals, small_disk, program } = &mut self.place;
        let dir = std::mem::replace(dir, tempfile::tempdir().unwrap());
        let (small_disk, program) = (small_disk.take(), std::mem::take(program));
        Place { dir, grpc: *grpc, vitals: *vitals, small_disk, program }
    }

    /// Returns a channel to its API with an admin's certificate.
    pub(crate) async fn channel(&self) -> Channel {
        self.channel_of(self).await
    }

    /// Returns a channel to its API with the admin's certificate of `owner`.
    pub(crate) async fn channel_of(&self, owner: &Self) -> Channel {
        self.channel_as(owner, &Role::Admin.into()).await
    }

    /// Returns a channel to its API with a certificate for `caller` from `owner`.
    pub(crate) async fn channel_as(&self, owner: &Self, caller: &Caller) -> Channel {
        let site = SiteAuthority::open(&owner.place.secrets()).unwrap();
        let own = site.client(caller).unwrap();
        let endpoint = self.endpoint(&site.authority(), &own.certificate, own.key.expose());
        endpoint.connect().await.unwrap().into()
    }

    /// Returns a channel to its API with a certificate for `caller`. It connects again to a process that is started in this one's place.
    pub(crate) fn lasting_channel(&self, caller: &Caller) -> Channel {
        let site = SiteAuthority::open(&self.place.secrets()).unwrap();
        let own = site.client(caller).unwrap();
        self.endpoint(&site.authority(), &own.certificate, own.key.expose()).connect_lazy().into()
    }

    /// Returns its API, for the holder of a certificate and key, who trusts `authority`. All of them are PEM.
    pub(crate) fn endpoint(&self, authority: &str, certificate: &str, key: &str) -> Endpoint {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority))
            .identity(Identity::from_pem(certificate, key));
        Endpoint::from_shared(format!("https://{}", self.place.grpc))
            .unwrap()
            .tls_config(tls)
            .unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_waited_for = self.child.wait();
    }
}

/// Returns the body at `path`; none unless the status is 200.
pub(crate) async fn get(from: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(from).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {from}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// Waits for `what`, at most for the time limit.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(START_TIMEOUT, what).await.expect("comes within a minute")
}

/// Returns an address that no other process listens on.
pub(crate) fn free_address() -> SocketAddr {
    (loopback(), free_port()).into()
}

pub(crate) fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns a machine with this MAC and address.
pub(crate) fn machine(mac: &str, address: &str) -> hw::CreateHardwareRequest {
    let address = hw::Address { address: address.into(), prefix_length: 8, ..Default::default() };
    let dhcp = Some(hw::Dhcp { address: Some(address), ..Default::default() });
    let interface = hw::Interface { mac: mac.into(), dhcp, ..Default::default() };
    let hardware = hw::Hardware { interfaces: vec![interface], ..Default::default() };
    hw::CreateHardwareRequest { hardware: Some(hardware), request_id: String::new() }
}
