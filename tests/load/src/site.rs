//! Runs our server in its own network, with network boot, metadata, and TLS on the API.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rack::SERVER;
use rustix::process::Signal;

use crate::network::Network;
use crate::process::{KiB, Measured, Process, core};

/// File name of the loader that the server offers.
pub const LOADER: &str = "snponly.efi";
/// Size of the loader, in bytes: that of Debian's.
const LOADER_BYTES: usize = 173_792;
/// The server's health and metrics address, inside its namespace.
const HEALTH_ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9464);
/// Maximum time for a server's start, and for its memory to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Memory is read at this interval until two readings differ by less than [`SETTLED_DIFFERENCE`].
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
const SETTLED_DIFFERENCE: KiB = KiB(256);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Log level.
    pub log: &'static str,
    /// The only core that the server may use; `None` for all.
    pub core: Option<usize>,
    /// True if rate limits are enforced.
    pub rate_limits: bool,
}

impl Settings {
    /// The default settings.
    pub fn with_defaults(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), log: "info", core: None, rate_limits: true }
    }

    /// Settings for comparison with peers: warnings only, one core, no rate limits.
    pub fn beside_peers(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), log: "warn", core: Some(core::SERVER), rate_limits: false }
    }
}

/// Times from a server's start to its first successful responses.
#[derive(Clone, Copy, Debug)]
pub struct StartTimes {
    /// Time until `/healthz` succeeded.
    pub healthy: Duration,
    /// Time until `/readyz` succeeded.
    pub ready: Duration,
}

/// A server and its machines' network. Drop ends the server and removes the namespaces.
#[derive(Debug)]
pub struct Site {
    server: Option<Process>,
    settings: Settings,
    network: Network,
}

impl Site {
    /// Creates the network and the loader; the server is not started.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let network = Network::new()?;
        let site = Self { server: None, settings, network };
        fs::create_dir(site.loaders())?;
        fs::write(site.loaders().join(LOADER), loader())?;
        Ok(site)
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.network.lab.path("data")
    }

    /// Returns the directory that is served over TFTP.
    pub fn loaders(&self) -> PathBuf {
        self.network.lab.path("loaders")
    }

    /// Starts the server, and waits until it is healthy and ready.
    pub fn start(&mut self) -> anyhow::Result<StartTimes> {
        let lab = &self.network.lab;
        let mut command = match self.settings.core {
            None => lab.command(&self.settings.program),
            Some(core) => {
                let mut pinned = lab.command("taskset");
                pinned.args(["--cpu-list", &core.to_string()]).arg(&self.settings.program);
                pinned
            }
        };
        command.args(["serve", "--log", self.settings.log, "--netboot-interface", "br0"]);
        command.arg("--loaders").arg(self.loaders()).arg("--data").arg(self.data());
        command.args(["--metadata-listen", "169.254.169.254:80"]);
        command.arg("--listen").arg(format!("{SERVER}:42113"));
        if !self.settings.rate_limits {
            command.arg("--no-rate-limits");
        }
        self.network.enter_servers()?;
        let start = Instant::now();
        self.server = Some(Process::start(&mut command, &self.log())?);
        let healthy = self.wait_for("/healthz", start)?;
        Ok(StartTimes { healthy, ready: self.wait_for("/readyz", start)? })
    }

    /// Waits until `path` succeeds. Returns the time since `start`.
    fn wait_for(&mut self, path: &str, start: Instant) -> anyhow::Result<Duration> {
        while !succeeds(path) {
            let ended = self.server.as_mut().map(Process::has_ended).transpose()?;
            let log = || fs::read_to_string(self.log()).unwrap_or_default();
            anyhow::ensure!(ended != Some(true), "the server ended: {}", log());
            anyhow::ensure!(start.elapsed() < SETTLE_TIMEOUT, "no success at {path}: {}", log());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(start.elapsed())
    }

    fn log(&self) -> PathBuf {
        self.network.lab.path("tinwright.log")
    }

    /// Returns a command of the program as a client of the server, as its admin.
    pub fn command(&self) -> Command {
        let mut command = self.network.lab.command(&self.settings.program);
        command.env("TINWRIGHT_SERVER", format!("https://{SERVER}:42113"));
        command.env("TINWRIGHT_DATA", self.data());
        command
    }

    /// Returns the server's process.
    pub fn server(&self) -> anyhow::Result<&Process> {
        self.server.as_ref().context("the server is not running")
    }

    /// Returns process and network for measurements.
    pub fn measured(&self) -> anyhow::Result<Measured<'_>> {
        Ok(Measured { network: &self.network, process: self.server()? })
    }

    /// Ends the server with `signal`.
    pub fn stop(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.server.take().context("the server is not running")?.stop(signal)
    }

    /// Removes the data directory. The server must have ended.
    pub fn wipe(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the server's resident memory once it no longer changes.
    pub fn settled_memory(&self) -> anyhow::Result<KiB> {
        let server = self.server()?;
        let until = Instant::now() + SETTLE_TIMEOUT;
        let mut last = server.resident_memory()?;
        loop {
            std::thread::sleep(MEMORY_INTERVAL);
            let now = server.resident_memory()?;
            if now.0.abs_diff(last.0) < SETTLED_DIFFERENCE.0 {
                return Ok(now);
            }
            anyhow::ensure!(Instant::now() < until, "the server's memory does not settle");
            last = now;
        }
    }

    /// Moves this thread into the machines' namespace; its next sockets are created there.
    pub fn enter(&self) -> anyhow::Result<()> {
        self.network.enter()
    }
}

/// Returns the loader's content. No two words are equal, so a misplaced block is detected.
pub fn loader() -> Vec<u8> {
    (0..LOADER_BYTES.div_ceil(4)).flat_map(|word| (word as u32).to_be_bytes()).collect()
}

/// True if the server in this thread's namespace answers `path` with 200.
fn succeeds(path: &str) -> bool {
    let request = || {
        let mut stream = TcpStream::connect(HEALTH_ADDRESS)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        std::io::Result::Ok(response.starts_with("HTTP/1.1 200"))
    };
    request().unwrap_or(false)
}
