//! Runs of containers, for the daemon: start, adopt, stop, and wait for the end.
//!
//! Asynchronous, with tokio: the daemon has a wait open for each container, and a blocking one would occupy a thread each.
//! Dropping a future never ends a container. A start that is given up goes on: adopt its directory, and kill it.

mod control;
mod recovery;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::task::spawn_blocking;

use crate::command::split_command;
use crate::log::Log;
use crate::record::{End, Fault, Phase, Record, RunDirectory, RunOutcome};
use crate::spec::Spec;
use crate::supervisor;

/// Time between two attempts to reach a supervisor that is starting or ending.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// A reason why an operation on a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The container's definition is at fault.
    #[error("invalid container: {0}")]
    Invalid(Fault),
    /// The host is at fault.
    #[error("start failed: {0}")]
    Failed(Fault),
    /// The run directory exists already.
    #[error("run directory {0} is in use")]
    InUse(PathBuf),
    /// The run directory or the control socket cannot be used.
    #[error("{action} ({})", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The run directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The way to start the processes of [`supervisor::main`].
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments before those that [`supervisor::main`] takes: the hidden subcommand.
    pub arguments: Vec<OsString>,
}

impl Launcher {
    /// This process's own executable with `subcommand`.
    pub fn own_program(subcommand: &str) -> Self {
        Self { program: supervisor::OWN_PROGRAM.into(), arguments: vec![subcommand.into()] }
    }
}

/// A run of a container, known by its directory.
#[derive(Clone, Debug)]
pub struct Run {
    directory: RunDirectory,
}

impl Run {
    /// Starts `spec` in the new directory `directory`, and returns once the image's program executes. If the start fails,
    /// nothing is left of it, the directory included; the log remains.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad command or program, [`Error::InUse`], or what else went wrong.
    pub async fn start(launcher: &Launcher, directory: &Path, spec: &Spec) -> Result<Self, Error> {
        if let Err(error) = split_command(&spec.command, spec.quotes) {
            let fault = Fault { invalid: true, ..Fault::new("command", error) };
            log_failure(spec, &fault);
            return Err(Error::Invalid(fault));
        }
        let created = RunDirectory::create(directory, spec).map_err(|source| {
            let path = directory.to_owned();
            if source.kind() == io::ErrorKind::AlreadyExists {
                return Error::InUse(path);
            }
            log_failure(spec, &source);
            Error::Io { action: "create the run directory", path, source }
        })?;
        let run = Self { directory: created };
        let report = run.launch(launcher).await;
        let outcome = match report {
            Ok(Some(Phase::Running(_))) => return Ok(run),
            Ok(Some(Phase::Ended(outcome))) => Ok(outcome),
            // The supervisor died.
            Ok(Some(Phase::Starting | Phase::Stopping(_)) | None) => run.wait().await,
            Err(source) => {
                log_failure(spec, &source);
                Err(run.error("start the supervisor", source))
            }
        };
        run.remove()?;
        Err(match outcome?.end {
            End::NotStarted(fault) if fault.invalid => Error::Invalid(fault),
            End::NotStarted(fault) => Error::Failed(fault),
            end @ (End::Exited(_) | End::Signaled(_) | End::Lost) => {
                let cause = format!("ended during the start: {end:?}");
                Error::Failed(Fault::new("supervisor", cause))
            }
        })
    }

    /// Starts the supervisor and returns its report: the phase at the end of the start.
    async fn launch(&self, launcher: &Launcher) -> io::Result<Option<Phase>> {
        let (mut report, theirs) = UnixStream::pair()?;
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let mut command = Command::new(&launcher.program);
        command
            .args(&launcher.arguments)
            .arg(supervisor::LAUNCH)
            .arg(std::path::absolute(&self.directory.path)?);
        command.env_clear().current_dir("/").stdin(std::os::fd::OwnedFd::from(theirs));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().await?;
        drop(command);
        if !status.success() {
            return Err(io::Error::other(format!("the launcher failed: {status}")));
        }
        let mut text = Vec::new();
        report.read_to_end(&mut text).await?;
        Ok(serde_json::from_slice(&text).ok())
    }

