//! The built-in actions: which one an image reference names, and how it ends.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::checksum::Mismatch;
use crate::download::Patience;
use crate::environment::{self, Environment};
use crate::progress::Progress;
use crate::{cexec, disk, download, image2disk, installed, wipe, writefile};

/// An action this program carries out itself, without a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// Writes a disk image to a disk, and reads it back.
    Image2Disk,
    /// Writes one file into a file system.
    WriteFile,
    /// Runs a command in the installed system.
    Cexec,
    /// Erases disks.
    Wipe,
    /// Boots the machine again.
    Reboot,
    /// Turns the machine off.
    PowerOff,
}

/// Whether a built-in may stand in for the image it is named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Unless the reference pins a digest, which means exactly that image.
    Prefer,
    /// Always: there is nothing else to run images with.
    Only,
    /// Not at all.
    Never,
}

/// What ends the running system, and this program with it. The caller reports first and acts then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Boot again.
    Reboot,
    /// Turn off.
    PowerOff,
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

impl Builtin {
    /// The built-in that `image` names under `policy`, if it is one. Its registry, tag and digest play no part; a
    /// `command` of one's own means another program than the image's usual one.
    pub fn named(image: &str, command: &[String], policy: Policy) -> Option<Self> {
        let (name, digest) =
            image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
        let replaced = match policy {
            Policy::Never => false,
            Policy::Prefer => digest.is_none(),
            Policy::Only => true,
        };
        if !replaced || command.iter().any(|word| !word.is_empty()) {
            return None;
        }
        let last = name.rsplit('/').next()?;
        Self::called(last.split(':').next()?)
    }

    /// What is left to the caller as its last act, if this ends the running system.
    pub fn terminal(self) -> Option<Terminal> {
        match self {
            Self::Reboot => Some(Terminal::Reboot),
            Self::PowerOff => Some(Terminal::PowerOff),
            Self::Image2Disk | Self::WriteFile | Self::Cexec | Self::Wipe => None,
        }
    }

    fn called(name: &str) -> Option<Self> {
        match name {
            "image2disk" => Some(Self::Image2Disk),
            "writefile" => Some(Self::WriteFile),
            "cexec" => Some(Self::Cexec),
            "wipe" => Some(Self::Wipe),
            "reboot" => Some(Self::Reboot),
            "poweroff" => Some(Self::PowerOff),
            _ => None,
        }
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image2Disk => "image2disk",
            Self::WriteFile => "writefile",
            Self::Cexec => "cexec",
            Self::Wipe => "wipe",
            Self::Reboot => "reboot",
            Self::PowerOff => "poweroff",
        })
    }
}

/// Carries out `action` with the variables in `environment`. To end it early, cancel the context and wait for
/// [`Outcome::Cancelled`]: dropping the future would leave its threads at work.
#[tracing::instrument(skip_all, fields(%action))]
pub async fn run(action: Builtin, environment: &Environment, context: &Context) -> Outcome {
    let ended = match action {
        Builtin::Image2Disk => Box::pin(image2disk::run(environment, context)).await,
        Builtin::WriteFile => writefile::run(environment).await,
        Builtin::Cexec => cexec::run(environment, context).await,
        Builtin::Wipe => wipe::run(environment, context).await,
        Builtin::Reboot => return Outcome::Terminal(Terminal::Reboot),
        Builtin::PowerOff => return Outcome::Terminal(Terminal::PowerOff),
    };
    match ended {
        Ok(()) => Outcome::Success,
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
    WriteFile(#[from] writefile::Error),
    #[error(transparent)]
    Command(#[from] cexec::Error),
    #[error("GET {at}")]
    Sum { at: String, source: Mismatch },
    #[error("GET {at}: the file is damaged or not whole {format}")]
    Unpack { at: String, format: &'static str, source: io::Error },
    #[error("GET {at}: the file is not {promised}, though COMPRESSED is true")]
    NotPacked { at: String, promised: &'static str },
    #[error(
        "GET {0}: the server tells no length, so a cut would pass for the end; set IMG_CHECKSUM"
    )]
    Endless(String),
    /// A stage of a pipeline ended because the next one did: never the cause.
    #[error("the next stage has stopped")]
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
fn one_line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "@sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_last_part_of_a_reference_names_the_built_in() {
        for image in [
            "quay.io/tinkerbell/actions/image2disk:latest",
            "quay.io/tinkerbell-actions/image2disk:v1.0.0",
            "127.0.0.1/embedded/image2disk:latest",
            "localhost:5000/image2disk",
            "image2disk:v1.0.0",
            "image2disk",
        ] {
            assert_eq!(
                Builtin::named(image, &[], Policy::Prefer),
                Some(Builtin::Image2Disk),
                "{image}"
            );
        }
        for image in
            ["quay.io/image2disk/custom", "image2disk-ng", "alpine", "", "image2disk:5000/os"]
        {
            assert_eq!(Builtin::named(image, &[], Policy::Only), None, "{image}");
        }
    }

    #[test]
    fn a_pinned_digest_means_that_very_image_while_there_is_a_choice() {
        for image in
            [format!("quay.io/tinkerbell/actions/cexec{DIGEST}"), format!("cexec:latest{DIGEST}")]
        {
            assert_eq!(Builtin::named(&image, &[], Policy::Prefer), None);
            assert_eq!(Builtin::named(&image, &[], Policy::Only), Some(Builtin::Cexec));
        }
        assert_eq!(Builtin::named("cexec", &[], Policy::Never), None);
    }

    #[test]
    fn a_command_of_its_own_is_not_a_built_in() {
        assert_eq!(Builtin::named("cexec", &["sh".into()], Policy::Only), None);
        assert_eq!(Builtin::named("cexec", &[String::new()], Policy::Only), Some(Builtin::Cexec));
    }

    proptest! {
        #[test]
        fn no_reference_makes_the_naming_panic(
            image in "\\PC{0,60}",
            command in prop::collection::vec("\\PC{0,5}", 0..3),
        ) {
            let _either = Builtin::named(&image, &command, Policy::Only);
        }
    }
}
