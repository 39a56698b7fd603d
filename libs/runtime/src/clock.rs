//! The time, passed in: wall time for records, and monotonic time for intervals.
//!
//! Everything that needs the time is given a [`Clock`] or the time itself; nothing else reads the system's. A clone costs
//! nothing, and reading the system's clock is one call. Pure functions take `now` and no clock.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// A source of the time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// None: the system's clock.
    manual: Option<Arc<watch::Sender<Times>>>,
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
        Self { manual: Some(Arc::new(watch::Sender::new(times))) }
    }

    /// The wall time, which may be set back or forth by the system's administrator.
    #[expect(clippy::disallowed_methods, reason = "everything else gets the time from here")]
    pub fn wall(&self) -> SystemTime {
        self.manual.as_ref().map_or_else(SystemTime::now, |times| times.borrow().wall)
    }

    /// The monotonic time, which only has a meaning inside this process.
    #[expect(clippy::disallowed_methods, reason = "everything else gets the time from here")]
    pub fn monotonic(&self) -> Instant {
        let system = || tokio::time::Instant::now().into_std();
        self.manual.as_ref().map_or_else(system, |times| times.borrow().monotonic)
    }

    /// Sleeps until the wall time `time`. If the system's clock is set meanwhile, the sleep keeps its first duration; a sleep
    /// of a manual clock ends when the clock is moved to `time`.
    pub async fn sleep_until(&self, time: SystemTime) {
        match &self.manual {
            None => tokio::time::sleep(time.duration_since(self.wall()).unwrap_or_default()).await,
            Some(times) => {
                let mut moved = times.subscribe();
                // The sender lives as long as `self`.
                let _reached = moved.wait_for(|now| now.wall >= time).await;
            }
        }
    }

    /// Moves a manual clock on; does nothing to the system's.
    pub fn advance(&self, time: Duration) {
        self.set(|times| {
            times.wall += time;
            times.monotonic += time;
        });
    }

    /// Sets the wall time of a manual clock; does nothing to the system's.
    pub fn set_wall(&self, wall: SystemTime) {
        self.set(|times| times.wall = wall);
    }

    fn set(&self, change: impl FnOnce(&mut Times)) {
        if let Some(times) = &self.manual {
            times.send_modify(change);
        }
    }
}

/// Sleeps until the monotonic time `time` of the system; without one, for ever.
pub async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
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
    async fn a_sleep_of_a_manual_clock_ends_when_it_is_moved_there() {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let mut sleep = Box::pin(clock.sleep_until(until));
        // Tokio's time does not end it.
        for _ in 0..2 {
            let passed = tokio::time::timeout(Duration::from_secs(1000), &mut sleep).await;
            assert!(passed.is_err(), "the clock shows {:?}", clock.wall());
            clock.advance(Duration::from_secs(49));
        }
        clock.advance(Duration::from_secs(2));
        sleep.await;
        clock.sleep_until(SystemTime::UNIX_EPOCH).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_systems_monotonic_time_follows_paused_time() {
        let began = Clock::system().monotonic();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(Clock::system().monotonic() - began, Duration::from_secs(60));
    }
}
