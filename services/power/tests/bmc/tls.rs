//! Certificates and ciphers of old BMCs: a BMC behind `openssl s_server`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use power::{Jobs, Login};
use store::memory::MemoryStore;
use tempfile::TempDir;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::power_job::State;
use tokio::io::{copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::quirky::{Quirk, QuirkyBmc};
use crate::site::{self, TIMING, boot, power, work};
use tinwright::power::v1::operation::boot::Device;

/// The TLS of a BMC whose ciphers have RSA key exchange only.
const RSA_KEY_EXCHANGE: &[&str] = &["-tls1_2", "-cipher", "AES256-GCM-SHA384"];
/// The TLS of a BMC whose key is short.
const SHORT_KEY: &[&str] = &["-cipher", "DEFAULT:@SECLEVEL=0"];

/// TLS in front of a BMC. Each connection has a process of its own.
struct Tls {
    url: String,
    /// SHA-256 of the certificate, in hex.
    fingerprint: String,
    server: JoinHandle<()>,
    _directory: TempDir,
}

impl Tls {
    /// Serves `bmc` with a certificate of version 1 for an RSA key of this size, and these
    /// arguments of `openssl s_server`.
    async fn start(bmc: &QuirkyBmc, bits: u32, arguments: &'static [&'static str]) -> Self {
        let directory = TempDir::new().unwrap();
        let at = directory.path().to_owned();
        let key =
            format!("req -newkey rsa:{bits} -nodes -keyout key.pem -subj /CN=bmc -out request.pem");
        openssl(&at, &key).await;
        openssl(&at, "x509 -req -in request.pem -signkey key.pem -set_serial -5 -out cert.pem")
            .await;
        openssl(&at, "x509 -in cert.pem -outform DER -out cert.der").await;
        let fingerprint = crate::emulator::sha256(&std::fs::read(at.join("cert.der")).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let bmc: SocketAddr = bmc.url.trim_start_matches("http://").parse().unwrap();
        let server = tokio::spawn(async move {
            for number in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                let socket = format!("{number}.sock");
                tokio::spawn(connection(client, bmc, at.clone(), socket, arguments));
            }
        });
        Self { url, fingerprint, server, _directory: directory }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn openssl(directory: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let made = command.args(arguments.split(' ')).current_dir(directory).output().await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Passes one connection on: from `client` through a TLS server to `bmc`.
async fn connection(
    mut client: TcpStream,
    bmc: SocketAddr,
    directory: std::path::PathBuf,
    socket: String,
    arguments: &[&str],
) {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-naccept", "1", "-unix", &socket]);
    command.args(["-cert", "cert.pem", "-key", "key.pem"]).args(arguments);
    command.current_dir(&directory).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let (mut input, mut output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut tls = listening(&directory.join(socket)).await;
    let plain = TcpStream::connect(bmc).await.unwrap();
    let (mut answers, mut requests) = plain.into_split();
    let inner = tokio::spawn(async move {
        let _ended = tokio::join!(copy(&mut output, &mut requests), copy(&mut answers, &mut input));
    });
    let _ended = copy_bidirectional(&mut client, &mut tls).await;
    inner.abort();
}

/// Connects to a server that is starting.
async fn listening(socket: &Path) -> UnixStream {
    for _ in 0..1000 {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return stream;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("openssl s_server does not listen");
}

struct Rig {
    bmc: QuirkyBmc,
    tls: Tls,
    jobs: Jobs,
    hardware: HardwareId,
}

impl Rig {
    async fn new(bits: u32, arguments: &'static [&'static str]) -> Self {
        let bmc = QuirkyBmc::start([Quirk::NoLocation].into()).await;
        let tls = Tls::start(&bmc, bits, arguments).await;
        let jobs = site::jobs(Arc::new(MemoryStore::default()));
        Self { bmc, tls, jobs, hardware: HardwareId::new() }
    }

    /// Creates the BMC's record after a login.
    async fn create(
        &self,
        change: impl FnOnce(&mut pb::bmc::Redfish),
    ) -> Result<pb::Bmc, power::Error> {
        let mut record = site::bmc(self.hardware, &self.tls.url, "");
        change(redfish(&mut record));
        self.jobs.bmcs.create(record, Login::Try, None).await
    }

    /// Carries out a job, which has to succeed.
    async fn success(&self) {
        let operations = vec![boot(Device::Pxe), power(Power::On)];
        let made = self.jobs.create(site::job(self.hardware, operations), None).await.unwrap();
        work(&self.jobs, self.hardware, TIMING).await.unwrap();
        let job = self.jobs.get(made.id.parse().unwrap()).await.unwrap();
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        assert!(self.bmc.is_on() && self.bmc.open_sessions() == 0);
    }
}

fn redfish(bmc: &mut pb::Bmc) -> &mut pb::bmc::Redfish {
    match &mut bmc.protocol {
        Some(Protocol::Redfish(redfish)) => redfish,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_rsa_key_exchange_only_is_managed_over_legacy_tls() {
    let rig = Rig::new(2048, RSA_KEY_EXCHANGE).await;
    let refused = rig.create(|_| {}).await.unwrap_err().to_string();
    let text =
        "the BMC cannot be reached: it offers no TLS cipher that this server allows; --legacy-tls";
    assert!(refused.starts_with(text), "{refused}");

    let mut created = rig.create(|redfish| redfish.legacy_tls = true).await.unwrap();
    assert_eq!(redfish(&mut created).certificate_sha256, rig.tls.fingerprint);
    rig.success().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_legacy_tls_a_bmc_with_another_certificate_gets_no_request() {
    let rig = Rig::new(2048, RSA_KEY_EXCHANGE).await;
    let other = "ab".repeat(32);
    let refused = rig.create(|redfish| {
        redfish.legacy_tls = true;
        redfish.certificate_sha256 = other.clone();
    });
    let refused = refused.await.unwrap_err().to_string();
    let text = format!(
        "the BMC's certificate has changed: expected SHA-256 {other}, received {}",
        rig.tls.fingerprint
    );
    assert!(refused.starts_with(&text), "{refused}");
    assert!(rig.bmc.exchanges().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_a_certificate_of_version_1_for_a_short_key_is_managed() {
    let rig = Rig::new(1024, SHORT_KEY).await;
    let mut created = rig.create(|_| {}).await.unwrap();
    assert_eq!(redfish(&mut created).certificate_sha256, rig.tls.fingerprint);
    rig.success().await;
}
