//! Tinwright in the lab, and clients for it from outside.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rustix::io::{FdFlags, fcntl_setfd};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::SERVER;
use crate::lab::{Lab, wait};

/// Kernel and initramfs of the operating system installation environment: made whenever the worker is another.
pub fn osie() -> anyhow::Result<PathBuf> {
    let folder = setup::root().join("target/peers/osie");
    let mut build = Command::new(setup::program("tinwright"));
    build.args(["osie", "build", "--output"]).arg(&folder);
    build.arg("--worker").arg(setup::program("tinwright-worker"));
    build.arg("--cache").arg(setup::root().join("target/peers/kernel"));
    setup::run(build.stdout(std::process::Stdio::null()))?;
    Ok(folder)
}

/// What the server is given.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its data directory.
    pub data: PathBuf,
    /// Kernel and initramfs.
    pub osie: PathBuf,
    /// Images.
    pub files: PathBuf,
    /// Its API, as seen from outside the lab.
    pub api: SocketAddr,
    /// Flags besides those that all servers of the rack have.
    pub flags: Vec<String>,
}

impl Server {
    /// One that has not been started: its data in the lab, `osie` and `files` wherever they are.
    pub fn new(lab: &Lab, osie: &Path, files: &Path) -> anyhow::Result<Self> {
        // Freed at once: what matters is a port that was free a moment ago.
        let api = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let (osie, files) = (osie.to_owned(), files.to_owned());
        Ok(Self { data: lab.path("data"), osie, files, api, flags: Vec::new() })
    }

    /// Starts it, its API on a socket of the world outside, and waits until it is ready.
    pub fn start(&self, lab: &mut Lab) -> anyhow::Result<()> {
        let socket = TcpListener::bind(self.api).context("the API's socket")?;
        let number = socket.as_raw_fd();
        fcntl_setfd(&socket, FdFlags::empty())?;
        // The number 3 and the pid are what LISTEN_FDS asks for; the shell becomes the server.
        let line =
            format!("exec 3<&{number}; LISTEN_FDS=1 LISTEN_FDNAMES=grpc LISTEN_PID=$$ exec \"$@\"");
        // Not sh: Debian's takes no number of two digits there.
        let mut command = lab.command("bash");
        command.args(["-c", &line, "bash"]).arg(setup::program("tinwright")).arg("serve");
        command.args(["--log", "info,netboot=debug", "--listen", &format!("{SERVER}:42113")]);
        command.arg("--data").arg(&self.data).args(["--netboot-interface", "br0"]);
        // A virtual BIOS machine's interface has iPXE for its firmware, and no other PXE.
        command.args(["--netboot-chain-ipxe", "true"]);
        command.arg("--osie").arg(&self.osie).arg("--files").arg(&self.files);
        command.args(["--metadata-listen", "169.254.169.254:80"]);
        command.args(["--console", "ttyS0"]).args(&self.flags);
        lab.start("tinwright", &mut command)?;
        let ready = wait("the server", Duration::from_secs(30), || {
            let mut ask = lab.command("curl");
            ask.args([
                "--silent",
                "--fail",
                "--output",
                "/dev/null",
                "http://127.0.0.1:9464/readyz",
            ]);
            ask.status().ok()?.success().then_some(())
        });
        ready.with_context(|| lab.log("tinwright"))
    }

    /// A channel to its API, as its operator.
    pub async fn channel(&self) -> anyhow::Result<Channel> {
        let read = |name: &str| std::fs::read_to_string(self.data.join("secrets").join(name));
        let own = Identity::from_pem(read("admin.pem")?, read("admin-key.pem")?);
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem")?));
        let endpoint = Endpoint::from_shared(format!("https://{}", self.api))?;
        Ok(endpoint.tls_config(tls.identity(own))?.connect_lazy())
    }

    /// A client command against it, as people would type it.
    pub fn cli(&self) -> Command {
        let mut command = Command::new(setup::program("tinwright"));
        command.env("TINWRIGHT_SERVER", format!("https://{}", self.api));
        command.env("TINWRIGHT_DATA", &self.data);
        command
    }
}
