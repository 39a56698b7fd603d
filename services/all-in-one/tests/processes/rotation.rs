//! Keys of the site are replaced while clients, workers and systems call.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use runtime::Channel;
use runtime::authority::{SiteAuthority, request_certificate};
use runtime::boot_token::{BootTokens, Purpose};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Streaming};

use super::process::{Place, Process, arguments, free_address, machine, soon};

/// The last line of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";
const SECRET: &[u8] = br#"{"password":"hunter2"}"#;

/// The addresses, ids and secrets of callers from before the keys are replaced.
#[derive(Clone)]
struct Callers {
    grpc: SocketAddr,
    metadata: SocketAddr,
    hardware: String,
    /// The certificates to trust, as they were.
    authority: String,
    /// Of an admin: certificate and key.
    client: (String, String),
    /// Of the machine's worker: certificate and key.
    worker: (String, String),
    boot_token: String,
    /// The request for the worker's certificate.
    csr: Vec<u8>,
    session_token: String,
}

impl Callers {
    async fn new(server: &Process, metadata: SocketAddr) -> Self {
        let mut request = machine("02:00:00:00:00:01", "127.0.0.1");
        if let Some(hardware) = &mut request.hardware {
            hardware.extra = SECRET.to_vec();
        }
        let mut machines = HardwareServiceClient::new(server.channel().await);
        let made = machines.create_hardware(request).await.unwrap().into_inner().hardware.unwrap();
        let site = SiteAuthority::open(&server.place.secrets()).unwrap();
        let client = site.client(&runtime::Role::Admin.into()).unwrap();
        let address = [127, 0, 0, 1].into();
        let (hardware, now) = (made.id.parse().unwrap(), SystemTime::now());
        let tokens = BootTokens::new(site.keys()).unwrap();
        let boot_token = tokens.mint(Purpose::Identity, hardware, 0, address, now).unwrap();
        let (csr, key) = request_certificate().unwrap();
        let mut own = Self {
            grpc: server.place.grpc,
            metadata,
            hardware: made.id,
            authority: site.authority().to_owned(),
            client: (client.certificate, client.key.expose().clone()),
            worker: (String::new(), key.expose().clone()),
            boot_token,
            csr,
            session_token: String::new(),
        };
        own.worker.0 = own.redeem().await.unwrap();
        let head = "PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600";
        let opened = async {
            loop {
                if let Some(token) = own.http(head).await {
                    return token;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        own.session_token = soon(opened).await;
        own
    }

    /// Connects with a certificate and its key, if they are given. Each call has a connection of its own.
    async fn connect(&self, own: Option<&(String, String)>) -> Result<Channel, String> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authority));
        let tls = match own {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        };
        let endpoint = Endpoint::from_shared(format!("https://{}", self.grpc)).unwrap();
        let connected = endpoint.tls_config(tls).unwrap().connect().await;
        connected.map(Channel::from).map_err(|error| format!("{error:?}"))
    }

    /// Redeems the boot token, and returns the certificate.
    async fn redeem(&self) -> Result<String, String> {
        let mut worker = WorkerServiceClient::new(self.connect(None).await?);
        let holder = Some(wf::Holder { boot_id: "a".into(), process_id: "b".into() });
        let (boot_token, csr) = (self.boot_token.clone(), self.csr.clone());
        let redeemed = worker.redeem(wf::RedeemRequest { boot_token, csr, holder }).await;
        Ok(redeemed.map_err(|status| status.to_string())?.into_inner().certificate)
    }

    /// Reads the machine's secret as an admin.
    async fn read(&self) -> Result<(), String> {
        let mut machines = HardwareServiceClient::new(self.connect(Some(&self.client)).await?);
        let by = Some(hw::get_hardware_request::By::Id(self.hardware.clone()));
        let view = tinwright::common::v1::View::Full.into();
        let found = machines.get_hardware(hw::GetHardwareRequest { by, view }).await;
        let found = found.map_err(|status| status.to_string())?.into_inner().hardware;
        match found.is_some_and(|it| it.extra == SECRET) {
            true => Ok(()),
            false => Err("the machine has another secret".into()),
        }
    }

    /// Renews the worker's certificate, and returns the new one.
    async fn renew(&self) -> Result<String, String> {
        let mut worker = WorkerServiceClient::new(self.connect(Some(&self.worker)).await?);
        let renewed = worker.renew(wf::RenewRequest { csr: self.csr.clone() }).await;
        Ok(renewed.map_err(|status| status.to_string())?.into_inner().certificate)
    }

