//! Carrying out a built-in action: what it needs, and how it ends.

use std::io;
use std::sync::Arc;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::builtin::Builtin;
use crate::checksum::Mismatch;
use crate::download::Patience;
use crate::environment::{self, Environment};
use crate::progress::Progress;
use crate::{
    archive2disk, cexec, command, disk, download, grub2disk, image2disk, installed, kexec, rootio,
    wipe, writefile,
};

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
    pub patience: Patience,
}

/// Carries out `action` with the variables in `environment`. To end it early, cancel the context and wait for
/// [`Outcome::Cancelled`]: dropping the future would leave its threads at work.
#[tracing::instrument(skip_all, fields(%action))]
pub async fn run(action: Builtin, environment: &Environment, context: &Context) -> Outcome {
    let (ended, then) = match action {
        Builtin::Archive2Disk => (Box::pin(archive2disk::run(environment, context)).await, None),
        Builtin::Cexec => (cexec::run(environment, context).await, None),
        Builtin::Grub2Disk => (grub2disk::run(environment, context).await, None),
        Builtin::Image2Disk => (Box::pin(image2disk::run(environment, context)).await, None),
        Builtin::Kexec => (kexec::run(environment, context).await, Some(Terminal::Kexec)),
        Builtin::PowerOff => (Ok(()), Some(Terminal::PowerOff)),
        Builtin::Reboot => (Ok(()), Some(Terminal::Reboot)),
        Builtin::Rootio(what) => (Box::pin(rootio::run(what, environment, context)).await, None),
        Builtin::Wipe => (wipe::run(environment, context).await, None),
        Builtin::WriteFile => (writefile::run(environment).await, None),
    };
    match ended {
        Ok(()) => then.map_or(Outcome::Success, Outcome::Terminal),
        Err(Error::Cancelled) => Outcome::Cancelled,
        Err(error) => Outcome::Failure(failure(action, &error)),
    }
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
    #[error(transparent)]
    WriteFile(#[from] writefile::Error),
    #[error(transparent)]
    Cexec(#[from] cexec::Error),
    #[error(transparent)]
    Archive(#[from] archive2disk::Error),
    #[error(transparent)]
    Grub(#[from] grub2disk::Error),
    #[error(transparent)]
    Kexec(#[from] kexec::Error),
    #[error(transparent)]
    Rootio(#[from] rootio::Error),
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

/// What a task of an action comes to.
pub(crate) async fn joined<T>(task: tokio::task::JoinHandle<T>) -> Result<T, Error> {
    task.await.map_err(Error::Lost)
}

fn failure(action: Builtin, error: &Error) -> Failure {
    let output =
        if let Error::Command(error) = error { error.output().to_owned() } else { String::new() };
    let exit_code = match (action, error) {
        // As the cexec image has them: a variable that says nonsense, one that is missing, and all else.
        (Builtin::Cexec, Error::Input(environment::Error::Invalid { .. })) => 10,
        (Builtin::Cexec, Error::Input(environment::Error::Missing(_))) => 20,
        (Builtin::Cexec, _) => 30,
        _ => 1,
    };
    Failure { reason: format!("{action}: {}", one_line(error)), output, exit_code }
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
