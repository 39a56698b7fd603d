//! The time, passed in: wall time for records, and monotonic time for intervals.
//!
//! Everything that needs the time is given a [`Clock`] or the time itself; nothing else reads the system's. A clone costs
//! nothing, and reading the system's clock is one call. Pure functions take `now` and no clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A source of the time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// None: the system's clock.
    manual: Option<Arc<Mutex<Times>>>,
}

/// The same moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Times {
    wall: SystemTime,
    monotonic: Instant,
}

impl Clock {
    /// The system's clock. In tests that pause tokio's time, [`monotonic`](Self::monotonic) follows that.
    pub const fn system() -> Self {
        Self { manual: None }
    }

    /// A clock for tests, which stands at `wall` until it is moved. Clones move together.
    pub fn manual(wall: SystemTime) -> Self {
        let times = Times { wall, monotonic: Self::system().monotonic() };
        Self { manual: Some(Arc::new(Mutex::new(times))) }
    }

    /// The wall time, which may be set back or forth by the system's administrator.
    #[expect(clippy::disallowed_methods, reason = "everything else gets the time from here")]
    pub fn wall(&self) -> SystemTime {
        self.times().map_or_else(SystemTime::now, |times| times.wall)
    }

    /// The monotonic time, which only has a meaning inside this process.
    #[expect(clippy::disallowed_methods, reason = "everything else gets the time from here")]
    pub fn monotonic(&self) -> Instant {
        self.times().map_or_else(|| tokio::time::Instant::now().into_std(), |times| times.monotonic)
    }

    /// Moves a manual clock on; does nothing to the system's.
    pub fn advance(&self, time: Duration) {
        if let Some(mut times) = self.times() {
            times.wall += time;
            times.monotonic += time;
        }
    }

    /// Sets the wall time of a manual clock; does nothing to the system's.
    pub fn set_wall(&self, wall: SystemTime) {
        if let Some(mut times) = self.times() {
            times.wall = wall;
        }
    }

    fn times(&self) -> Option<MutexGuard<'_, Times>> {
        let times = self.manual.as_ref()?;
        Some(times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_until_it_is_moved_and_its_clones_with_it() {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let (other, began) = (clock.clone(), clock.monotonic());
        clock.advance(Duration::from_secs(7));
        assert_eq!(other.wall(), SystemTime::UNIX_EPOCH + Duration::from_secs(7));
        assert_eq!(other.monotonic() - began, Duration::from_secs(7));
        clock.set_wall(SystemTime::UNIX_EPOCH);
        assert_eq!(other.wall(), SystemTime::UNIX_EPOCH);
        assert_eq!(other.monotonic() - began, Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_systems_monotonic_time_follows_paused_time() {
        let began = Clock::system().monotonic();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(Clock::system().monotonic() - began, Duration::from_secs(60));
    }
}
