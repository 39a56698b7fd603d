//! How fast a window goes out, and how long to wait for its answer: as the line is seen to be.
//!
//! A client counts to the window agreed on before it acknowledges, or until it misses a block (RFC 7440, section 4). A
//! server that sent fewer would wait for the client's clock. So it is not the window that shrinks after a loss, but the
//! portion of it that goes out at once: by half, and it grows by a block with every window that comes whole. Between two
//! portions is a pause of a round trip. A small buffer can be emptied in it, and who misses a block can say so before the
//! rest is sent in vain.

use std::time::Duration;

/// How long to wait for an answer while no round trip has been measured (RFC 6298, section 2.1).
const PATIENCE: Duration = Duration::from_secs(1);
/// The least wait, however fast the line: the machine at its end may be busy.
const LEAST: Duration = Duration::from_millis(200);
/// What waits double up to.
const LONGEST: Duration = Duration::from_secs(4);
/// The longest pause: no window that is granted takes a second, after which clients ask again.
const PAUSE: Duration = Duration::from_millis(20);

/// What one transfer knows of its line.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    window: u16,
    portion: u16,
    trip: Option<Trip>,
}

/// A round trip, and by how much it varies (RFC 6298, section 2).
#[derive(Clone, Copy, Debug)]
struct Trip {
    smooth: Duration,
    varies: Duration,
}

impl Pace {
    /// Of windows of `window` blocks, which go out whole until one does not come whole.
    pub(super) fn new(window: u16) -> Self {
        Self { window, portion: window, trip: None }
    }

    /// How many blocks go out at once.
    pub(super) fn portion(&self) -> usize {
        self.portion.into()
    }

    /// A window came whole.
    pub(super) fn whole(&mut self) {
        self.portion = self.window.min(self.portion.saturating_add(1));
    }

    /// Something of a window was lost.
    pub(super) fn lost(&mut self) {
        self.portion = (self.portion / 2).max(1);
    }

    /// An answer took so long, to what was sent once.
    pub(super) fn measured(&mut self, took: Duration) {
        self.trip = Some(match self.trip {
            None => Trip { smooth: took, varies: took / 2 },
            Some(Trip { smooth, varies }) => Trip {
                smooth: (smooth * 7 + took) / 8,
                varies: (varies * 3 + smooth.abs_diff(took)) / 4,
            },
        });
    }

    /// The time between two portions.
    pub(super) fn pause(&self) -> Duration {
        self.trip.map_or(PAUSE, |trip| trip.smooth.min(PAUSE))
    }

    /// Whether an answer may have come to what was sent so long ago.
    pub(super) fn may_answer(&self, ago: Duration) -> bool {
        self.trip.is_some_and(|trip| ago >= trip.smooth / 2)
    }

    /// How long to wait for an answer to what was sent `tries` times before.
    pub(super) fn patience(&self, tries: u32) -> Duration {
        let first = self.trip.map_or(PATIENCE, |trip| (trip.smooth + trip.varies * 4).max(LEAST));
        first.saturating_mul(1 << tries.min(u8::BITS)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn portions_halve_with_every_loss_and_grow_by_one_with_every_whole_window() {
        let mut pace = Pace::new(8);
        let mut after = |whole: bool| {
            if whole {
                pace.whole()
            } else {
                pace.lost()
            }
            pace.portion()
        };
        let seen = [true, false, false, false, false, true, true, false].map(&mut after);
        assert_eq!(seen, [8, 4, 2, 1, 1, 2, 3, 1]);
        assert_eq!([true; 9].map(after), [2, 3, 4, 5, 6, 7, 8, 8, 8]);
    }

    #[test]
    fn who_was_never_measured_is_given_a_second_and_who_was_what_he_takes() {
        let mut pace = Pace::new(1);
        assert_eq!([0, 1, 2, 3].map(|tries| pace.patience(tries).as_secs()), [1, 2, 4, 4]);
        pace.measured(300 * MS);
        assert_eq!(pace.patience(0), 900 * MS);
        pace.measured(300 * MS);
        assert_eq!(pace.patience(0), 750 * MS);
        assert_eq!(pace.patience(9), LONGEST);
    }

    #[test]
    fn a_fast_line_makes_nobody_impatient() {
        let mut pace = Pace::new(1);
        pace.measured(Duration::ZERO);
        assert_eq!([0, 1, 5].map(|tries| pace.patience(tries)), [LEAST, 2 * LEAST, LONGEST]);
    }

    #[test]
    fn a_pause_is_a_round_trip_and_no_more_than_a_window_bears() {
        let mut pace = Pace::new(16);
        assert_eq!(pace.pause(), PAUSE);
        pace.measured(3 * MS);
        assert_eq!(pace.pause(), 3 * MS);
        pace.measured(Duration::from_secs(9));
        assert_eq!(pace.pause(), PAUSE);
        assert!(pace.pause() * 16 < PATIENCE);
    }

    proptest! {
        #[test]
        fn whatever_the_line_does_something_goes_out_and_no_more_than_was_agreed_on(
            window in 1..=64_u16,
            seen in prop::collection::vec((any::<bool>(), 0..1_000_000_u32), 0..100),
        ) {
            let mut pace = Pace::new(window);
            for (whole, micros) in seen {
                if whole { pace.whole() } else { pace.lost() }
                pace.measured(Duration::from_micros(micros.into()));
                prop_assert!((1..=usize::from(window)).contains(&pace.portion()));
                prop_assert!((LEAST..=LONGEST).contains(&pace.patience(0)));
            }
        }
    }
}
