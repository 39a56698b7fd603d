//! A server that is measured: ours, or a peer of it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::network::Network;

/// What proc(5) counts a processor's time in, on every Linux there is (`USER_HZ`).
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Where utime begins in `/proc/PID/stat`, counted from behind the name: it is the 14th field, the name the second.
const UTIME: usize = 11;

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KiB(pub u64);

/// The cores that a bench divides, so that what asks takes nothing from what answers.
pub mod core {
    /// The servers', ours and theirs.
    pub const SERVER: usize = 0;
    /// The bench's own.
    pub const ASKER: usize = 1;
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts `command`; what it says is added to the file at `log`.
    pub fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self(command.spawn().with_context(|| format!("starting {command:?}"))?))
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Ends it by `signal`.
    pub fn stop(mut self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.0), signal)?;
        self.0.wait()?;
        Ok(())
    }

    /// The processor time that it took so far, its children that have ended included.
    pub fn processor(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name is in parentheses, and may have blanks and parentheses in it.
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let times = fields.split_whitespace().skip(UTIME).take(4);
        let ticks = times.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
        Ok(TICK * ticks)
    }

    /// What it has in memory at this moment.
    pub fn resident(&self) -> anyhow::Result<KiB> {
        self.status("VmRSS:")
    }

    /// The most it ever had in memory.
    pub fn peak(&self) -> anyhow::Result<KiB> {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> anyhow::Result<KiB> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)).context("no such line")?;
        let number = line.trim().strip_suffix(" kB").context("it is not in kB")?;
        Ok(KiB(number.parse()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Of one that was stopped there is nothing to kill.
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// A server, and the network it is in.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The network.
    pub network: &'a Network,
    /// The server.
    pub process: &'a Process,
}

/// Keeps this thread, and what it starts from here on, on `core`.
pub fn stay_on(core: usize) -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("staying on core {core}"))
}
