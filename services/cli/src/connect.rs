//! Finding the server and proving who we are.
//!
//! The folder of secrets is the server's own, or a copy of three of its files: `ca.pem`, which tells whom to trust, and
//! `admin.pem` with `admin-key.pem`, which say who asks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tinwright::common::v1 as common;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::output::Format;

/// How long the server may take to be there.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a silent server is left alone before it is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The longest message taken from it, in bytes: a page of the largest objects, seen whole.
pub const LARGEST: usize = 64 << 20;

/// Where to ask, and how to print.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// How to print
    #[arg(short, long, default_value = "table")]
    pub output: Format,
    /// Where to ask
    #[command(flatten)]
    pub connection: Connection,
}

/// How much of an object is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// All but secrets and user data.
    Basic,
    /// Everything; for administrators.
    Full,
}

/// Which server, and as whom.
#[derive(Clone, Debug, clap::Args)]
pub struct Connection {
    /// The server's URL; http:// for one that serves in clear
    #[arg(
        long,
        env = "TINWRIGHT_SERVER",
        value_name = "URL",
        default_value = "https://127.0.0.1:42113"
    )]
    pub server: String,
    /// Folder with ca.pem, admin.pem and admin-key.pem [default: secrets in the server's data directory]
    #[arg(long, env = "TINWRIGHT_SECRETS", value_name = "DIR")]
    pub secrets: Option<PathBuf>,
    /// The server's data directory, where its secrets are
    #[arg(long, env = "TINWRIGHT_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl Connection {
    /// A channel to the server.
    pub async fn open(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(self.server.clone())
            .with_context(|| format!("--server {} is no URL", self.server))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE);
        let endpoint = match self.server.starts_with("http://") {
            true => endpoint,
            false => endpoint.tls_config(self.tls()?)?,
        };
        let channel = endpoint.connect().await;
        let hint = "is it running, and is --server right?";
        channel.with_context(|| format!("no server at {}: {hint}", self.server))
    }

    fn tls(&self) -> anyhow::Result<ClientTlsConfig> {
        let folder = match (&self.secrets, &self.data) {
            (Some(secrets), _) => secrets.clone(),
            (None, Some(data)) => data.join("secrets"),
            (None, None) => crate::data()?.join("secrets"),
        };
        let authority = Certificate::from_pem(read(&folder, "ca.pem")?);
        let own = Identity::from_pem(read(&folder, "admin.pem")?, read(&folder, "admin-key.pem")?);
        Ok(ClientTlsConfig::new().ca_certificate(authority).identity(own))
    }
}

impl From<View> for i32 {
    fn from(view: View) -> Self {
        match view {
            View::Basic => common::View::Basic.into(),
            View::Full => common::View::Full.into(),
        }
    }
}

fn read(folder: &Path, name: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    let hint = "give --data or --secrets, or copy the file from the server";
    std::fs::read_to_string(&path).with_context(|| format!("reading {}: {hint}", path.display()))
}
