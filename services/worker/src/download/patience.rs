//! How long a download keeps trying.

use std::time::Duration;

/// How long a download waits for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a connection, and for the next byte on it, before it counts as cut.
    pub stall: Duration,
    /// Before the second try; doubled before each one after it.
    pub first_pause: Duration,
    /// Between two tries at most.
    pub longest_pause: Duration,
    /// Without a single new byte before the download fails. Zero: the first trouble is the last.
    pub give_up: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(30),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            give_up: Duration::from_secs(600),
        }
    }
}

impl Patience {
    /// How long to wait after `failures` tries in a row brought nothing, the last new byte being `idle` ago and the
    /// server having asked for a pause of `asked`; `None` once waiting is over.
    pub(crate) fn pause(&self, failures: u32, idle: Duration, asked: Duration) -> Option<Duration> {
        let left = self.give_up.checked_sub(idle).filter(|left| !left.is_zero())?;
        let doubled = self.first_pause.saturating_mul(2_u32.saturating_pow(failures));
        // The last try comes at the very end of the time, however long a server would like to be left alone.
        Some(doubled.max(asked).min(self.longest_pause).min(left))
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
    fn pauses_double_up_to_the_longest() {
        let patience = Patience::default();
        let pauses: Vec<_> =
            (0..8).map(|failures| patience.pause(failures, NOW, NOW).unwrap().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(patience.pause(u32::MAX, NOW, NOW), Some(seconds(30)));
    }

    #[test]
    fn a_server_may_ask_for_a_longer_pause_but_not_for_any() {
        let patience = Patience::default();
        assert_eq!(patience.pause(0, NOW, seconds(5)), Some(seconds(5)));
        assert_eq!(patience.pause(0, NOW, seconds(86_400)), Some(seconds(30)));
    }

    #[test]
    fn waiting_ends_ten_minutes_after_the_last_new_byte() {
        let patience = Patience::default();
        assert_eq!(patience.pause(9, seconds(599), NOW), Some(seconds(1)));
        assert_eq!(patience.pause(9, seconds(600), NOW), None);
        assert_eq!(Patience { give_up: NOW, ..patience }.pause(0, NOW, NOW), None);
    }
}
