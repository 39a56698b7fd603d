//! Progress reports of long actions, limited in rate.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::Clock;

/// The minimum time between two reports.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The current activity of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Downloading, decompressing and writing. Bytes count the part of the download whose content is on the disk.
    Writing,
    /// Reading back what was written. Bytes count the disk.
    Verifying,
    /// Erasing. Bytes count the disk.
    Wiping,
    /// Waiting to retry a download, with the reason. Bytes count the download so far.
    Waiting(String),
}

/// The progress of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Current activity.
    pub phase: Phase,
    /// Bytes done in this phase.
    pub done: u64,
    /// Total bytes of this phase, if known.
    pub total: Option<u64>,
}

/// Receives progress and output of an action. Called from threads that write disks: implementations must not block.
pub trait Progress: Debug + Send + Sync {
    /// Receives a report, at most one per second.
    fn report(&self, report: Report);

    /// Receives output of a command as it arrives.
    fn output(&self, _bytes: &[u8]) {}
}

/// Limits the reports of all stages of an action to one per interval.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    sink: Arc<dyn Progress>,
    interval: Duration,
    clock: Clock,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Meter {
    /// Creates a meter that forwards one report per `interval` to `sink`, at most one per second.
    pub(crate) fn new(sink: Arc<dyn Progress>, interval: Duration) -> Self {
        let interval = interval.max(MIN_INTERVAL);
        Self { sink, interval, clock: Clock::system(), last: Arc::default() }
    }

    /// Forwards the report, unless the last one is less than one interval ago.
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
    struct Recorder(Mutex<Vec<u64>>);

    impl Progress for Recorder {
        fn report(&self, report: Report) {
            self.0.lock().unwrap().push(report.done);
        }
    }

    fn forwarded(interval: Duration, milliseconds: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let recorder = Arc::new(Recorder::default());
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let meter = Meter { clock: clock.clone(), ..Meter::new(recorder.clone(), interval) };
        let mut now = 0;
        for at in milliseconds {
            let report = || Report { phase: Phase::Writing, done: at, total: None };
            clock.advance(Duration::from_millis(at - now));
            now = at;
            meter.report(report);
        }
        recorder.0.lock().unwrap().clone()
    }

    #[test]
    fn one_report_per_interval_is_forwarded() {
        assert_eq!(
            forwarded(Duration::from_secs(3), (0..10_000).step_by(10)),
            [0, 3000, 6000, 9000]
        );
    }

    #[test]
    fn no_interval_is_shorter_than_a_second() {
        assert_eq!(forwarded(Duration::ZERO, [0, 1, 999, 1000, 1500]), [0, 1000]);
    }
}
