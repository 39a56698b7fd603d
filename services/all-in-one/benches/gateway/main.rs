//! Processor time of the server for a request to the REST mirror, and for the same call over gRPC: `cargo bench --bench gateway`.
//!
//! Both have one kept connection with TLS and an admin's client certificate, and one request at a time. The processor time is that of the
//! server's process (proc(5)), so what clients need is not in it. Before, the memory of an idle server with the gateway and without it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use runtime::authority::{RenewableCertificate, SiteAuthority};
use runtime::{Channel, Role};
use rustls::pki_types::ServerName;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

const API: &str = "127.0.0.1:42713";
const GATEWAY: &str = "127.0.0.1:42780";
const VITALS: &str = "127.0.0.1:42764";
const MACHINES: u32 = 100;
/// The rounds of each measurement; the least of them counts.
const ROUNDS: usize = 5;
/// The time after its start at which a server counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// The server, and its data.
struct Server {
    process: Child,
    data: tempfile::TempDir,
}

impl Server {
    /// Starts a server whose gateway listens on `gateway`, which may be `none`.
    fn start(gateway: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
        command.args(["serve", "--store", "memory", "--log", "warn", "--listen", API]);
        command.args(["--gateway-listen", gateway, "--metrics-listen", VITALS]);
        command.arg("--no-rate-limits").arg("--data").arg(data.path()).stdin(Stdio::null());
        Self { process: command.spawn().unwrap(), data }
    }

    /// Returns its resident memory once it is idle, in MiB.
    async fn idle_memory(&self) -> f64 {
        tokio::time::sleep(IDLE_AFTER).await;
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    async fn authority(&self) -> Arc<SiteAuthority> {
        let secrets = self.data.path().join("secrets");
        while !secrets.join("admin.pem").exists() || TcpStream::connect(GATEWAY).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Arc::new(SiteAuthority::open(&secrets).unwrap())
    }

    /// Returns the processor time of its process so far.
    fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Returns the processor time of one of `count` requests, in microseconds.
    async fn measure(&self, count: u32, mut request: impl AsyncFnMut()) -> f64 {
        let mut least = f64::MAX;
        for _ in 0..ROUNDS {
            let before = self.processor_time();
            for _ in 0..count {
                request().await;
            }
            let spent = self.processor_time() - before;
            least = least.min(spent.as_secs_f64() * 1e6 / f64::from(count));
        }
        least
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_waited_for = self.process.wait();
    }
}

async fn grpc(site: &SiteAuthority) -> Channel {
    let own = site.client(&Role::Admin.into()).unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(site.authority()))
        .identity(Identity::from_pem(own.certificate, own.key.expose()));
    let endpoint = Endpoint::from_shared(format!("https://{API}")).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap().into()
}

/// A kept HTTP/1.1 connection to the gateway.
struct Rest(BufReader<TlsStream<TcpStream>>);

impl Rest {
    async fn connect(site: &Arc<SiteAuthority>) -> Self {
        let own = RenewableCertificate::service(site.clone(), Role::Admin.into()).unwrap();
        let mut tls = own.client_config().unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tcp = TcpStream::connect(GATEWAY).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.unwrap();
        Self(BufReader::new(tls))
    }

    /// Returns the body at `path`.
    async fn get(&mut self, path: &str) -> Vec<u8> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {GATEWAY}\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line).await.unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while line.trim() != "" {
            line.clear();
            self.0.read_line(&mut line).await.unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        body
    }
}

fn machine(n: u32) -> hw::Hardware {
    let [.., high, low] = n.to_be_bytes();
    let interface = |last: u8| hw::Interface {
        mac: format!("02:00:00:{high:02x}:{low:02x}:{last:02x}"),
        ..hw::Interface::default()
    };
    hw::Hardware {
        name: format!("machine-{n}"),
        labels: [("rack".to_owned(), "r1".to_owned())].into(),
        interfaces: vec![interface(0), interface(1)],
        ..hw::Hardware::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let without = Server::start("none").idle_memory().await;
    let server = Server::start(GATEWAY);
    let with = server.idle_memory().await;
    println!(
        "memory of the idle server: {with:.1} MiB, {:.1} more than without the gateway",
        with - without
    );
    let site = server.authority().await;
    let machines = HardwareServiceClient::new(grpc(&site).await);
    let mut id = String::new();
    for n in 0..MACHINES {
        let request = hw::CreateHardwareRequest {
            hardware: Some(machine(n)),
            ..hw::CreateHardwareRequest::default()
        };
        let created = machines.clone().create_hardware(request).await.unwrap().into_inner();
        id = created.hardware.unwrap().id;
    }
    let get = hw::GetHardwareRequest {
        by: Some(hw::get_hardware_request::By::Id(id.clone())),
        ..hw::GetHardwareRequest::default()
    };
    let list = hw::ListHardwareRequest { page_size: 100, ..hw::ListHardwareRequest::default() };
    let mut rest = Rest::connect(&site).await;
    let page = rest.get("/api/v1/hardware?page_size=100").await;
    let page: serde_json::Value = serde_json::from_slice(&page).unwrap();
    assert_eq!(page["hardware"].as_array().map(Vec::len), Some(100));
    let get_by_grpc = async || drop(machines.clone().get_hardware(get.clone()).await.unwrap());
    let get_by_grpc = server.measure(5000, get_by_grpc).await;
    let path = format!("/api/v1/hardware/{id}");
    let get_by_rest = server.measure(5000, async || drop(rest.get(&path).await)).await;
    let page_by_grpc = async || drop(machines.clone().list_hardware(list.clone()).await.unwrap());
    let page_by_grpc = server.measure(1000, page_by_grpc).await;
    let path = "/api/v1/hardware?page_size=100";
    let page_by_rest = server.measure(1000, async || drop(rest.get(path).await)).await;
    println!("processor time of the server for a request, in microseconds:");
    for (what, grpc, rest) in
        [("one get", get_by_grpc, get_by_rest), ("a page of 100", page_by_grpc, page_by_rest)]
    {
        println!("{what:14} gRPC {grpc:8.1}  REST {rest:8.1}  ratio {:.2}", rest / grpc);
    }
}
