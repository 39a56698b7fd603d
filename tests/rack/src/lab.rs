//! A network namespace with a bridge, and the processes in it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::SERVER;
use setup::run;

/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// The namespace. Dropping it ends what runs in it, by the pids that are its own, and takes it away.
#[derive(Debug)]
pub struct Lab {
    name: String,
    dir: TempDir,
    running: Vec<(String, Child)>,
}

impl Lab {
    /// A fresh one: a bridge with the server's address and the metadata address on it.
    pub fn new() -> anyhow::Result<Self> {
        // Several labs of one process, as tests make them, are told apart by their number.
        static LABS: AtomicU32 = AtomicU32::new(0);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("rack{}n{number}", std::process::id());
        let dir = tempfile::Builder::new().prefix("rack").tempdir()?;
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let lab = Self { name, dir, running: Vec::new() };
        let server = format!("{SERVER}/24");
        for line in [
            "link set lo up",
            "link add br0 type bridge stp_state 0 forward_delay 0",
            &format!("addr add {server} dev br0"),
            "addr add 169.254.169.254/32 dev br0",
            "link set br0 up",
        ] {
            lab.ip(line)?;
        }
        Ok(lab)
    }

    /// What `ip` is told inside.
    pub fn ip(&self, line: &str) -> anyhow::Result<()> {
        run(Command::new("ip").args(["-n", &self.name]).args(line.split_whitespace()))
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A directory that goes with the lab.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `program`, to be run in the namespace; it keeps the pid it is started with.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Starts `command`, which is called `name` here; what it says goes to `name.log`.
    pub fn start(&mut self, name: &str, command: &mut Command) -> anyhow::Result<()> {
        let log = File::create(self.path(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        self.running.push((name.to_owned(), child));
        Ok(())
    }

    /// Whether what was started as `name` has ended.
    pub fn has_ended(&mut self, name: &str) -> anyhow::Result<bool> {
        let found = self.running.iter_mut().find(|(running, _)| running == name);
        let (_, child) = found.with_context(|| format!("{name} was never started"))?;
        Ok(child.try_wait()?.is_some())
    }

    /// Kills what was started as `name`, at once and without warning.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let at = self.running.iter().position(|(running, _)| running == name);
        let (_, mut child) = self.running.remove(at.with_context(|| format!("no {name} runs"))?);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// What `name` said so far.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(format!("{name}.log"))).unwrap_or_default()
    }

    /// The pids of everything in the namespace.
    fn inhabitants(&self) -> Vec<Pid> {
        let listed = Command::new("ip").args(["netns", "pids", &self.name]).output();
        let listed = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned());
        let pids = listed.unwrap_or_default();
        pids.lines().filter_map(|pid| Pid::from_raw(pid.trim().parse().ok()?)).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            for pid in self.inhabitants() {
                // Of a process that has ended meanwhile there is nothing to end.
                let _ended = kill_process(pid, signal);
            }
            let until = Instant::now() + GRACE;
            while !self.inhabitants().is_empty() && Instant::now() < until {
                self.running.iter_mut().for_each(|(_, child)| drop(child.try_wait()));
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        for (_, child) in &mut self.running {
            drop(child.kill());
            drop(child.wait());
        }
        if let Err(error) = run(Command::new("ip").args(["netns", "del", &self.name])) {
            eprintln!("rack: {error:#}");
        }
    }
}

/// Waits until `ready` says something, asking again and again, for `most` at the longest.
pub fn wait<T>(
    what: &str,
    most: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let until = Instant::now() + most;
    loop {
        if let Some(found) = ready() {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < until, "waited {most:?} for {what}, in vain");
        std::thread::sleep(Duration::from_millis(100));
    }
}
