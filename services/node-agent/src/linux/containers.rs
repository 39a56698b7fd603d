//! Runs of containers, each with a supervisor process and a run directory.
//!
//! A run has the directory `<mark>.<number>` in the directory of runs, and the control group of the same name. Lines of the log that
//! belong to a start or an end are the supervisor's, which writes them also while the node's process is away.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use containers::{
    End, Error, Launcher, Limits, Log, LogSettings, Namespaces, Quotes, Run, RunOutcome, Spec,
};
use futures_util::future::join_all;
use runtime::clock::Clock;
use tinwright::node::v1::container::Namespace;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::steps::{failed, step_end};
use crate::kernel::{
    ContainerStep, Containers, Exit, FoundRun, KernelError, KernelErrorKind, LogFile, RunId,
    StopSignal,
};

/// The longest look at a run when all runs are listed. A run that takes longer is taken for a living one.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two attempts to end a run whose start was given up.
const ABANDON_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The parent of the control groups, below the root of each hierarchy.
const CGROUP_PARENT: &str = "tinwright-node";

/// Settings of [`LinuxContainers`].
#[derive(Clone, Debug)]
pub struct ContainerSettings {
    /// The directory of run directories. It must exist.
    pub runs: PathBuf,
    /// The way to start supervisors.
    pub launcher: Launcher,
    /// Treatment of quotation marks in commands.
    pub quotes: Quotes,
    /// Limits of each container.
    pub limits: Limits,
    /// Gives containers the namespaces `cgroup`, `net`, `time` and `user` that their definition lists. Off, they are ignored as in
    /// the original.
    pub honour_namespaces: bool,
    /// The time between the request to stop and the kill; the supervisor keeps to it if the node's process ends meanwhile.
    pub stop_grace: Duration,
    /// The same, of a container with systemd.
    pub systemd_stop_grace: Duration,
    /// The largest size of a log file in bytes; a container has two at most.
    pub max_log_bytes: u64,
}

/// Runs of containers on a Linux host.
#[derive(Clone, Debug)]
pub struct LinuxContainers {
    settings: ContainerSettings,
    clock: Clock,
}

impl LinuxContainers {
    /// Returns the containers of a host. Log lines have the wall time of `clock`.
    pub const fn new(settings: ContainerSettings, clock: Clock) -> Self {
        Self { settings, clock }
    }

    fn directory(&self, run: &RunId) -> PathBuf {
        self.settings.runs.join(name(run))
    }

    fn log_settings(&self, path: &Path) -> LogSettings {
        let max_bytes = self.settings.max_log_bytes;
        LogSettings { max_bytes, ..LogSettings::new(path.to_owned()) }
    }

    fn spec(&self, step: &ContainerStep) -> Spec {
        Spec {
            container: u64::try_from(step.log.container_id).unwrap_or_default(),
            image: step.root.clone(),
            command: step.command.clone(),
            quotes: self.settings.quotes,
            systemd: step.systemd,
            namespaces: match self.settings.honour_namespaces {
                true => namespaces(&step.namespaces),
                false => Namespaces::default(),
            },
            limits: self.settings.limits,
            cgroup: format!("{CGROUP_PARENT}/{}", name(&step.run)),
            log: self.log_settings(&step.log.path),
        }
    }

    /// Returns the run if it is not forgotten.
    async fn adopt(&self, run: &RunId) -> Result<Option<Run>, KernelError> {
        Ok(Run::adopt(&self.directory(run)).await?)
    }

    async fn look_at(&self, run: RunId) -> Result<Option<FoundRun>, KernelError> {
        match timeout(LOOK_TIMEOUT, self.adopt(&run)).await {
            Err(_) => Ok(Some(FoundRun { run, exit: None })),
            Ok(Ok(Some(found))) => {
                let exit = found.outcome()?.map(|outcome| exit(&outcome));
                Ok(Some(FoundRun { run, exit }))
            }
            Ok(Ok(None)) => {
                // A start that ended before it wrote what to run.
                remove(&self.directory(&run));
                Ok(None)
            }
            Ok(Err(error)) => {
                tracing::error!(run = name(&run), %error, "a run cannot be read");
                Ok(Some(FoundRun { run, exit: Some(Exit::Unknown) }))
            }
        }
    }
}

#[async_trait]
impl Containers for LinuxContainers {
    async fn start(&self, step: &ContainerStep, deadline: Instant) -> Result<(), KernelError> {
        let (spec, directory) = (self.spec(step), self.directory(&step.run));
        let started = Run::start(&self.settings.launcher, &directory, &spec);
        match timeout_at(step_end(deadline), started).await {
            Ok(started) => Ok(started.map(drop)?),
            Err(_) => {
                tokio::spawn(abandon(directory));
                Err(failed("the start did not end in time"))
            }
        }
    }

