//! The input and the result of a built-in action.

use std::io;
use std::sync::Arc;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::checksum::Mismatch;
use crate::download::RetryPolicy;
use crate::environment;
use crate::progress::Progress;
use crate::{command, disk, download, installed};

/// What ends the running system, and this program with it. The caller reports first and acts then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Boot again.
    Reboot,
    /// Turn off.
    PowerOff,
    /// Go on with the kernel that was loaded (reboot(2), `LINUX_REBOOT_CMD_KEXEC`).
    Kexec,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is done, and on the disk.
    Success,
    /// All is ready; the caller has this to do as its last act.
    Terminal(Terminal),
    /// Something went wrong.
    Failure(Failure),
    /// It was told to stop, and has: nothing of it runs any more.
    Cancelled,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One line that names what failed and where.
    pub reason: String,
    /// The last lines a command printed, 4 KiB at most.
    pub output: String,
    /// The exit code that the action's image has for this kind of failure.
    pub exit_code: i32,
}

/// What an action needs besides its variables.
#[derive(Clone, Debug)]
pub struct Context {
    /// Hears how far it is.
    pub progress: Arc<dyn Progress>,
    /// Stops it: on its time limit, or because it is no longer wanted.
    pub stop: CancellationToken,
    /// Whom it trusts to serve files: PEM bundles. There are no others; none means plain `http` only.
    pub roots: Vec<Vec<u8>>,
    /// How long a download goes on trying, where the variables do not say.
    pub retry_policy: RetryPolicy,
}

/// Why an action did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Input(#[from] environment::Error),
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error(transparent)]
    Download(#[from] download::Error),
    #[error(transparent)]
    Installed(#[from] installed::Error),
    #[error(transparent)]
    Command(#[from] command::Error),
    /// An error that only one of the actions has.
    #[error(transparent)]
    Own(Box<dyn std::error::Error + Send + Sync>),
    #[error("GET {at}")]
    Sum { at: String, source: Mismatch },
    #[error("GET {at}: the file is damaged or not whole {format}")]
    Unpack { at: String, format: &'static str, source: io::Error },
    #[error("GET {at}: the file is not {promised}, though {said}")]
    NotPacked { at: String, promised: &'static str, said: &'static str },
    #[error("GET {at}: unpacking this {format} takes {needs}, and there is room for {limit} MiB")]
    Window { at: String, format: &'static str, needs: String, limit: u64 },
    #[error(
        "GET {0}: the server tells no length, so a cut would pass for the end; set IMG_CHECKSUM"
    )]
    Endless(String),
    /// A stage of a pipeline ended because another one did: never the cause.
    #[error("another stage has stopped")]
    Stopped,
    #[error("a thread of it has ended")]
    Lost(#[source] JoinError),
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// An error that only one of the actions has.
    pub(crate) fn own(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Own(Box::new(error))
    }
}

/// What a task of an action comes to.
pub(crate) async fn joined<T>(task: tokio::task::JoinHandle<T>) -> Result<T, Error> {
    task.await.map_err(Error::Lost)
}

/// `error` and its causes, each once, in one line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line.replace(['\n', '\r'], " ")
}
