//! Builders as processes, and the sandboxes below them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::site::WAIT_TIMEOUT;

/// A builder. It is killed when this is dropped.
pub(crate) struct Builder(Child);

impl Builder {
    /// Starts a builder of the site at `server`.
    pub(crate) fn start(server: SocketAddr, scratch: &Path) -> Self {
        Self::start_by(Command::new(PROGRAM), server, scratch)
    }

    /// Starts a builder by a command that takes its argument.
    pub(crate) fn start_by(mut command: Command, server: SocketAddr, scratch: &Path) -> Self {
        let argument = serde_json::json!({
            "server": format!("http://{server}"),
            "scratch": scratch,
            "allow": "127.0.0.1/32",
            "renewal_milliseconds": 50,
            "retry_milliseconds": 5,
        });
        Self(command.arg(argument.to_string()).spawn().unwrap())
    }

    /// Kills the process at once.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Asks the process to stop. Returns true if it ends well.
    pub(crate) async fn stop(mut self) -> bool {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        poll(|| self.0.try_wait().unwrap().map(|status| status.success())).await
    }

    /// Waits for the process in the sandbox that does the job.
    pub(crate) async fn job(&self) -> Pid {
        poll(|| {
            // The builder starts the keeper, and so on: program, keeper, builder, job.
            let mut process = self.0.id();
            for _ in 0..3 {
                process = child_of(process)?;
            }
            let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
            let is_job = line.split(|byte| *byte == 0).any(|argument| argument == b"job");
            Pid::from_raw(process.cast_signed()).filter(|_| is_job)
        })
        .await
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The program of a builder.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_builder-helper");

/// Kills a process.
pub(crate) fn kill(process: Pid) {
    kill_process(process, Signal::KILL).unwrap();
}

/// True if there is a process with this id.
pub(crate) fn exists(process: Pid) -> bool {
    Path::new(&format!("/proc/{}", process.as_raw_pid())).exists()
}

/// Returns the only child of a process.
fn child_of(process: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let children =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    children.collect::<String>().split_whitespace().next()?.parse().ok()
}

/// Waits for a value that nobody announces.
pub(crate) async fn poll<T>(mut value: impl FnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(value) = value() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, waiting).await.expect("polled in vain")
}
