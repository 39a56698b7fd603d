//! The program as a process.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::host::{Host, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tinwright-node");

/// A running program.
pub(crate) struct Agent {
    child: Child,
    pub(crate) client: Client,
    log: std::path::PathBuf,
    log_start: usize,
}

/// Returns the program without arguments.
pub(crate) fn program() -> Command {
    Command::new(PROGRAM)
}

/// Returns the program with its directories in the place of the test, on the Unix socket `socket` there.
pub(crate) fn command(host: &Host) -> Command {
    let mut command = program();
    for (flag, name) in [
        ("--socket-path", "socket"),
        ("--state-directory", "state"),
        ("--mount-directory", "mounts"),
        ("--log-directory", "logs"),
    ] {
        command.arg(flag).arg(host.path(name));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl Agent {
    pub(crate) fn start(host: &Host) -> Self {
        Self::with_flags(host, &["--scheme", "unix"])
    }

    /// Starts the program, and waits until it serves.
    pub(crate) fn with_flags(host: &Host, flags: &[&str]) -> Self {
        let agent = Self::launch(host, flags);
        until("the node is ready", || agent.own_log().contains("node ready"));
        agent
    }

    /// Starts the program, and does not wait.
    pub(crate) fn launch(host: &Host, flags: &[&str]) -> Self {
        Self::spawn(host, command(host).args(flags))
    }

    /// Starts the program by `command`, and does not wait.
    pub(crate) fn spawn(host: &Host, command: &mut Command) -> Self {
        let log = host.path("agent.log");
        let log_start = std::fs::read(&log).map_or(0, |text| text.len());
        let file = OpenOptions::new().append(true).create(true).open(&log).unwrap();
        let child = command.stderr(file).spawn().unwrap();
        Self { child, client: Client::unix(host.path("socket")), log, log_start }
    }

    /// Returns what this process has logged.
    pub(crate) fn own_log(&self) -> String {
        let text = std::fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&text[self.log_start..]).into_owned()
    }

    /// Returns the address of the listener for `scheme`.
    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        let log = self.own_log();
        let (_, rest) = log.split_once(&format!("serving imageapi at {scheme}://")).expect(&log);
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Kills the program.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the program in order.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the agent\n{}", self.own_log());
        }
        // It has ended already if the test ended it.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
