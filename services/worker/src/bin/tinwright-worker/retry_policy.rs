//! Retries of calls to the control plane, without a time limit.
//!
//! The control plane may be unreachable for a long time, and the machine has nothing else to do. Only a final error ends the
//! retries.

use std::time::Duration;

use runtime::retry::{self, is_final};
use tonic::Status;

/// The delays between two attempts. They are much shorter than a lease, so that a server that is reachable again gets a
/// call before the lease expires.
const BACKOFF: retry::Backoff =
    retry::Backoff::new(Duration::from_millis(250), Duration::from_secs(8));
/// One of this many consecutive failures is logged as a warning, the others at debug level.
const FAILURES_PER_WARNING: u32 = 10;
/// The delay before a refused request is repeated, or logged again.
pub(crate) const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(60);

/// A backoff that logs failures and the success after them.
#[derive(Debug)]
pub(crate) struct Backoff(retry::Backoff);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF)
    }
}

impl Backoff {
    /// Waits until the next attempt. Logs `error` as a warning at first, and then about once a minute.
    pub(crate) async fn wait(
        &mut self,
        operation: &str,
        error: &(dyn std::error::Error + 'static),
    ) {
        let failures = self.0.failures();
        if failures.is_multiple_of(FAILURES_PER_WARNING) {
            tracing::warn!(operation, error, failures, "failed; trying again until it succeeds");
        } else {
            tracing::debug!(operation, error, failures, "failed; trying again");
        }
        self.0.wait().await;
    }

    /// Resets the delays after an attempt that succeeded.
    pub(crate) fn reset(&mut self, operation: &str) {
        if self.0.failures() > 0 {
            tracing::info!(operation, failures = self.0.failures(), "succeeded after failures");
        }
        self.0.reset();
    }
}

/// Repeats `call` until it succeeds or fails with a final error.
pub(crate) async fn until_final<T>(
    operation: &str,
    mut call: impl AsyncFnMut() -> Result<T, Status>,
) -> Result<T, Status> {
    let mut backoff = Backoff::default();
    loop {
        match call().await {
            Err(status) if !is_final(status.code()) => backoff.wait(operation, &status).await,
            result => {
                backoff.reset(operation);
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_repeated_until_the_server_is_available() {
        let mut attempts = 0;
        let result = until_final("test", async || {
            attempts += 1;
            if attempts < 50 { Err(Status::unavailable("away")) } else { Ok(attempts) }
        });
        assert_eq!(result.await.unwrap(), 50);
    }

    #[tokio::test]
    async fn a_final_error_ends_the_retries() {
        let mut attempts = 0;
        let result: Result<(), _> = until_final("test", async || {
            attempts += 1;
            Err(Status::permission_denied("no"))
        })
        .await;
        assert_eq!((result.unwrap_err().code(), attempts), (Code::PermissionDenied, 1));
    }
}
