//! The error that ends an action.

use std::error::Error as StdError;
use std::io;

use tokio::task::{JoinError, JoinHandle};

use crate::checksum::Mismatch;
use crate::environment;

/// Marks a module's error type, so that `?` converts it into [`Error`].
pub(crate) trait StepError: StdError + Send + Sync + 'static {}

impl<E: StepError> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Step(Box::new(error))
    }
}

/// The error of a failed or cancelled action.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Input(#[from] environment::Error),
    #[error(transparent)]
    Step(Box<dyn StdError + Send + Sync>),
    #[error("cannot start `{command}`")]
    CommandStart { command: String, source: io::Error },
    #[error("`{command}` {ending}")]
    CommandFailed { command: String, ending: String },
    #[error("GET {url}")]
    Checksum { url: String, source: Mismatch },
    #[error("GET {url}")]
    Contents { url: String, source: Box<dyn StdError + Send + Sync> },
    #[error("GET {url}: the image in this {format} is empty")]
    EmptyImage { url: String, format: &'static str },
    #[error("GET {url}: the file is damaged or incomplete ({format})")]
    Unpack { url: String, format: &'static str, source: io::Error },
    #[error("GET {url}: the file is not {expected}, although {setting}")]
    NotPacked { url: String, expected: &'static str, setting: &'static str },
    #[error("GET {url}: unpacking this {format} needs {needed}; the limit is {limit_mib} MiB")]
    Window { url: String, format: &'static str, needed: String, limit_mib: u64 },
    #[error(
        "GET {0}: the server sends no length, so a truncated file would look complete; set IMG_CHECKSUM"
    )]
    UnknownLength(String),
    /// Another stage of the pipeline failed first; that stage reports the cause.
    #[error("another stage failed")]
    Stopped,
    #[error("a task panicked")]
    Task(#[source] JoinError),
    #[error("cancelled")]
    Cancelled,
}

/// Waits for the end of a task of the action.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> Result<T, Error> {
    task.await.map_err(Error::Task)
}

/// Returns `error` and its causes in one line.
pub(crate) fn one_line(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line.replace(['\n', '\r'], " ")
}
