//! The limits within which a download is tried again.

use std::time::Duration;

use runtime::retry::Backoff;

/// Timeouts and delays of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The longest wait for a connection, and for the next byte on it, before it counts as cut.
    pub stall_timeout: Duration,
    /// The delays between two attempts.
    pub backoff: Backoff,
    /// The longest time without a single new byte before the download fails. Zero: the first failure is the last.
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
    /// Returns the delay after `failures` attempts in a row without a new byte, the last of which came `idle` ago, where the
    /// server wants a delay of `retry_after`; none once the time is over.
    pub(crate) fn delay(
        &self,
        failures: u32,
        idle: Duration,
        retry_after: Duration,
    ) -> Option<Duration> {
        let left = self.give_up_after.checked_sub(idle).filter(|left| !left.is_zero())?;
        let delay = self.backoff.delay_after(failures).max(retry_after.min(self.backoff.max()));
        // The last attempt comes at the very end of the time, however long a server would like to be left alone.
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
    fn a_server_may_ask_for_a_longer_pause_but_not_for_any() {
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