    /// Watches the machines as an admin, and returns what comes after all machines of now.
    async fn watch(&self) -> Streaming<hw::WatchHardwareResponse> {
        let own = self.connect(Some(&self.client)).await.unwrap();
        let watch = HardwareServiceClient::new(own)
            .watch_hardware(hw::WatchHardwareRequest::default())
            .await;
        let mut events = watch.unwrap().into_inner();
        let synced = |event| matches!(event, Some(hw::watch_hardware_response::Event::Synced(_)));
        while !synced(events.message().await.unwrap().unwrap().event) {}
        events
    }

    /// Returns the callers as they are after they got certificates of the present authority of `server`, which is the only one that they trust.
    async fn with_new_certificates(&self, server: &Process) -> Self {
        let site = SiteAuthority::open(&server.place.secrets()).unwrap();
        let own = site.client(&runtime::Role::Admin.into()).unwrap();
        let worker = (self.renew().await.unwrap(), self.worker.1.clone());
        let mut authority = site.authority();
        authority.truncate(authority.find(END).unwrap() + END.len());
        let client = (own.certificate, own.key.expose().clone());
        Self { authority, client, worker, ..self.clone() }
    }

    /// Reads metadata with the session token.
    async fn metadata(&self) -> Result<(), String> {
        let head = format!(
            "GET /latest/meta-data/instance-id HTTP/1.1\r\nX-aws-ec2-metadata-token: {}",
            self.session_token
        );
        self.http(&head).await.map(|_| ()).ok_or_else(|| "the session token is refused".into())
    }

    /// Returns the body of a request with this head; none unless the status is 200.
    async fn http(&self, head: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.metadata).await.ok()?;
        let request = format!("{head}\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metadata);
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }
}

/// Calls without a pause. The first refusal ends it.
struct Load {
    rounds: Arc<AtomicUsize>,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<Result<(), String>>,
}

