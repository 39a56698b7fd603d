//! Inputs of an action besides its variables, and its outcomes.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::download::RetryPolicy;
use crate::progress::Progress;

/// The last act after an action: it ends the running system, and this program with it. The caller reports the action's
/// result first.
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
    /// Everything is done, and flushed to the disk.
    Success,
    /// Everything is prepared; the caller carries out this last act.
    Terminal(Terminal),
    /// The action failed.
    Failure(Failure),
    /// The action was cancelled; no part of it is still running.
    Cancelled,
}

/// A failed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One line that names what failed and where.
    pub reason: String,
    /// The last lines printed by the command that failed; at most 4 KiB.
    pub output: String,
    /// The exit code that the action's image has for this kind of failure.
    pub exit_code: i32,
}

/// Inputs of an action besides its variables.
#[derive(Clone, Debug)]
pub struct Context {
    /// Receives progress reports.
    pub progress: Arc<dyn Progress>,
    /// Cancels the action: its time limit passed, or its workflow was cancelled.
    pub stop: CancellationToken,
    /// Certificate authorities trusted for downloads, as PEM bundles. There are no others: without any, only plain
    /// `http` works.
    pub roots: Vec<Vec<u8>>,
    /// Retries of downloads, where the variables do not set them.
    pub retry_policy: RetryPolicy,
}
