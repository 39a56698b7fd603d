//! The measured process: our server or a peer.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::network::Network;

/// Unit of processor time in proc(5): `USER_HZ` is 100 on every architecture.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Index of utime in `/proc/PID/stat`, counted after the process name: utime is the 14th field, the name the second.
const UTIME_INDEX: usize = 11;

/// An amount of memory, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KiB(pub u64);

/// The cores: server and bench have one each, so that the bench takes no time from the server.
pub mod core {
    /// The core of our server and of the peers.
    pub const SERVER: usize = 0;
    /// The core of the bench.
    pub const BENCH: usize = 1;
}

/// A running server. Drop kills it.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts `command`; its output is appended to the file `log`.
    pub fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self(command.spawn().with_context(|| format!("starting {command:?}"))?))
    }

    /// True if the process has ended.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Sends `signal` and waits for the end of the process.
    pub fn stop(mut self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.0), signal)?;
        self.0.wait()?;
        Ok(())
    }

    /// Returns its processor time so far, including children that have ended.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name is in parentheses, and may contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let times = fields.split_whitespace().skip(UTIME_INDEX).take(4);
        let ticks = times.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
        Ok(TICK * ticks)
    }

    /// Returns its resident memory.
    pub fn resident_memory(&self) -> anyhow::Result<KiB> {
        self.status("VmRSS:")
    }

    /// Returns the peak of its resident memory.
    pub fn peak_memory(&self) -> anyhow::Result<KiB> {
        self.status("VmHWM:")
    }

    /// Makes the present resident memory the peak (proc(5), `clear_refs`).
    pub fn reset_peak_memory(&self) -> anyhow::Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.0.id()), "5")?)
    }

    fn status(&self, name: &str) -> anyhow::Result<KiB> {
        status(&self.0.id().to_string(), name)
    }
}

/// Returns the peak of this process's resident memory.
pub(crate) fn own_peak_memory() -> anyhow::Result<KiB> {
    status("self", "VmHWM:")
}

/// Reads the line `name` of the status of the process `pid`.
fn status(pid: &str, name: &str) -> anyhow::Result<KiB> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)).context("no such line")?;
    let number = line.trim().strip_suffix(" kB").context("it is not in kB")?;
    Ok(KiB(number.parse()?))
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail harmlessly if the process was stopped before.
        let _kill = self.0.kill();
        let _wait = self.0.wait();
    }
}

/// A server with its network.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The network.
    pub network: &'a Network,
    /// The server.
    pub process: &'a Process,
}

/// Pins this thread, and processes that it starts later, to `core`.
pub fn pin_to(core: usize) -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("pinning to core {core}"))
}
