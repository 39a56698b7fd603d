//! The end of a run: nothing of the container is left when its record says so.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use super::event_loop::Supervisor;
use super::handshake::send;
use crate::log::{Log, unix_seconds};
use crate::record::{End, Fault, Phase, Record, RunDirectory, RunOutcome};

/// Attempts to write the last record, a second apart, as a full disk may have room again.
const RECORD_ATTEMPTS: u32 = 60;
const RECORD_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Looks at the output pipe after the last process has ended.
const MAX_LAST_READS: u32 = 64;

impl Supervisor {
    /// Finishes the run after PID 1 ended with `status`: the kernel has ended the rest of its PID namespace by then.
    pub(super) fn finish(mut self, status: ExitStatus) -> io::Result<()> {
        self.advance_handshake();
        self.cgroup.destroy();
        for _ in 0..MAX_LAST_READS {
            if self.output.drain(Instant::now(), SystemTime::now()) {
                break;
            }
        }
        let now = SystemTime::now();
        self.output.finish(now);
        let flushed = rustix::fs::syncfs(&self.image);
        drop(self.image);
        if let Err(error) = flushed {
            self.output.line(now, &format!("flushing the image failed: {error}"));
        }
        let end = end_of(self.fault, status);
        let stop_requested = self.stop.is_requested();
        self.output.line(now, &describe(&end));
        self.output.line(now, &format!("container state: {}", state(&end, stop_requested)));
        let phase = Phase::Ended(RunOutcome { end, stop_requested, ended_at: unix_seconds(now) });
        let written =
            write_last_record(&self.directory, &Record { phase: phase.clone(), ..self.record });
        // Before the connections close: who finds them closed then finds the lock free.
        drop(self.lock);
        if let Some(report) = self.report {
            // The daemon may be gone; it finds the run by its directory.
            let _sent = send(&report, &phase);
        }
        written
    }
}

/// Finishes a run whose first process could not be started.
pub(super) fn not_started(
    log: &Log,
    directory: &RunDirectory,
    record: Record,
    report: &UnixStream,
    fault: Fault,
) -> io::Result<()> {
    let now = SystemTime::now();
    let end = End::NotStarted(fault);
    for line in [describe(&end), format!("container state: {}", state(&end, false))] {
        // A log that cannot be written must not hide the failure from the daemon.
        let _written = log.line(now, &line);
    }
    let phase =
        Phase::Ended(RunOutcome { end, stop_requested: false, ended_at: unix_seconds(now) });
    write_last_record(directory, &Record { phase: phase.clone(), ..record })?;
    send(report, &phase)
}

fn end_of(fault: Option<Fault>, status: ExitStatus) -> End {
    match (fault, status.code(), status.signal()) {
        (Some(fault), _, _) => End::NotStarted(fault),
        (None, Some(code), _) => End::Exited(code),
        (None, None, Some(signal)) => End::Signaled(signal),
        (None, None, None) => End::Lost,
    }
}

fn describe(end: &End) -> String {
    match end {
        End::Exited(status) => format!("process ended with status {status}"),
        End::Signaled(signal) => format!("process killed by signal {signal}"),
        End::NotStarted(fault) => format!("start failed: {fault}"),
        End::Lost => "process ended with an unknown status".to_owned(),
    }
}

/// Returns the state of the container after the end, as the API names it: a requested stop ends in `exited` whatever the status is.
fn state(end: &End, stop_requested: bool) -> &'static str {
    if stop_requested || *end == End::Exited(0) { "exited" } else { "dead" }
}

fn write_last_record(directory: &RunDirectory, record: &Record) -> io::Result<()> {
    let mut result = directory.write_record(record);
    for _ in 1..RECORD_ATTEMPTS {
        if result.is_ok() {
            break;
        }
        sleep(RECORD_RETRY_DELAY);
        result = directory.write_record(record);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_exited_after_a_stop_or_with_status_zero_and_else_dead() {
        let fault = Fault { invalid: false, step: "mount".into(), cause: "busy".into() };
        assert_eq!([state(&End::Exited(0), false), state(&End::Exited(0), true)], ["exited"; 2]);
        for end in [End::Exited(3), End::Signaled(9), End::Lost, End::NotStarted(fault)] {
            assert_eq!([state(&end, false), state(&end, true)], ["dead", "exited"]);
        }
    }
}
