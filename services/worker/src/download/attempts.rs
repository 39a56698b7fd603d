//! Attempts at one download: the delay before the next one, or the failure of all.

use std::time::Instant;

use reqwest::Url;
use runtime::Clock;

use super::error::{AttemptError, Error};
use super::retry_policy::RetryPolicy;
use super::url::redacted;

/// Called before each retry, with the error and the position in bytes.
pub(crate) type OnWait = Box<dyn Fn(&AttemptError, u64) + Send + Sync>;

/// Counts failed attempts at the download of one file.
pub(super) struct Attempts {
    /// URL of the file.
    pub(super) url: Url,
    retry: RetryPolicy,
    on_wait: OnWait,
    failures: u32,
    last_progress: Instant,
}

impl Attempts {
    pub(super) fn new(url: Url, retry: RetryPolicy, on_wait: OnWait) -> Self {
        let last_progress = Clock::system().monotonic();
        Self { url, retry, on_wait, failures: 0, last_progress }
    }

    /// Records the arrival of new bytes.
    pub(super) fn progressed(&mut self) {
        self.failures = 0;
        self.last_progress = Clock::system().monotonic();
    }

    /// Waits before the next attempt, or fails. `position` is that of the next byte, and `length`
    /// that of the file, if known.
    pub(super) async fn wait_or_fail(
        &mut self,
        error: AttemptError,
        position: u64,
        length: Option<u64>,
    ) -> Result<(), Error> {
        if error.is_final() {
            return Err(self.failed(error));
        }
        self.failures += 1;
        let idle = Clock::system().monotonic() - self.last_progress;
        let Some(delay) = self.retry.delay(self.failures, idle, error.retry_after()) else {
            let is_tried_once = self.retry.give_up_after.is_zero();
            let gave_up = if is_tried_once { error } else { self.gave_up(error, position, length) };
            return Err(self.failed(gave_up));
        };
        tracing::warn!(url = redacted(&self.url), position, %error, "download interrupted");
        (self.on_wait)(&error, position);
        tokio::time::sleep(delay).await;
        Ok(())
    }

    fn gave_up(&self, last: AttemptError, position: u64, length: Option<u64>) -> AttemptError {
        let length = length.map_or(String::new(), |length| format!(" of {length}"));
        let progress = format!("{position}{length}");
        let seconds = self.retry.give_up_after.as_secs_f64();
        AttemptError::GaveUp { seconds, progress, source: Box::new(last) }
    }

    fn failed(&self, error: AttemptError) -> Error {
        Error { request: format!("GET {}", redacted(&self.url)), source: error }
    }
}
