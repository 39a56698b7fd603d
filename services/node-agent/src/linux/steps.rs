//! Blocking calls and deadlines of steps.

use std::time::Duration;

use mounts::{Deadline, Error};
use runtime::clock::Clock;
use tokio::time::Instant;

use crate::kernel::{KernelError, KernelErrorKind};

/// The time that a step leaves for the error to reach the caller before the call's own deadline.
const RESERVE: Duration = Duration::from_secs(1);

/// Runs `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> mounts::Result<T> + Send + 'static,
) -> Result<T, KernelError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(KernelError::from),
        Err(error) => Err(failed(format!("a step ended without a result: {error}"))),
    }
}

/// Returns the time at which a step with the deadline `given` ends.
pub(super) fn step_end(given: Instant) -> Instant {
    given.checked_sub(RESERVE).unwrap_or(given)
}

/// Returns the limit of a blocking step with the deadline `given`.
pub(super) fn limit(given: Instant) -> Deadline {
    Deadline::after(step_end(given).saturating_duration_since(now()))
}

/// Returns the monotonic time as tokio has it.
fn now() -> Instant {
    Instant::from_std(Clock::system().monotonic())
}

/// Returns the error of a step that the kernel or a remote side refused.
pub(super) fn failed(cause: impl Into<String>) -> KernelError {
    KernelError::new(KernelErrorKind::Failed, cause)
}

impl From<Error> for KernelError {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Invalid(_) => KernelErrorKind::Invalid,
            Error::Busy(_) => KernelErrorKind::Busy,
            Error::Missing(_) => KernelErrorKind::MissingInterface,
            Error::Failed { .. } => KernelErrorKind::Failed,
        };
        Self::new(kind, error.to_string())
    }
}
