//! The run directory: the specification, and the record of each transition, which survive the daemon and the supervisor.
//!
//! | file | written by | meaning |
//! |---|---|---|
//! | `spec.json` | daemon | what to run |
//! | `lock` | supervisor | locked (flock) as long as the supervisor lives |
//! | `state.json` | supervisor; the daemon if the supervisor was lost | the [`Record`]: replaced atomically |
//! | `control` | supervisor | Unix socket for stop requests |
//!
//! The record of the end is synced. The others say nothing after a restart of the machine, which ends all runs, so that a start does
//! not wait for the disk. A file that lost its content then is as one that was not written.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use crate::process::ProcessIdentity;
use crate::process::boot_id;
use crate::spec::Spec;

const SPEC: &str = "spec.json";
const STATE: &str = "state.json";
const LOCK: &str = "lock";
/// The name of the control socket.
pub(crate) const CONTROL: &str = "control";

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The boot in which the identities below are valid.
    pub boot_id: String,
    /// The process that wrote this: the supervisor, or a daemon that found it lost.
    pub writer: ProcessIdentity,
    /// The control group's directories, one for each hierarchy.
    pub cgroup: Vec<PathBuf>,
    /// The phase of the run.
    pub phase: Phase,
}

/// A phase of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The image's program does not execute yet.
    Starting,
    /// The image's program executes.
    Running(Init),
    /// A stop was requested.
    Stopping(Init),
    /// No process is left.
    Ended(RunOutcome),
}

/// PID 1 of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Init {
    /// The process.
    pub process: ProcessIdentity,
    /// The start, in seconds since the Unix epoch.
    pub started_at: u64,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// How PID 1 ended.
    pub end: End,
    /// True if a stop was requested before.
    pub stop_requested: bool,
    /// The end, in seconds since the Unix epoch.
    pub ended_at: u64,
}

/// How PID 1 of a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// The image's program was never executed.
    NotStarted(Fault),
    /// The supervisor was killed, or the machine was restarted: the status is not known.
    Lost,
}

/// The cause of a failed start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct Fault {
    /// True if the container's definition is at fault: its command or its program. False if the host is.
    pub invalid: bool,
    /// The step that failed.
    pub step: String,
    /// The cause.
    pub cause: String,
}

impl Fault {
    /// A fault in a start with a valid specification.
    pub(crate) fn new(step: &str, cause: impl std::fmt::Display) -> Self {
        Self { invalid: false, step: step.to_owned(), cause: cause.to_string() }
    }
}

/// Names the step of a start that an error belongs to.
pub(crate) trait InStep<T> {
    /// The result with the error as the fault of `step`.
    fn in_step(self, step: &str) -> Result<T, Fault>;
}

impl<T, E: std::fmt::Display> InStep<T> for Result<T, E> {
    fn in_step(self, step: &str) -> Result<T, Fault> {
        self.map_err(|error| Fault::new(step, error))
    }
}

/// A run directory.
#[derive(Clone, Debug)]
pub(crate) struct RunDirectory {
    pub(crate) path: PathBuf,
}

impl RunDirectory {
    /// Creates the directory for `spec`, readable by its owner only. Its parent must exist.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is a run in it; or it cannot be written.
    pub(crate) fn create(path: &Path, spec: &Spec) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(path)?;
        let directory = Self { path: path.to_owned() };
        directory.replace(SPEC, spec, false)?;
        Ok(directory)
    }

    /// The specification, if the daemon wrote it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn spec(&self) -> io::Result<Option<Spec>> {
        self.read(SPEC)
    }

    /// The record, if the supervisor wrote one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn record(&self) -> io::Result<Option<Record>> {
        self.read(STATE)
    }

    /// Replaces the record. That of an end is durable when this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_record(&self, record: &Record) -> io::Result<()> {
        self.replace(STATE, record, matches!(record.phase, Phase::Ended(_)))
    }

    /// A record of this process in this boot.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn new_record(cgroup: Vec<PathBuf>, phase: Phase) -> io::Result<Record> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Ok(Record { boot_id: boot_id()?, writer: ProcessIdentity::of(pid)?, cgroup, phase })
    }

    /// Takes the supervisor's lock. Nothing if a supervisor holds it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn try_lock(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.path.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path.join(name)) {
            // After a restart of the machine, a file that was not synced may be empty.
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes `value` beside the file `name`, and renames it over that file; durably if that is asked for.
    fn replace(&self, name: &str, value: &impl Serialize, durable: bool) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&new, self.path.join(name))?;
        if durable {
            File::open(&self.path)?.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(phase: Phase) -> Record {
        let writer = ProcessIdentity { pid: 7, start_time: 8 };
        Record { boot_id: "b".into(), writer, cgroup: vec!["/sys/fs/cgroup/x".into()], phase }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let parent = tempfile::tempdir().unwrap();
        let directory = RunDirectory { path: parent.path().to_owned() };
        assert_eq!(directory.record().unwrap(), None);
        let init = Init { process: ProcessIdentity { pid: 1, start_time: 2 }, started_at: 3 };
        let end =
            End::NotStarted(Fault { invalid: false, step: "mount".into(), cause: "busy".into() });
        let ended = RunOutcome { end, stop_requested: true, ended_at: 4 };
        for phase in
            [Phase::Starting, Phase::Running(init), Phase::Stopping(init), Phase::Ended(ended)]
        {
            let record = record(phase);
            directory.write_record(&record).unwrap();
            assert_eq!(directory.record().unwrap(), Some(record));
        }
    }

    #[test]
    fn a_file_that_lost_its_content_is_as_one_that_was_not_written() {
        let parent = tempfile::tempdir().unwrap();
        let directory = RunDirectory { path: parent.path().to_owned() };
        File::create(parent.path().join(STATE)).unwrap();
        File::create(parent.path().join(SPEC)).unwrap();
        assert_eq!((directory.record().unwrap(), directory.spec().unwrap()), (None, None));
    }

    #[test]
    fn only_one_process_holds_the_lock() {
        let parent = tempfile::tempdir().unwrap();
        let directory = RunDirectory { path: parent.path().to_owned() };
        let lock = directory.try_lock().unwrap();
        assert!(lock.is_some() && directory.try_lock().unwrap().is_none());
        drop(lock);
        assert!(directory.try_lock().unwrap().is_some());
    }
}
