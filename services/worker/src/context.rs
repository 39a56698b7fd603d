//! Inputs of an action besides its variables, and its outcomes.

use std::sync::Arc;

use image_signature::PublicKeys;
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use crate::download::RetryPolicy;
use crate::progress::Progress;

/// The way in which a terminal action ends the running system, and this program with it. Before that, the caller reports the
/// action to the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Reboot the machine.
    Reboot,
    /// Power the machine off.
    PowerOff,
    /// Jump to the kernel that was loaded (reboot(2), `LINUX_REBOOT_CMD_KEXEC`).
    Kexec,
}

/// The end of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// The action succeeded, and its data is flushed to the disk.
    Success,
    /// The action prepared the end of the running system. The caller ends it.
    Terminal(Terminal),
    /// The action failed. One line: the action, the operation that failed, and the cause.
    Failure(String),
    /// The action was cancelled; no part of it is still running.
    Cancelled,
}

/// Inputs of an action besides its variables.
#[derive(Clone, Debug)]
pub struct Context {
    /// Receives progress reports.
    pub progress: Arc<dyn Progress>,
    /// Cancels the action, after its time limit or if its workflow is cancelled.
    pub stop: CancellationToken,
    /// Certificate authorities trusted for downloads, as PEM bundles. No others are trusted: if this is empty, only plain
    /// `http` works.
    pub roots: Vec<Vec<u8>>,
    /// The server that this machine was booted from. URLs in variables may be paths on it.
    pub boot_server: Option<Url>,
    /// Keys of which an image needs a signature. None: images need none.
    pub image_keys: Option<PublicKeys>,
    /// Default retry policy of downloads. Variables may override it.
    pub retry_policy: RetryPolicy,
}
