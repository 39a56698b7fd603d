//! Finding the server, and the identity of the caller.
//!
//! The directory of secrets is the server's own, or a copy of three of its files: `ca.pem`, the certificate authority to
//! trust, and `admin.pem` with `admin-key.pem`, the caller's certificate.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use tinwright::common::v1 as common;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data before an HTTP/2 ping.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// The largest response in bytes: a page of the largest objects in full view.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The parts of an object to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// All but secrets and user data
    Basic = common::View::Basic as isize,
    /// Everything; for administrators
    Full = common::View::Full as isize,
}

/// The server, and the identity of the caller.
#[derive(Clone, Debug, clap::Args)]
pub struct Connection {
    /// Connect to this URL; http:// for a server without TLS
    #[arg(
        long,
        global = true,
        env = "TINWRIGHT_SERVER",
        value_name = "URL",
        default_value = "https://127.0.0.1:42113"
    )]
    pub server: String,
    /// Read ca.pem, admin.pem and admin-key.pem from this directory [default: secrets in the server's data directory]
    #[arg(
        id = "connection_secrets",
        long = "secrets",
        global = true,
        env = "TINWRIGHT_SECRETS",
        value_name = "DIR"
    )]
    pub secrets: Option<PathBuf>,
    /// Read the secrets of the server with this data directory
    // An id of its own: the values of global arguments are passed up to the program, whose own `--data` has another type.
    #[arg(
        id = "connection_data",
        long = "data",
        global = true,
        env = "TINWRIGHT_DATA",
        value_name = "DIR"
    )]
    pub data: Option<PathBuf>,
}

impl Connection {
    /// Connects to the server.
    pub async fn open(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(self.server.clone())
            .with_context(|| format!("--server {} is not a URL", self.server))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL);
        let endpoint = match self.server.starts_with("http://") {
            true => endpoint,
            false => endpoint.tls_config(self.tls()?)?,
        };
        let channel = endpoint.connect().await;
        let hint = "is it running, and is --server right?";
        channel.with_context(|| format!("no server at {}: {hint}", self.server))
    }

    fn tls(&self) -> anyhow::Result<ClientTlsConfig> {
        let directory = match (&self.secrets, &self.data) {
            (Some(secrets), _) => secrets.clone(),
            (None, Some(data)) => data.join("secrets"),
            (None, None) => crate::data()?.join("secrets"),
        };
        let read = |name| {
            let path = directory.join(name);
            let hint = "give --data or --secrets, or copy the file from the server";
            let text = std::fs::read_to_string(&path);
            text.with_context(|| format!("reading {}: {hint}", path.display()))
        };
        let authority = Certificate::from_pem(read("ca.pem")?);
        let identity = Identity::from_pem(read("admin.pem")?, read("admin-key.pem")?);
        Ok(ClientTlsConfig::new().ca_certificate(authority).identity(identity))
    }
}
