//! Runs the Tinwright server in the lab, with clients outside.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use runtime::Channel;
use rustix::io::{FdFlags, fcntl_setfd};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use setup::environment::Environment;

use crate::SERVER;
use crate::lab::{Lab, wait};

/// Builds the operating system installation environment if the worker has changed. Returns the folder of kernel and initramfs.
pub fn osie() -> anyhow::Result<PathBuf> {
    Environment::Worker.build()
}

/// Makes machines load our iPXE although they have one: the PXE ROM of a virtual BIOS machine is iPXE. Ours then
/// fetches kernel and initramfs by calls of the ROM, which are slow in an emulated machine.
pub const CHAIN_IPXE: &str = "--netboot-chain-ipxe=true";
/// Answers once the server is ready.
const READY: &str = "http://127.0.0.1:9464/readyz";
/// The longest time until the server is ready, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The server's settings.
#[derive(Clone, Debug)]
pub struct Server {
    /// The data directory.
    pub data: PathBuf,
    /// The folder with kernel and initramfs.
    pub osie: PathBuf,
    /// The folder with images.
    pub files: PathBuf,
    /// The API's address outside the lab.
    pub api: SocketAddr,
    /// The API's socket. It stays open while the server is down, so that nobody else gets its port.
    socket: Arc<TcpListener>,
    /// Additional command-line flags.
    pub flags: Vec<String>,
}

impl Server {
    /// Creates the settings of a server with its data in the lab. The server is not started.
    pub fn new(lab: &Lab, osie: &Path, files: &Path) -> anyhow::Result<Self> {
        let socket =
            Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the API's socket")?);
        let api = socket.local_addr()?;
        let (osie, files) = (osie.to_owned(), files.to_owned());
        Ok(Self { data: lab.path("data"), osie, files, api, socket, flags: Vec::new() })
    }

    /// Starts the server, with its API on a socket that was created outside the lab, and waits until it is ready.
    pub fn start(&self, lab: &mut Lab) -> anyhow::Result<()> {
        let inherited = self.socket.try_clone()?;
        fcntl_setfd(&inherited, FdFlags::empty())?;
        let number = inherited.as_raw_fd();
        // LISTEN_FDS requires descriptor 3 and the server's own pid; the shell's exec keeps the pid.
        let line =
            format!("exec 3<&{number}; LISTEN_FDS=1 LISTEN_FDNAMES=grpc LISTEN_PID=$$ exec \"$@\"");
        // Not sh: Debian's dash accepts only one digit in a redirection.
        let mut command = lab.command("bash");
        command.args(["-c", &line, "bash"]).arg(setup::program("tinwright")).arg("serve");
        command.args(["--log", "info,netboot=debug", "--listen", &format!("{SERVER}:42113")]);
        command.arg("--data").arg(&self.data).args(["--netboot-interface", "br0"]);
        command.arg("--osie").arg(&self.osie).arg("--files").arg(&self.files);
        command.args(["--metadata-listen", "169.254.169.254:80"]);
        command.args(["--console", "ttyS0"]).args(&self.flags);
        lab.start("tinwright", &mut command)?;
        let started = wait("the server", START_TIMEOUT, || {
            if lab.has_ended("tinwright").ok()? {
                return Some(false);
            }
            let mut curl = lab.command("curl");
            curl.args(["--silent", "--fail", "--output", "/dev/null", READY]);
            curl.status().ok()?.success().then_some(true)
        });
        anyhow::ensure!(started?, "the server ended: {}", lab.log("tinwright"));
        Ok(())
    }

    /// Returns a channel to the API with the operator's certificate.
    pub async fn channel(&self) -> anyhow::Result<Channel> {
        self.channel_as(read_identity(&self.data.join("secrets"), "admin")?).await
    }

    /// Returns a channel to the API with the certificate `own`.
    pub async fn channel_as(&self, own: Identity) -> anyhow::Result<Channel> {
        let authority = std::fs::read_to_string(self.data.join("secrets/ca.pem"))?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        let endpoint = Endpoint::from_shared(format!("https://{}", self.api))?;
        Ok(endpoint.tls_config(tls.identity(own))?.connect_lazy().into())
    }

    /// Returns the `tinwright` command with its environment set for this server.
    pub fn cli(&self) -> Command {
        let mut command = Command::new(setup::program("tinwright"));
        command.env("TINWRIGHT_SERVER", format!("https://{}", self.api));
        command.env("TINWRIGHT_DATA", &self.data);
        command
    }
}

/// Reads the certificate and key of `name` in the directory `secrets`.
pub fn read_identity(secrets: &Path, name: &str) -> anyhow::Result<Identity> {
    let read = |file: String| std::fs::read_to_string(secrets.join(file));
    Ok(Identity::from_pem(read(format!("{name}.pem"))?, read(format!("{name}-key.pem"))?))
}
