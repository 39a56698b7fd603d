//! A server on free ports with its own directory, and clients of every role.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use all_in_one::Server;
use all_in_one::config::{CommandLine, Config};
use clap::{Args as _, Command, FromArgMatches as _};
use runtime::authority::SiteAuthority;
use runtime::{Caller, Channel, Role};
use tempfile::TempDir;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// A running server. Drop ends it.
pub struct RunningServer {
    pub grpc: SocketAddr,
    pub vitals: SocketAddr,
    pub gateway: SocketAddr,
    pub dir: TempDir,
    stop: CancellationToken,
    task: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Parses the command line of a server whose metrics are at a free port.
pub fn config(arguments: &[&str]) -> Config {
    let command = CommandLine::augment_args(Command::new("tinwright")).no_binary_name(true);
    let common = ["--metrics-listen", "127.0.0.1:0", "--drain-seconds", "5"];
    let common = [&common[..], &["--gateway-listen", "127.0.0.1:0"]].concat();
    let matches = command.get_matches_from([&common, arguments].concat());
    Config::load(CommandLine::from_arg_matches(&matches).unwrap()).unwrap()
}

/// Starts a server with an empty data directory.
pub async fn start() -> RunningServer {
    start_in(tempfile::tempdir().unwrap()).await
}

/// Starts a server with the data in `dir`.
pub async fn start_in(dir: TempDir) -> RunningServer {
    start_with(dir, &[]).await
}

/// The same with further arguments.
pub async fn start_with(dir: TempDir, arguments: &[&str]) -> RunningServer {
    let data = dir.path().to_str().unwrap();
    let arguments = [&["--data", data, "--listen", "127.0.0.1:0"], arguments].concat();
    let server = Server::open(config(&arguments)).await.unwrap();
    let (grpc, vitals) = (server.grpc().unwrap()[0], server.vitals().unwrap());
    let gateway = server.gateway().unwrap()[0];
    let stop = CancellationToken::new();
    let task = Some(tokio::spawn(server.run(stop.clone())));
    RunningServer { grpc, vitals, gateway, dir, stop, task }
}

impl RunningServer {
    /// Ends the server. Returns its directory.
    pub async fn end(mut self) -> TempDir {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(20), self.task.take().unwrap());
        ended.await.expect("the server ends within 20 s").unwrap().unwrap();
        self.dir
    }

    pub fn secrets(&self) -> std::path::PathBuf {
        self.dir.path().join("secrets")
    }

    /// Returns a channel with a certificate of `role`, or without a certificate.
    pub async fn channel(&self, role: Option<Role>) -> Channel {
        self.channel_of(role.map(Caller::from)).await
    }

    /// Returns a channel with the certificate of `caller`, or without a certificate.
    pub async fn channel_of(&self, caller: Option<Caller>) -> Channel {
        let site = SiteAuthority::open(&self.secrets()).unwrap();
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(site.authority()));
        let tls = match caller.map(|caller| site.client(&caller).unwrap()) {
            Some(own) => tls.identity(Identity::from_pem(&own.certificate, own.key.expose())),
            None => tls,
        };
        connect(self.grpc, tls).await.unwrap()
    }

    pub async fn hardware(&self, role: Role) -> HardwareServiceClient<Channel> {
        HardwareServiceClient::new(self.channel(Some(role)).await)
    }
}

pub async fn connect(
    to: SocketAddr,
    tls: ClientTlsConfig,
) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("https://{to}"))?;
    Ok(endpoint.tls_config(tls)?.connect().await?.into())
}

/// Returns the certificate authority of another site.
pub fn stranger(dir: &Path) -> SiteAuthority {
    SiteAuthority::open(dir).unwrap()
}

/// Waits until `condition` holds, at most a minute.
pub async fn until(mut condition: impl AsyncFnMut() -> bool, text: &str) {
    for _ in 0..6000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute: {text}");
}
