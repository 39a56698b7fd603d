//! The size of bursts, the interval between them, and the retransmission timeout, from the measured round trip.
//!
//! A client counts to the negotiated window before it acknowledges, or until it misses a block (RFC 7440, section 4). A
//! server that sent a smaller window would wait for the client's timeout. So the window does not shrink after a loss, but
//! the burst does: the part of the window that is sent at once. A loss halves it; each window that arrives whole adds a
//! block. Between two bursts is one round trip, in which a small buffer can be emptied, and a client that misses a block can
//! report it before the rest is sent in vain.

use std::time::Duration;

/// The retransmission timeout before a round trip has been measured (RFC 6298, section 2.1).
const INITIAL_RETRANSMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The least timeout, however short the round trip: the machine may be busy.
const MIN_RETRANSMIT_TIMEOUT: Duration = Duration::from_millis(200);
/// The most that the timeout doubles to.
const MAX_RETRANSMIT_TIMEOUT: Duration = Duration::from_secs(4);
/// With it, no window takes as long as a second, after which clients retransmit.
const MAX_BURST_INTERVAL: Duration = Duration::from_millis(20);

/// The measurements of one transfer.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    window_blocks: u16,
    burst_blocks: u16,
    round_trip: Option<RoundTrip>,
}

/// SRTT and RTTVAR of RFC 6298, section 2.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
}

impl Pacing {
    /// Starts with bursts of the whole window of `window_blocks`.
    pub(crate) fn new(window_blocks: u16) -> Self {
        Self { window_blocks, burst_blocks: window_blocks, round_trip: None }
    }

    /// The number of blocks sent at once.
    pub(crate) fn burst_blocks(&self) -> usize {
        self.burst_blocks.into()
    }

    /// Grows the burst after a window that arrived whole.
    pub(crate) fn record_whole_window(&mut self) {
        self.burst_blocks = self.window_blocks.min(self.burst_blocks.saturating_add(1));
    }

    /// Shrinks the burst after a loss.
    pub(crate) fn record_loss(&mut self) {
        self.burst_blocks = (self.burst_blocks / 2).max(1);
    }

    /// Records the time to the response to packets that were sent once.
    pub(crate) fn record_round_trip(&mut self, measured: Duration) {
        self.round_trip = Some(match self.round_trip {
            None => RoundTrip { smoothed: measured, variation: measured / 2 },
            Some(RoundTrip { smoothed, variation }) => RoundTrip {
                smoothed: (smoothed * 7 + measured) / 8,
                variation: (variation * 3 + smoothed.abs_diff(measured)) / 4,
            },
        });
    }

    /// The time between two bursts.
    pub(crate) fn burst_interval(&self) -> Duration {
        self.round_trip.map_or(MAX_BURST_INTERVAL, |trip| trip.smoothed.min(MAX_BURST_INTERVAL))
    }

    /// True if a response may have come to packets sent `elapsed` ago.
    pub(crate) fn may_have_response(&self, elapsed: Duration) -> bool {
        self.round_trip.is_some_and(|trip| elapsed >= trip.smoothed / 2)
    }

    /// The time to wait for a response to packets that were sent `retransmissions` times before.
    pub(crate) fn retransmit_timeout(&self, retransmissions: u32) -> Duration {
        let first = self.round_trip.map_or(INITIAL_RETRANSMIT_TIMEOUT, |trip| {
            (trip.smoothed + trip.variation * 4).max(MIN_RETRANSMIT_TIMEOUT)
        });
        first.saturating_mul(1 << retransmissions.min(u8::BITS)).min(MAX_RETRANSMIT_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_halves_with_each_loss_and_grows_by_one_block_with_each_whole_window() {
        let mut pacing = Pacing::new(8);
        let mut after = |whole: bool| {
            if whole {
                pacing.record_whole_window();
            } else {
                pacing.record_loss();
            }
            pacing.burst_blocks()
        };
        let bursts = [true, false, false, false, false, true, true, false].map(&mut after);
        assert_eq!(bursts, [8, 4, 2, 1, 1, 2, 3, 1]);
        assert_eq!([true; 9].map(after), [2, 3, 4, 5, 6, 7, 8, 8, 8]);
    }

    #[test]
    fn the_timeout_is_a_second_until_a_round_trip_is_measured() {
        let mut pacing = Pacing::new(1);
        let seconds = [0, 1, 2, 3].map(|tries| pacing.retransmit_timeout(tries).as_secs());
        assert_eq!(seconds, [1, 2, 4, 4]);
        pacing.record_round_trip(300 * MS);
        assert_eq!(pacing.retransmit_timeout(0), 900 * MS);
        pacing.record_round_trip(300 * MS);
        assert_eq!(pacing.retransmit_timeout(0), 750 * MS);
        assert_eq!(pacing.retransmit_timeout(9), MAX_RETRANSMIT_TIMEOUT);
    }

    #[test]
    fn a_short_round_trip_does_not_shorten_the_timeout_below_the_minimum() {
        let mut pacing = Pacing::new(1);
        pacing.record_round_trip(Duration::ZERO);
        let timeouts = [0, 1, 5].map(|tries| pacing.retransmit_timeout(tries));
        let expected = [MIN_RETRANSMIT_TIMEOUT, 2 * MIN_RETRANSMIT_TIMEOUT, MAX_RETRANSMIT_TIMEOUT];
        assert_eq!(timeouts, expected);
    }

    #[test]
    fn the_burst_interval_is_a_round_trip_up_to_its_maximum() {
        let mut pacing = Pacing::new(16);
        assert_eq!(pacing.burst_interval(), MAX_BURST_INTERVAL);
        pacing.record_round_trip(3 * MS);
        assert_eq!(pacing.burst_interval(), 3 * MS);
        pacing.record_round_trip(Duration::from_secs(9));
        assert_eq!(pacing.burst_interval(), MAX_BURST_INTERVAL);
        assert!(pacing.burst_interval() * 16 < INITIAL_RETRANSMIT_TIMEOUT);
    }

    proptest! {
        #[test]
        fn bursts_and_timeouts_stay_within_their_limits(
            window in 1..=64_u16,
            windows in prop::collection::vec((any::<bool>(), 0..1_000_000_u32), 0..100),
        ) {
            let mut pacing = Pacing::new(window);
            for (whole, micros) in windows {
                if whole { pacing.record_whole_window() } else { pacing.record_loss() }
                pacing.record_round_trip(Duration::from_micros(micros.into()));
                prop_assert!((1..=usize::from(window)).contains(&pacing.burst_blocks()));
                let timeouts = MIN_RETRANSMIT_TIMEOUT..=MAX_RETRANSMIT_TIMEOUT;
                prop_assert!(timeouts.contains(&pacing.retransmit_timeout(0)));
            }
        }
    }
}
