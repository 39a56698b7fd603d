//! A server of the release build in a network namespace, and the machines' network in another one.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rack::SERVER;
use rack::client::Client;
use rack::lab::Lab;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The machines' side of the link, a router to them.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The machines' network: one that is set aside for benches (RFC 2544), and large enough.
const MACHINES: &str = "198.18.0.0/15";
/// Where the server says how it is, inside its namespace.
const VITALS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9464);
/// How long a server may take to start or to settle.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at memory; they agree when they differ by less than [`STEADY`].
const LOOK: Duration = Duration::from_secs(1);
const STEADY: KiB = KiB(256);

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KiB(pub(crate) u64);

/// How long after its start a server answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) healthy: Duration,
    pub(crate) ready: Duration,
}

/// A server and its machines' network. Dropping it ends the server and takes the namespaces away.
#[derive(Debug)]
pub(crate) struct Site {
    server: Option<Child>,
    machines: Client,
    lab: Lab,
}

impl Site {
    /// One whose server has not been started.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let machines = Client::new(&lab, 1, "02:ff:00:00:00:01")?;
        machines.settle(&ROUTER.to_string())?;
        // Every address of the network is here: forty thousand of them need not be added one by one.
        machines.ip(&format!("route add local {MACHINES} dev lo"))?;
        let route = ["route", "add", MACHINES, "via", &ROUTER.to_string()];
        setup::run(lab.command("ip").args(route))?;
        // A loader by its name alone: DHCP tells it, nobody loads it.
        fs::create_dir(lab.path("loaders"))?;
        fs::write(lab.path("loaders").join("snponly.efi"), "")?;
        Ok(Self { server: None, machines, lab })
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.lab.path("data")
    }

    /// Starts the server, and waits until it is healthy and ready.
    pub(crate) fn start(&mut self) -> anyhow::Result<Started> {
        let log = File::options().create(true).append(true).open(self.lab.path("tinwright.log"))?;
        let mut command = self.lab.command(env!("CARGO_BIN_EXE_tinwright"));
        command.args(["serve", "--netboot-interface", "br0", "--loaders"]);
        command.arg(self.lab.path("loaders")).arg("--data").arg(self.data());
        command.args(["--metadata-listen", "169.254.169.254:80"]);
        command.arg("--listen").arg(format!("{SERVER}:42113"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        enter(self.lab.name())?;
        let start = Instant::now();
        self.server = Some(command.spawn().context("starting the server")?);
        let healthy = self.answering("/healthz", start)?;
        Ok(Started { healthy, ready: self.answering("/readyz", start)? })
    }

    /// How long after `start` the server answers `path` with success.
    fn answering(&mut self, path: &str, start: Instant) -> anyhow::Result<Duration> {
        while !answers(path) {
            let ended = self.server.as_mut().map(Child::try_wait).transpose()?.flatten();
            let log = || fs::read_to_string(self.lab.path("tinwright.log")).unwrap_or_default();
            anyhow::ensure!(ended.is_none(), "the server ended: {}", log());
            anyhow::ensure!(start.elapsed() < PATIENCE, "no answer to {path}: {}", log());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(start.elapsed())
    }

    /// Ends the server by `signal`.
    pub(crate) fn stop(&mut self, signal: Signal) -> anyhow::Result<()> {
        let mut server = self.server.take().context("no server runs")?;
        kill_process(Pid::from_child(&server), signal)?;
        server.wait()?;
        Ok(())
    }

    /// Takes away what the server, which must have ended, has stored.
    pub(crate) fn wipe(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The memory the server has resident once that changes no more.
    pub(crate) fn resident(&self) -> anyhow::Result<KiB> {
        let server = self.server.as_ref().context("no server runs")?;
        let until = Instant::now() + PATIENCE;
        let mut last = resident(server.id())?;
        loop {
            std::thread::sleep(LOOK);
            let now = resident(server.id())?;
            if now.0.abs_diff(last.0) < STEADY.0 {
                return Ok(now);
            }
            anyhow::ensure!(Instant::now() < until, "the server's memory does not settle");
            last = now;
        }
    }

    /// Moves this thread to the machines' network: sockets it makes from here on are theirs.
    pub(crate) fn enter(&self) -> anyhow::Result<()> {
        enter(self.machines.name())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.server.is_some()
            && let Err(error) = self.stop(Signal::KILL)
        {
            eprintln!("front_door: {error:#}");
        }
    }
}

/// Moves this thread into the network namespace `name`.
fn enter(name: &str) -> anyhow::Result<()> {
    let namespace = File::open(format!("/run/netns/{name}"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering the network namespace {name}"))
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

/// What the process `pid` has in memory at this moment (proc(5), `VmRSS`).
fn resident(pid: u32) -> anyhow::Result<KiB> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let number = line.trim().strip_suffix(" kB").context("VmRSS is not in kB")?;
    Ok(KiB(number.parse()?))
}
