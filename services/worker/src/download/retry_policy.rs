//! Timeouts and delays of retried downloads.

use std::time::Duration;

use runtime::retry::Backoff;

/// Timeouts and delays of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Timeout for a connection, and for the next byte on it. After it, the connection counts as broken.
    pub stall_timeout: Duration,
    /// The delays between two attempts.
    pub backoff: Backoff,
    /// The time without a new byte after which the download fails. Zero: no retries.
    pub give_up_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            stall_timeout: Duration::from_secs(30),
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
            give_up_after: Duration::from_secs(600),
        }
    }
}

impl RetryPolicy {
    /// Returns the delay before the next attempt, or `None` if `give_up_after` has passed. `failures` counts consecutive
    /// attempts without a new byte, `idle` is the time since the last new byte, and `retry_after` the delay in the response.
    pub(crate) fn delay(
        &self,
        failures: u32,
        idle: Duration,
        retry_after: Duration,
    ) -> Option<Duration> {
        let left = self.give_up_after.checked_sub(idle).filter(|left| !left.is_zero())?;
        let delay = self.backoff.delay_after(failures).max(retry_after.min(self.backoff.max()));
        // The last attempt is made at the end of the time, even if the server requests a longer delay.
        Some(delay.min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let policy = RetryPolicy::default();
        let delays: Vec<_> =
            (1..9).map(|failures| policy.delay(failures, NOW, NOW).unwrap().as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(policy.delay(u32::MAX, NOW, NOW), Some(seconds(30)));
    }

    #[test]
    fn a_server_may_request_a_longer_delay_up_to_the_maximum() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, NOW, seconds(5)), Some(seconds(5)));
        assert_eq!(policy.delay(1, NOW, seconds(86_400)), Some(seconds(30)));
    }

    #[test]
    fn waiting_ends_ten_minutes_after_the_last_new_byte() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(9, seconds(599), NOW), Some(seconds(1)));
        assert_eq!(policy.delay(9, seconds(600), NOW), None);
        assert_eq!(RetryPolicy { give_up_after: NOW, ..policy }.delay(1, NOW, NOW), None);
    }
}