    /// The run in `directory`, which an earlier process of the daemon started; nothing if there is none. A run whose
    /// supervisor is gone without a word is ended first, and its outcome is [`End::Lost`] or [`End::NotStarted`].
    ///
    /// # Errors
    /// The directory cannot be read or written.
    pub async fn adopt(directory: &Path) -> Result<Option<Self>, Error> {
        let run = Self { directory: RunDirectory { path: directory.to_owned() } };
        let spec =
            run.directory.spec().map_err(|source| run.error("read the specification", source))?;
        if spec.is_none() {
            return Ok(None);
        }
        run.recover().await?;
        Ok(Some(run))
    }

    /// The run directory.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// The last recorded state; nothing if the supervisor has not written any yet.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn record(&self) -> Result<Option<Record>, Error> {
        self.directory.record().map_err(|source| self.error("read the record", source))
    }

    /// The outcome, if the run is over.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn outcome(&self) -> Result<Option<RunOutcome>, Error> {
        Ok(self.record()?.and_then(|record| match record.phase {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Starting | Phase::Running(_) | Phase::Stopping(_) => None,
        }))
    }

    /// Asks the container to end, and kills it after `grace`; no grace kills at once. Returns once the request is recorded,
    /// also if the run is over. Repeating it is harmless; the earliest deadline holds.
    ///
    /// # Errors
    /// The supervisor cannot be reached.
    pub async fn stop(&self, grace: Duration) -> Result<(), Error> {
        self.until_settled(&format!("stop {}\n", grace.as_millis())).await.map(|_settled| ())
    }

    /// Kills the container at once.
    ///
    /// # Errors
    /// As [`Run::stop`].
    pub async fn kill(&self) -> Result<(), Error> {
        self.stop(Duration::ZERO).await
    }

    /// Waits until no process of the container is left and its image is flushed.
    ///
    /// # Errors
    /// The run directory cannot be used.
    pub async fn wait(&self) -> Result<RunOutcome, Error> {
        loop {
            if let RequestResult::Over(outcome) = self.until_settled("watch\n").await? {
                return Ok(outcome);
            }
        }
    }

    /// Removes the directory of a run that is over.
    ///
    /// It gets another name first. A task that stops the run at the same time would create a new lock in
    /// the directory, which could not be removed then. The new name is that of a run, too: the next
    /// process completes a removal that was interrupted.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<(), Error> {
        let path = &self.directory.path;
        let mut name = OsString::from("removed-");
        name.push(path.file_name().unwrap_or_default());
        let removed = path.with_file_name(name);
        let done = std::fs::rename(path, &removed).and_then(|()| std::fs::remove_dir_all(&removed));
        done.map_err(|source| self.error("remove the run directory", source))
    }

    /// Sends `request` to the supervisor until it is taken, or the run is over. A `watch` lasts until its connection is
    /// closed.
    async fn until_settled(&self, request: &str) -> Result<RequestResult, Error> {
        loop {
            let sent = control::request(&self.directory, request).await;
            if let Ok(mut connection) = sent {
                if request != "watch\n" {
                    return Ok(RequestResult::Requested);
                }
                // However it ends, the supervisor is gone or this was one connection too many.
                let _closed = connection.read_to_end(&mut Vec::new()).await;
            }
            if let Some(outcome) = self.recover().await? {
                return Ok(RequestResult::Over(outcome));
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// The outcome, unless the supervisor lives. What a dead one left behind is ended first.
    async fn recover(&self) -> Result<Option<RunOutcome>, Error> {
        let directory = self.directory.clone();
        let recovered =
            spawn_blocking(move || recovery::recover(&directory)).await.map_err(io::Error::other);
        recovered.flatten().map_err(|source| self.error("recover the run", source))
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::Io { action, path: self.directory.path.clone(), source }
    }
}

/// Writes the cause of a start that failed before there was a supervisor to write it.
fn log_failure(spec: &Spec, cause: &impl std::fmt::Display) {
    let log = Log::new(spec.container, &spec.log);
    for line in [format!("start failed: {cause}"), "container state: dead".to_owned()] {
        // A log that cannot be written must not hide the cause from the caller.
        let _written = log.line(SystemTime::now(), &line);
    }
}

/// The result of a request to a supervisor.
enum RequestResult {
    /// It took the request.
    Requested,
    /// The run is over.
    Over(RunOutcome),
}
