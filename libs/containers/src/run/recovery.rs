//! Ends what a dead supervisor left behind.

use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use crate::cgroup::Cgroup;
use crate::log::{Log, unix_seconds};
use crate::process::boot_id;
use crate::record::{End, Fault, Phase, Record, RunDirectory, RunOutcome};

/// Time between two looks at a process that was killed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The outcome of the run in `directory`; nothing while its supervisor lives. It blocks until nothing of the container is
/// left.
///
/// # Errors
/// The directory cannot be read or written.
pub(super) fn recover(directory: &RunDirectory) -> io::Result<Option<RunOutcome>> {
    let Some(_lock) = directory.try_lock()? else { return Ok(None) };
    let record = directory.record()?;
    if let Some(Record { phase: Phase::Ended(outcome), .. }) = record {
        return Ok(Some(outcome));
    }
    if let Some(record) =
        record.as_ref().filter(|record| boot_id().is_ok_and(|id| id == record.boot_id))
    {
        end_processes(record);
    }
    let phase = record.as_ref().map(|record| &record.phase);
    let stop_requested = matches!(phase, Some(Phase::Stopping(_)));
    let ended_at = unix_seconds(SystemTime::now());
    let outcome = RunOutcome { end: lost(record.as_ref()), stop_requested, ended_at };
    flush_and_log(directory, &outcome)?;
    let cgroup = record.map(|record| record.cgroup).unwrap_or_default();
    directory.write_record(&RunDirectory::new_record(cgroup, Phase::Ended(outcome.clone()))?)?;
    Ok(Some(outcome))
}

/// Kills PID 1, with which its PID namespace ends, and all members of the control group.
fn end_processes(record: &Record) {
    if let Phase::Running(init) | Phase::Stopping(init) = record.phase {
        init.process.kill();
        while init.process.is_running() {
            sleep(POLL_INTERVAL);
        }
    }
    Cgroup::from_directories(record.cgroup.clone()).destroy();
}

fn lost(record: Option<&Record>) -> End {
    match record.map(|record| &record.phase) {
        Some(Phase::Running(_) | Phase::Stopping(_)) => End::Lost,
        Some(Phase::Starting | Phase::Ended(_)) | None => {
            let cause = "ended before the program was executed";
            End::NotStarted(Fault::new("supervisor", cause))
        }
    }
}

fn flush_and_log(directory: &RunDirectory, outcome: &RunOutcome) -> io::Result<()> {
    let Some(spec) = directory.spec()? else { return Ok(()) };
    if let Ok(image) = File::open(&spec.image) {
        // An image that is gone needs no flush.
        let _flushed = rustix::fs::syncfs(image);
    }
    let text = if outcome.end == End::Lost {
        "supervisor lost: the status is not known"
    } else {
        "supervisor lost"
    };
    // The record matters more than the log.
    let _written = Log::new(spec.container, &spec.log).line(SystemTime::now(), text);
    Ok(())
}
