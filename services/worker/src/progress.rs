//! What a long action says while it runs: often enough to watch, seldom enough to store.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::Clock;

/// The shortest time between two reports, whatever an action asks for.
const SHORTEST: Duration = Duration::from_secs(1);

/// What an action is busy with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Downloading, unpacking and writing; bytes are those of the file downloaded whose content is on the disk.
    Writing,
    /// Reading back what was written; bytes are the disk's.
    Verifying,
    /// Erasing; bytes are the disk's.
    Wiping,
    /// Waiting to try again, and why; bytes are those downloaded so far.
    Waiting(String),
}

/// Where an action is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it does now.
    pub phase: Phase,
    /// Bytes done in this phase.
    pub done: u64,
    /// Bytes to do in this phase, if that is known.
    pub total: Option<u64>,
}

/// Who hears of it. Called from threads that write disks, so neither method may block.
pub trait Progress: Debug + Send + Sync {
    /// Takes a report; at most one a second comes.
    fn report(&self, report: Report);

    /// Takes what a command printed, as it comes.
    fn output(&self, _bytes: &[u8]) {}
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _report: Report) {}
}

/// Thins the reports of an action's stages to one per interval, over all of them.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    sink: Arc<dyn Progress>,
    interval: Duration,
    clock: Clock,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Meter {
    /// A meter before `sink` that lets one report through per `interval`, and never more than one a second.
    pub(crate) fn new(sink: Arc<dyn Progress>, interval: Duration) -> Self {
        Self {
            sink,
            interval: interval.max(SHORTEST),
            clock: Clock::system(),
            last: Arc::default(),
        }
    }

    /// Reports, unless the last report is too recent.
    pub(crate) fn report(&self, report: impl FnOnce() -> Report) {
        let now = self.clock.monotonic();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= self.interval) {
            *last = Some(now);
            drop(last);
            self.sink.report(report());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<u64>>);

    impl Progress for Heard {
        fn report(&self, report: Report) {
            self.0.lock().unwrap().push(report.done);
        }
    }

    fn heard(interval: Duration, milliseconds: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let heard = Arc::new(Heard::default());
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let meter = Meter { clock: clock.clone(), ..Meter::new(heard.clone(), interval) };
        let mut now = 0;
        for at in milliseconds {
            let report = || Report { phase: Phase::Writing, done: at, total: None };
            clock.advance(Duration::from_millis(at - now));
            now = at;
            meter.report(report);
        }
        heard.0.lock().unwrap().clone()
    }

    #[test]
    fn reports_are_thinned_to_one_per_interval() {
        assert_eq!(heard(Duration::from_secs(3), (0..10_000).step_by(10)), [0, 3000, 6000, 9000]);
    }

    #[test]
    fn no_interval_is_shorter_than_a_second() {
        assert_eq!(heard(Duration::ZERO, [0, 1, 999, 1000, 1500]), [0, 1000]);
    }
}