    async fn runs(&self) -> Result<Vec<FoundRun>, KernelError> {
        let runs = list(&self.settings.runs)?;
        let found = join_all(runs.into_iter().map(|run| self.look_at(run))).await;
        found.into_iter().filter_map(Result::transpose).collect()
    }

    async fn wait(&self, run: &RunId) -> Result<Exit, KernelError> {
        match self.adopt(run).await? {
            Some(found) => Ok(exit(&found.wait().await?)),
            None => Ok(Exit::Unknown),
        }
    }

    async fn signal(&self, run: &RunId, signal: StopSignal) -> Result<(), KernelError> {
        let grace = match signal {
            StopSignal::Terminate => self.settings.stop_grace,
            StopSignal::HaltSystemd => self.settings.systemd_stop_grace,
            StopSignal::Kill => Duration::ZERO,
        };
        match self.adopt(run).await? {
            Some(found) => Ok(found.stop(grace).await?),
            None => Ok(()),
        }
    }

    async fn forget(&self, run: &RunId) -> Result<(), KernelError> {
        match self.adopt(run).await? {
            Some(found) => Ok(found.remove()?),
            None => Ok(()),
        }
    }

    async fn log(&self, log: &LogFile, text: &str) -> Result<(), KernelError> {
        let id = u64::try_from(log.container_id).unwrap_or_default();
        let file = Log::new(id, &self.log_settings(&log.path));
        let (now, text) = (self.clock.wall(), text.to_owned());
        let written = spawn_blocking(move || file.line(now, &text)).await;
        written
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| failed(format!("write {}: {error}", log.path.display())))
    }

    async fn remove_log(&self, log: &LogFile) -> Result<(), KernelError> {
        let file = Log::new(0, &self.log_settings(&log.path));
        let removed = spawn_blocking(move || file.remove()).await;
        removed
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| failed(format!("remove {}: {error}", log.path.display())))
    }
}

/// Returns the name of the run's directory and control group.
fn name(run: &RunId) -> String {
    format!("{}.{}", run.mark, run.number)
}

/// Returns the run with the name `name`.
fn parse(name: &str) -> Option<RunId> {
    let (mark, number) = name.rsplit_once('.')?;
    Some(RunId { mark: mark.to_owned(), number: number.parse().ok()? })
}

/// Returns the runs that have a directory in `runs`.
fn list(runs: &Path) -> Result<Vec<RunId>, KernelError> {
    let entries = std::fs::read_dir(runs).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| failed(format!("read {}: {error}", runs.display())))?;
    Ok(entries.iter().filter_map(|entry| parse(entry.file_name().to_str()?)).collect())
}

/// Ends what a start that was given up becomes, however long that takes.
async fn abandon(directory: PathBuf) {
    while let Err(error) = end(&directory).await {
        tracing::warn!(directory = %directory.display(), %error, "a run whose start was given up was not ended");
        sleep(ABANDON_RETRY_DELAY).await;
    }
}

async fn end(directory: &Path) -> Result<(), Error> {
    match Run::adopt(directory).await? {
        Some(run) => {
            run.kill().await?;
            run.wait().await?;
            run.remove()
        }
        None => {
            remove(directory);
            Ok(())
        }
    }
}

fn remove(directory: &Path) {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(directory = %directory.display(), %error, "a run directory was not removed");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Returns the namespaces beyond those that every container has.
fn namespaces(listed: &[Namespace]) -> Namespaces {
    Namespaces {
        net: listed.contains(&Namespace::Net),
        cgroup: listed.contains(&Namespace::Cgroup),
        time: listed.contains(&Namespace::Time),
        user: listed.contains(&Namespace::User),
    }
}

fn exit(outcome: &RunOutcome) -> Exit {
    match outcome.end {
        End::Exited(status) => Exit::Status(status),
        End::Signaled(signal) => Exit::Signal(signal),
        End::NotStarted(_) | End::Lost => Exit::Unknown,
    }
}

impl From<Error> for KernelError {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Invalid(_) => KernelErrorKind::Invalid,
            Error::InUse(_) => KernelErrorKind::Busy,
            Error::Failed(_) | Error::Io { .. } => KernelErrorKind::Failed,
        };
        let cause = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Self::new(kind, format!("{error}{}", cause.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_directory_is_that_of_its_run() {
        let run = RunId { mark: "0123456789ab-45".into(), number: 3 };
        assert_eq!(name(&run), "0123456789ab-45.3");
        assert_eq!(parse(&name(&run)), Some(run));
        for other in ["lost+found", "a.b", "a"] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn only_the_four_optional_namespaces_are_passed_on() {
        use Namespace::{Cgroup, Ipc, Mnt, Net, Pid, Time, User, Uts};
        let all = Namespaces { net: true, cgroup: true, time: true, user: true };
        assert_eq!(namespaces(&[Cgroup, Ipc, Net, Mnt, Pid, Time, User, Uts]), all);
        assert_eq!(namespaces(&[Ipc, Mnt, Pid, Uts]), Namespaces::default());
    }
}
