//! Retries of calls to the control plane, without a limit in time.
//!
//! The control plane may be away for any time, and the machine has nothing else to do. Only a final error ends the retries.

use std::time::Duration;

use runtime::retry::{self, is_final};
use tonic::Status;

/// The delays between two attempts: much shorter than a lease, so that a server that
/// is back gets a call before the lease ends.
const BACKOFF: retry::Backoff =
    retry::Backoff::new(Duration::from_millis(250), Duration::from_secs(8));
/// Of this many failures in a row one is logged as a warning.
const FAILURES_PER_WARNING: u32 = 10;
/// The delay before what was refused is tried again, or logged again.
pub(crate) const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The delays between attempts that fail, logged.
#[derive(Debug)]
pub(crate) struct Backoff(retry::Backoff);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF)
    }
}

impl Backoff {
    /// Waits until the next attempt. Logs `error` as a warning at first, and then about once a minute.
    pub(crate) async fn wait(&mut self, doing: &str, error: &(dyn std::error::Error + 'static)) {
        let failures = self.0.failures();
        if failures.is_multiple_of(FAILURES_PER_WARNING) {
            tracing::warn!(doing, error, failures, "failed; trying again until it succeeds");
        } else {
            tracing::debug!(doing, error, failures, "failed; trying again");
        }
        self.0.wait().await;
    }

    /// Forgets the failures, since an attempt succeeded.
    pub(crate) fn reset(&mut self, doing: &str) {
        if self.0.failures() > 0 {
            tracing::info!(doing, failures = self.0.failures(), "succeeded after failures");
        }
        self.0.reset();
    }
}

/// Repeats `call` until it succeeds or fails with a final error.
pub(crate) async fn until_final<T>(
    doing: &str,
    mut call: impl AsyncFnMut() -> Result<T, Status>,
) -> Result<T, Status> {
    let mut backoff = Backoff::default();
    loop {
        match call().await {
            Err(status) if !is_final(status.code()) => backoff.wait(doing, &status).await,
            answer => {
                backoff.reset(doing);
                return answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_made_until_the_server_is_back() {
        let mut tries = 0;
        let answer = until_final("test", async || {
            tries += 1;
            if tries < 50 { Err(Status::unavailable("away")) } else { Ok(tries) }
        });
        assert_eq!(answer.await.unwrap(), 50);
    }

    #[tokio::test]
    async fn a_final_error_ends_a_call() {
        let mut tries = 0;
        let answer: Result<(), _> = until_final("test", async || {
            tries += 1;
            Err(Status::permission_denied("no"))
        })
        .await;
        assert_eq!((answer.unwrap_err().code(), tries), (Code::PermissionDenied, 1));
    }
}
