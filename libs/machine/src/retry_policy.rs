//! Retries of calls to the control plane, without a time limit.
//!
//! The control plane may be unreachable for a long time, and the machine has nothing else to do. Only a final error ends the
//! retries. What this boot needs is requested again after a final error, but only for ten minutes: after that, only a new boot
//! can help, with a new token.

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
pub const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The number of refused requests after which this boot is given up.
const MAX_REFUSALS: u32 = 10;

/// A backoff that logs failures and the success after them.
#[derive(Debug)]
pub struct Backoff(retry::Backoff);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF)
    }
}

impl Backoff {
    /// Waits until the next attempt, for as long as the server says if it says so. Logs `error` as a warning at first, and then about
    /// once a minute.
    pub async fn wait(
        &mut self,
        operation: &str,
        error: &(dyn std::error::Error + Send + Sync + 'static),
    ) {
        let failures = self.0.failures();
        if failures.is_multiple_of(FAILURES_PER_WARNING) {
            tracing::warn!(operation, error, failures, "failed; trying again until it succeeds");
        } else {
            tracing::debug!(operation, error, failures, "failed; trying again");
        }
        match error.downcast_ref() {
            Some(status) => self.0.wait_after(status).await,
            None => self.0.wait().await,
        }
    }

    /// Resets the delays after an attempt that succeeded.
    pub fn reset(&mut self, operation: &str) {
        if self.0.failures() > 0 {
            tracing::info!(operation, failures = self.0.failures(), "succeeded after failures");
        }
        self.0.reset();
    }
}

/// Repeats `call` until it succeeds or fails with a final error.
pub async fn until_final<T>(
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

/// Repeats `call`, whose errors are final, every minute. Returns `None` after ten minutes.
pub async fn until_given_up<T, E: std::error::Error + 'static>(
    refusal: &str,
    mut call: impl AsyncFnMut() -> Result<T, E>,
) -> Option<T> {
    for _ in 0..MAX_REFUSALS {
        match call().await {
            Ok(value) => return Some(value),
            Err(error) => {
                tracing::error!(error = runtime::cause(&error), "{refusal}; retrying in a minute");
                drop(error);
                tokio::time::sleep(REFUSED_RETRY_DELAY).await;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Clock;
    use tinwright::status;
    use tonic::Code;

    #[tokio::test(start_paused = true)]
    async fn a_refused_request_is_given_up_after_ten_minutes() {
        let (mut attempts, begun) = (0, Clock::system().monotonic());
        let result: Option<()> = until_given_up("refused", async || {
            attempts += 1;
            Err(Status::permission_denied("no"))
        })
        .await;
        assert_eq!((result, attempts), (None, 10));
        assert_eq!(Clock::system().monotonic() - begun, Duration::from_secs(600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_refused_at_first_succeeds() {
        let mut attempts = 0;
        let result = until_given_up("refused", async || {
            attempts += 1;
            if attempts < 10 { Err(Status::permission_denied("no")) } else { Ok(attempts) }
        });
        assert_eq!(result.await, Some(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_repeated_until_the_server_is_available() {
        let mut attempts = 0;
        let result = until_final("test", async || {
            attempts += 1;
            if attempts < 50 { Err(Status::unavailable("away")) } else { Ok(attempts) }
        });
        assert_eq!(result.await.unwrap(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_server_is_called_again_when_it_says() {
        let (mut attempts, begun) = (0, Clock::system().monotonic());
        let result = until_final("test", async || {
            attempts += 1;
            let overloaded = || status::overloaded("too many calls", Duration::from_secs(5));
            if attempts == 1 { Err(overloaded()) } else { Ok(()) }
        });
        result.await.unwrap();
        assert_eq!((Clock::system().monotonic() - begun).as_secs(), 5);
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
