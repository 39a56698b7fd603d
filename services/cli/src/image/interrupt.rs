//! Signals that interrupt a command, so that it ends its programs and removes its files first.
//!
//! ```text
//! SIGINT, SIGTERM, SIGHUP ─▶ SIGTERM to the program and its children ─▶ all have ended ─▶ the command returns an error
//!                                        └ after the grace ─▶ SIGKILL ──────┘
//! ```

use std::future::poll_fn;
use std::os::unix::process::CommandExt as _;
use std::pin::pin;
use std::process::{Command, Output};
use std::task::Poll;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, kill_process_group};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::programs;

/// The time that a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// The longest wait after SIGKILL. The kernel may hold a process that waits for a disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The signals that interrupt a command.
const SIGNALS: [(&str, SignalKind); 3] = [
    ("SIGINT", SignalKind::interrupt()),
    ("SIGTERM", SignalKind::terminate()),
    ("SIGHUP", SignalKind::hangup()),
];

/// A signal interrupted the command.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted by {0}")]
struct Interrupted(&'static str);

/// Receives the signals that interrupt a command. They no longer end the process.
#[derive(Debug)]
pub(super) struct Interrupt {
    signals: Vec<(&'static str, Signal)>,
    grace: Duration,
}

impl Interrupt {
    /// Receives signals from now on. Signals stay ignored if the process was started so, as by nohup(1).
    pub(super) fn listen() -> anyhow::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
        Self::of(SIGNALS.into_iter().filter(|(_, kind)| !is_ignored(&status, *kind)), GRACE)
    }

    fn of(
        signals: impl Iterator<Item = (&'static str, SignalKind)>,
        grace: Duration,
    ) -> anyhow::Result<Self> {
        let signals = signals.map(|(name, kind)| signal(kind).map(|signal| (name, signal)));
        let signals: std::io::Result<_> = signals.collect();
        Ok(Self { signals: signals.context("receiving signals")?, grace })
    }

    /// Receives no signal.
    #[cfg(test)]
    pub(super) fn never() -> Self {
        Self { signals: Vec::new(), grace: GRACE }
    }

    /// Resolves once a signal was received.
    async fn received(&mut self) -> Interrupted {
        poll_fn(|context| {
            for (name, signal) in &mut self.signals {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(Interrupted(name));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Carries out `work`, and drops it at a signal.
    pub(super) async fn until<T>(&mut self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => Ok(done),
            interrupted = self.received() => Err(interrupted.into()),
        }
    }

    /// Runs `command` to its end. If it fails, the error has the last lines on standard error.
    pub(super) async fn run(&mut self, command: Command) -> anyhow::Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let output = self.output(command).await?;
        programs::check(&program, &output)
    }

    /// Runs `command` to its end, and returns its status and outputs. At a signal it ends the program and the children of the program, which are a
    /// process group of their own: Ctrl-C at the terminal does not reach them.
    pub(super) async fn output(&mut self, mut command: Command) -> anyhow::Result<Output> {
        let program = command.get_program().to_string_lossy().into_owned();
        let running = || format!("cannot run {program}");
        command.process_group(0);
        let child = tokio::process::Command::from(command).spawn().with_context(running)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // The outputs end when the last process of the group has closed them.
        let mut ended = pin!(child.wait_with_output());
        let interrupted = tokio::select! {
            biased;
            output = &mut ended => return output.with_context(running),
            interrupted = self.received() => interrupted,
        };
        for (signal, timeout) in [
            (rustix::process::Signal::TERM, self.grace),
            (rustix::process::Signal::KILL, KILL_TIMEOUT),
        ] {
            // An error means that no process of the group is left.
            let _sent = group.map(|group| kill_process_group(group, signal));
            if tokio::time::timeout(timeout, &mut ended).await.is_ok() {
                break;
            }
        }
        Err(interrupted.into())
    }
}

/// True if a process with this `status` (proc_pid_status(5)) ignores the signal `kind`.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    // Bit 0 is signal 1.
    let bit = u32::try_from(kind.as_raw_value() - 1).ok().and_then(|bit| 1_u64.checked_shl(bit));
    bit.is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Stdio;

    use rustix::process::{Signal as Number, getpid, kill_process};

    use super::*;

    /// Returns a shell that writes its id and that of a child to `file`, and runs until it is ended.
    fn shell(file: &Path, beginning: &str) -> Command {
        let path = file.display();
        let script =
            format!("{beginning} sleep 300 & echo $$ $! > {path}.new; mv {path}.new {path}; wait");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Sends `signal` to this process once `file` exists. Returns the ids of the processes in the file.
    async fn send_after(file: &Path, signal: Number) -> Vec<String> {
        for _ in 0..1000 {
            if let Ok(ids) = std::fs::read_to_string(file) {
                kill_process(getpid(), signal).unwrap();
                return ids.split_whitespace().map(str::to_owned).collect();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the program did not start within 10 s");
    }

    /// True if the process ends within 5 s. A zombie has ended: in a container, it may stay.
    async fn ends(id: &str) -> bool {
        for _ in 0..500 {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
            if !stat.is_ok_and(|stat| !stat.contains(") Z ")) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// Runs a shell that begins with these commands until `signal`, and checks that it and its child have ended.
    async fn check_ended(signal: (&'static str, SignalKind), beginning: &str, grace: Duration) {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ids");
        let mut interrupt = Interrupt::of([signal].into_iter(), grace).unwrap();
        let number = Number::from_named_raw(signal.1.as_raw_value()).unwrap();
        let output = interrupt.output(shell(&file, beginning));
        let (ended, ids) = tokio::join!(output, send_after(&file, number));
        assert_eq!(ended.unwrap_err().to_string(), format!("interrupted by {}", signal.0));
        assert_eq!(ids.len(), 2);
        for id in &ids {
            assert!(ends(id).await, "process {id} of {ids:?} runs");
        }
    }

    // Each test has a signal that no other test receives.

    #[tokio::test]
    async fn a_program_and_its_child_end_at_a_signal() {
        check_ended(("SIGUSR1", SignalKind::user_defined1()), "", GRACE).await;
    }

    #[tokio::test]
    async fn a_program_that_ignores_sigterm_is_killed_after_the_grace() {
        let signal = ("SIGUSR2", SignalKind::user_defined2());
        check_ended(signal, "trap '' TERM;", Duration::from_millis(100)).await;
    }

    #[tokio::test]
    async fn a_program_that_ends_by_itself_has_its_status_and_outputs() {
        let mut interrupt = Interrupt::never();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = interrupt.output(command).await.unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"one\n"[..], &b"two\n"[..]));
    }

    #[test]
    fn signals_that_nohup_ignores_are_found() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        let ignored = SIGNALS.map(|(name, kind)| (name, is_ignored(status, kind)));
        assert_eq!(ignored, [("SIGINT", false), ("SIGTERM", false), ("SIGHUP", true)]);
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
