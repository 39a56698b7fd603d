//! Our server in a network of its own, with network boot, metadata, and TLS on the API.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rack::SERVER;
use rustix::process::Signal;

use crate::network::Network;
use crate::process::{KiB, Measured, Process, core};

/// The loader that machines are told.
pub const LOADER: &str = "snponly.efi";
/// How large the one is that is served, in bytes: as large as Debian's.
const LOADER_SIZE: usize = 173_792;
/// Where the server says how it is, inside its namespace.
const VITALS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9464);
/// How long a server may take to start or to settle.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at memory; they agree when they differ by less than [`STEADY`].
const LOOK: Duration = Duration::from_secs(1);
const STEADY: KiB = KiB(256);

/// How a server is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Which log lines it writes.
    pub log: &'static str,
    /// The only core it may use; none for all.
    pub core: Option<usize>,
    /// Whether it limits how much each machine may ask.
    pub limits: bool,
}

impl Settings {
    /// As it is run where nothing else is said.
    pub fn usual(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), log: "info", core: None, limits: true }
    }

    /// As it is measured beside peers: as silent as they are, on the servers' core, as much as it can.
    pub fn beside(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), log: "warn", core: Some(core::SERVER), limits: false }
    }
}

/// How long after its start a server answered.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// `/healthz`.
    pub healthy: Duration,
    /// `/readyz`.
    pub ready: Duration,
}

/// A server and its machines' network. Dropping it ends the server and takes the namespaces away.
#[derive(Debug)]
pub struct Site {
    server: Option<Process>,
    settings: Settings,
    network: Network,
}

impl Site {
    /// One whose server has not been started.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let network = Network::new()?;
        let site = Self { server: None, settings, network };
        fs::create_dir(site.loaders())?;
        fs::write(site.loaders().join(LOADER), loader())?;
        Ok(site)
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.network.lab.path("data")
    }

    /// What it serves by TFTP.
    pub fn loaders(&self) -> PathBuf {
        self.network.lab.path("loaders")
    }

    /// Starts the server, and waits until it is healthy and ready.
    pub fn start(&mut self) -> anyhow::Result<Started> {
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
        if !self.settings.limits {
            command.arg("--no-rate-limits");
        }
        self.network.enter_servers()?;
        let start = Instant::now();
        self.server = Some(Process::start(&mut command, &self.log())?);
        let healthy = self.answering("/healthz", start)?;
        Ok(Started { healthy, ready: self.answering("/readyz", start)? })
    }

    /// How long after `start` the server answers `path` with success.
    fn answering(&mut self, path: &str, start: Instant) -> anyhow::Result<Duration> {
        while !answers(path) {
            let ended = self.server.as_mut().map(Process::has_ended).transpose()?;
            let log = || fs::read_to_string(self.log()).unwrap_or_default();
            anyhow::ensure!(ended != Some(true), "the server ended: {}", log());
            anyhow::ensure!(start.elapsed() < PATIENCE, "no answer to {path}: {}", log());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(start.elapsed())
    }

    fn log(&self) -> PathBuf {
        self.network.lab.path("tinwright.log")
    }

    /// The server that runs.
    pub fn server(&self) -> anyhow::Result<&Process> {
        self.server.as_ref().context("no server runs")
    }

    /// What is measured of it, while it runs.
    pub fn measured(&self) -> anyhow::Result<Measured<'_>> {
        Ok(Measured { network: &self.network, process: self.server()? })
    }

    /// Ends the server by `signal`.
    pub fn stop(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.server.take().context("no server runs")?.stop(signal)
    }

    /// Takes away what the server, which must have ended, has stored.
    pub fn wipe(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The memory the server has resident once that changes no more.
    pub fn resident(&self) -> anyhow::Result<KiB> {
        let server = self.server()?;
        let until = Instant::now() + PATIENCE;
        let mut last = server.resident()?;
        loop {
            std::thread::sleep(LOOK);
            let now = server.resident()?;
            if now.0.abs_diff(last.0) < STEADY.0 {
                return Ok(now);
            }
            anyhow::ensure!(Instant::now() < until, "the server's memory does not settle");
            last = now;
        }
    }

    /// Moves this thread to the machines' network: sockets it makes from here on are theirs.
    pub fn enter(&self) -> anyhow::Result<()> {
        self.network.enter()
    }
}

/// What stands for the loader: no two parts of it are alike, so none can pass for another.
pub fn loader() -> Vec<u8> {
    (0..LOADER_SIZE.div_ceil(4)).flat_map(|word| (word as u32).to_be_bytes()).collect()
}

/// Whether the server in this thread's namespace answers `path` with success.
fn answers(path: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(VITALS)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}