impl Load {
    fn start(callers: &Arc<Callers>) -> Self {
        let (rounds, stop) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let (own, count, until) = (callers.clone(), rounds.clone(), stop.clone());
        let ended = tokio::spawn(async move {
            while !until.is_cancelled() {
                tokio::try_join!(
                    async { own.read().await.map_err(|it| format!("client: {it}")) },
                    async { own.redeem().await.map_err(|it| format!("boot token: {it}")) },
                    async { own.renew().await.map_err(|it| format!("worker: {it}")) },
                    async { own.metadata().await.map_err(|it| format!("system: {it}")) },
                )?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { rounds, stop, ended }
    }

    /// Waits until some calls were begun and answered from now on.
    async fn goes_on(&self) {
        let first = self.rounds.load(Ordering::Relaxed);
        let answered = async {
            while self.rounds.load(Ordering::Relaxed) < first + 5 && !self.ended.is_finished() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(answered).await;
    }

    async fn end(self) {
        self.stop.cancel();
        assert_eq!(self.ended.await.unwrap(), Ok(()), "after {:?} rounds", self.rounds);
    }
}

/// Runs `tinwright identity rotate` with these arguments.
async fn rotate(server: &Process, line: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(["identity", "rotate"]).args(line.split(' '));
    command.args(["--server", &format!("https://{}", server.place.grpc)]);
    command.arg("--secrets").arg(server.place.secrets());
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } = ended.unwrap();
    match status.success() {
        true => Ok(String::from_utf8(stdout).unwrap()),
        false => Err(String::from_utf8(stderr).unwrap()),
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Makes `file` of the secrets look as if it had been written two days ago.
fn make_old(server: &Process, file: &str) {
    set_modified(server, file, SystemTime::now() - 48 * HOUR);
}

/// Makes `file` of the secrets look new, however slow the machine is.
fn make_new(server: &Process, file: &str) {
    set_modified(server, file, SystemTime::now() + HOUR);
}

fn set_modified(server: &Process, file: &str, time: SystemTime) {
    let file = File::options().append(true).open(server.place.secrets().join(file)).unwrap();
    file.set_modified(time).unwrap();
}

async fn site() -> (Process, Arc<Callers>, Vec<String>) {
    let metadata = free_address();
    let flags = arguments(&["--no-rate-limits", "--metadata-listen", &metadata.to_string()]);
    let server = Place::new().start(&flags).await;
    let callers = Arc::new(Callers::new(&server, metadata).await);
    (server, callers, flags)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_refused_while_the_site_key_is_replaced_and_the_former_one_is_refused_afterwards()
{
    let (server, callers, flags) = site().await;
    let mut identity = IdentityServiceClient::new(server.channel().await);
    let fields = [("key".to_owned(), "0123456789abcdef".to_owned())].into();
    let credential = Some(id::Credential { role: id::Role::Viewer.into(), ..Default::default() });
    let request = id::CreateCredentialRequest { credential, fields, ..Default::default() };
    identity.create_credential(request).await.unwrap();
    let load = Load::start(&callers);
    load.goes_on().await;
    rotate(&server, "site-key --prepare").await.unwrap();
    load.goes_on().await;
    let replaced = rotate(&server, "site-key").await.unwrap();
    assert!(replaced.starts_with("site key replaced; "), "{replaced}");
    load.goes_on().await;
    let again = rotate(&server, "site-key").await.unwrap_err();
    assert!(again.contains("a rotation of the site key is not finished"), "{again}");
    make_new(&server, "site.key.old");
    for early in ["site-key --finish", "site-key --finish --force"] {
        let early = rotate(&server, early).await.unwrap_err();
        assert!(early.contains("what was made with the former key may be in use"), "{early}");
    }
    load.goes_on().await;
    load.end().await;

    // A crash in the middle leaves a site that starts, with both keys.
    let server = server.kill().start(&flags).await;
    callers.read().await.unwrap();
    callers.redeem().await.unwrap();
    make_old(&server, "site.key.old");
    rotate(&server, "site-key --finish").await.unwrap();
    assert!(!server.place.secrets().join("site.key.old").exists());
    assert!(callers.redeem().await.unwrap_err().contains("invalid boot token"));
    callers.metadata().await.unwrap_err();
    let server = server.kill().start(&flags).await;
    callers.read().await.unwrap();
    callers.renew().await.unwrap();
    let mut identity = IdentityServiceClient::new(server.channel().await);
    let listed = identity.list_credentials(id::ListCredentialsRequest::default()).await;
    assert_eq!(listed.unwrap().into_inner().credentials.len(), 1);
    let unknown = id::RotateSiteKeyRequest::default();
    let refused = identity.rotate_site_key(unknown).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_refused_while_the_authority_is_replaced_and_the_former_one_is_refused_afterwards()
 {
    let (server, callers, flags) = site().await;
    let load = Load::start(&callers);
    load.goes_on().await;
    rotate(&server, "ca --prepare").await.unwrap();
    load.goes_on().await;
    let unused = rotate(&server, "ca --finish --force").await.unwrap_err();
    assert!(unused.contains("the authority is prepared, and not replaced yet"), "{unused}");
    let admin = std::fs::read(server.place.secrets().join("admin.pem")).unwrap();
    rotate(&server, "ca").await.unwrap();
    // The certificates of the server and of the operator are issued anew while it runs.
    let reissued = async {
        let path = server.place.secrets().join("admin.pem");
        while !std::fs::read(&path).is_ok_and(|now| now != admin) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(reissued).await;
    load.goes_on().await;
    make_new(&server, "ca.pem");
    for early in ["ca --finish", "ca --finish --force"] {
        let early = rotate(&server, early).await.unwrap_err();
        assert!(early.contains("what was made with the former key may be in use"), "{early}");
    }
    load.goes_on().await;
    load.end().await;

    // A crash in the middle leaves a site that starts, and trusts both.
    let server = server.kill().start(&flags).await;
    callers.read().await.unwrap();
    let current = Arc::new(callers.with_new_certificates(&server).await);
    let metadata_is_served = async {
        while current.metadata().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(metadata_is_served).await;
    let load = Load::start(&current);
    load.goes_on().await;
    let (mut former, mut open) = (callers.watch().await, current.watch().await);
    make_old(&server, "ca.pem");
    rotate(&server, "ca --finish").await.unwrap();
    // The server ends the connection of the former certificate, and no other.
    while let Ok(Some(_)) = soon(former.message()).await {}
    load.goes_on().await;
    load.end().await;
    assert!(open.message().now_or_never().is_none());
    // The certificate is what is refused: the server of the new authority is trusted.
    let known = Callers { authority: current.authority.clone(), ..Callers::clone(&callers) };
    known.read().await.unwrap_err();
    known.renew().await.unwrap_err();
    // A caller that knows the former authority only, and has a certificate of the new one, is still served.
    let long_at_work = Callers { authority: callers.authority.clone(), ..Callers::clone(&current) };
    long_at_work.renew().await.unwrap();
    let server = server.kill().start(&flags).await;
    current.read().await.unwrap();
    long_at_work.renew().await.unwrap();
    callers.read().await.unwrap_err();
    drop(server);
}
