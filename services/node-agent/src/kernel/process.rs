//! Processes of containers.
//!
//! A *run* is one start of a container: all processes from the start of the first program until the last of them has ended. Runs
//! are supervised outside of the node's process, so they go on when it ends, and their exit status is kept until it is forgotten.

use std::path::PathBuf;

use async_trait::async_trait;
use tinwright::node::v1::container::Namespace;
use tokio::time::Instant;

use super::KernelError;

/// Processes of containers. The end of a run is written to the container's log, also if the node's process does not live then.
#[async_trait]
pub trait Containers: Send + Sync + 'static {
    /// Starts the first program. Succeeds once a process exists that is to become the first program; if that fails later, the run
    /// ends. Writes its steps to the log, and the cause if it fails.
    async fn start(&self, step: &ContainerStep, deadline: Instant) -> Result<(), KernelError>;

    /// Returns all runs that are not forgotten, of this process and of earlier ones.
    async fn runs(&self) -> Result<Vec<FoundRun>, KernelError>;

    /// Waits until no process of the run is left. A run that is not known has ended with [`Exit::Unknown`]. The future may be
    /// dropped.
    async fn wait(&self, run: &RunId) -> Result<Exit, KernelError>;

    /// Sends a signal, or kills all processes of the run. Succeeds if the run has ended. Does not wait for the end.
    async fn signal(&self, run: &RunId, signal: StopSignal) -> Result<(), KernelError>;

    /// Removes what is kept of a run that has ended.
    async fn forget(&self, run: &RunId) -> Result<(), KernelError>;

    /// Appends a line of the node to a container's log, which is created if necessary.
    async fn log(&self, log: &LogFile, text: &str) -> Result<(), KernelError>;

    /// Removes a container's log.
    async fn remove_log(&self, log: &LogFile) -> Result<(), KernelError>;
}

/// One start of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// A text that no other container of any node has, of at most 63 bytes: letters, digits and hyphens.
    pub mark: String,
    /// 1 for the first start of the container, and so on.
    pub number: u64,
}

/// A container's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its path.
    pub path: PathBuf,
    /// The container's id, which lines of the node show.
    pub container_id: i64,
}

/// A step that starts a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStep {
    /// The run.
    pub run: RunId,
    /// The root directory: a mount point.
    pub root: PathBuf,
    /// The first program and its arguments, not yet split.
    pub command: String,
    /// The first program is systemd.
    pub systemd: bool,
    /// Namespaces from the request, besides those that every container has.
    pub namespaces: Vec<Namespace>,
    /// The log, which takes the output of the programs.
    pub log: LogFile,
}

/// A run that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRun {
    /// The run.
    pub run: RunId,
    /// None: it has processes.
    pub exit: Option<Exit>,
}

/// The end of the first program of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The exit status.
    Status(i32),
    /// The signal.
    Signal(i32),
    /// Nobody has seen it.
    Unknown,
}

impl Exit {
    /// True if the program succeeded.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Status(0))
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "with status {status}"),
            Self::Signal(signal) => write!(f, "by signal {signal}"),
            Self::Unknown => write!(f, "with unknown status"),
        }
    }
}

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM to the first program.
    Terminate,
    /// SIGRTMIN+3 to the first program, which is systemd.
    HaltSystemd,
    /// Kills all processes.
    Kill,
}
