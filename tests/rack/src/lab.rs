//! A network namespace with a bridge, and its processes.

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

/// Number of lines of each log that are printed if a test fails.
const PRINTED_LINES: usize = 100;

/// Time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(10);

/// The namespace. Drop ends its processes, by their pids, and removes it.
#[derive(Debug)]
pub struct Lab {
    name: String,
    dir: TempDir,
    running: Vec<(String, Child)>,
}

impl Lab {
    /// Creates the namespace, with the server's address and the metadata address on its bridge.
    pub fn new() -> anyhow::Result<Self> {
        // One process may create several labs, which need distinct names.
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

    /// Runs `ip` with the arguments in `line`, inside the namespace.
    pub fn ip(&self, line: &str) -> anyhow::Result<()> {
        run(Command::new("ip").args(["-n", &self.name]).args(line.split_whitespace()))
    }

    /// Returns the namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the lab's directory, which is removed with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of `name` in the lab's directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command that runs `program` inside the namespace, with the pid of the spawned process.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Starts `command` as `name`; its output is appended to the file `name.log`.
    pub fn start(&mut self, name: &str, command: &mut Command) -> anyhow::Result<()> {
        let log =
            File::options().create(true).append(true).open(self.path(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        self.running.push((name.to_owned(), child));
        Ok(())
    }

    /// True if the process that was started as `name` has ended.
    pub fn has_ended(&mut self, name: &str) -> anyhow::Result<bool> {
        let found = self.running.iter_mut().find(|(running, _)| running == name);
        let (_, child) = found.with_context(|| format!("{name} was never started"))?;
        Ok(child.try_wait()?.is_some())
    }

    /// Sends SIGKILL to the process that was started as `name`.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let index = self.running.iter().position(|(running, _)| running == name);
        let index = index.with_context(|| format!("{name} is not running"))?;
        let (_, mut child) = self.running.remove(index);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Pauses the process that was started as `name`: it answers nothing.
    pub fn pause(&self, name: &str) -> anyhow::Result<()> {
        self.send_signal(name, Signal::STOP)
    }

    /// Lets the process that was started as `name` go on after a pause.
    pub fn resume(&self, name: &str) -> anyhow::Result<()> {
        self.send_signal(name, Signal::CONT)
    }

    fn send_signal(&self, name: &str, signal: Signal) -> anyhow::Result<()> {
        let found = self.running.iter().find(|(running, _)| running == name);
        let (_, child) = found.with_context(|| format!("{name} is not running"))?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Returns the output of `name` so far.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(format!("{name}.log"))).unwrap_or_default()
    }

    /// Prints the last lines of all logs and serial consoles, for a test that failed.
    fn print_logs(&self) {
        let files = std::fs::read_dir(self.dir()).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path());
        for path in
            paths.filter(|path| path.extension().is_some_and(|it| it == "log" || it == "serial"))
        {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<_> = text.lines().rev().take(PRINTED_LINES).collect();
            println!("last lines of {}:", path.display());
            lines.iter().rev().for_each(|line| println!("  {line}"));
        }
    }

    /// Returns the pids of all other processes in the namespace.
    fn pids(&self) -> Vec<Pid> {
        let output = Command::new("ip").args(["netns", "pids", &self.name]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.unwrap_or_default()
            .lines()
            .filter_map(|pid| Pid::from_raw(pid.trim().parse().ok()?))
            // A thread of this process may have moved into it.
            .filter(|pid| *pid != rustix::process::getpid())
            .collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        println!("processor time in the lab: {} s", processor_time(&self.pids()).as_secs());
        for signal in [Signal::TERM, Signal::KILL] {
            for pid in self.pids() {
                // Fails harmlessly if the process has just ended.
                let _result = kill_process(pid, signal);
            }
            let until = Instant::now() + TERMINATION_GRACE;
            while !self.pids().is_empty() && Instant::now() < until {
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

/// Returns the processor time that the processes `pids` have used, their own and that of ended children.
fn processor_time(pids: &[Pid]) -> Duration {
    let ticks = |pid: &Pid| -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        // utime, stime, cutime and cstime are fields 14 to 17 (proc_pid_stat(5)); the name, field 2, ends with the last parenthesis.
        let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        Some(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
    };
    let ticks = pids.iter().filter_map(ticks).sum::<u64>();
    Duration::from_secs(ticks / rustix::param::clock_ticks_per_second())
}

/// Calls `ready` repeatedly until it returns a value, for at most `timeout`.
pub fn wait<T>(
    name: &str,
    timeout: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let until = Instant::now() + timeout;
    loop {
        if let Some(found) = ready() {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < until, "timeout after {timeout:?} waiting for {name}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
