//! The order of signals that ends a container.

use std::time::{Duration, Instant};

/// A signal to PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// The one that asks it to end.
    Ask,
    /// SIGKILL.
    Kill,
}

/// The stop requests so far.
#[derive(Debug, Default)]
pub(super) struct StopPlan {
    kill_at: Option<Instant>,
    killed: bool,
}

impl StopPlan {
    /// Records a request to end within `grace`; of several, the earliest deadline holds. Returns the signal to send now.
    pub(super) fn request(&mut self, now: Instant, grace: Duration) -> Option<StopSignal> {
        let first = self.kill_at.is_none();
        let deadline = now + grace;
        self.kill_at = Some(self.kill_at.map_or(deadline, |earlier| earlier.min(deadline)));
        self.due(now).or(first.then_some(StopSignal::Ask))
    }

    /// SIGKILL, once, if the deadline has passed.
    pub(super) fn due(&mut self, now: Instant) -> Option<StopSignal> {
        let due = !self.killed && self.kill_at.is_some_and(|deadline| deadline <= now);
        self.killed |= due;
        due.then_some(StopSignal::Kill)
    }

    /// True after a request.
    pub(super) fn is_requested(&self) -> bool {
        self.kill_at.is_some()
    }

    /// Time until SIGKILL is due, if it is still to come.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        self.kill_at
            .filter(|_| !self.killed)
            .map(|deadline| deadline.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stop_asks_once_and_kills_once_after_the_grace() {
        let start = Instant::now();
        let mut plan = StopPlan::default();
        assert!(!plan.is_requested() && plan.due(start).is_none() && plan.timeout(start).is_none());
        assert_eq!(plan.request(start, 10 * SECOND), Some(StopSignal::Ask));
        assert_eq!(plan.request(start + SECOND, 20 * SECOND), None);
        assert_eq!(plan.timeout(start + SECOND), Some(9 * SECOND));
        assert_eq!(plan.due(start + 9 * SECOND), None);
        assert_eq!(plan.due(start + 10 * SECOND), Some(StopSignal::Kill));
        assert_eq!(
            (plan.due(start + 11 * SECOND), plan.timeout(start + 11 * SECOND)),
            (None, None)
        );
        assert!(plan.is_requested());
    }

    #[test]
    fn no_grace_kills_at_once_also_after_a_request_with_grace() {
        let start = Instant::now();
        assert_eq!(StopPlan::default().request(start, Duration::ZERO), Some(StopSignal::Kill));
        let mut plan = StopPlan::default();
        assert_eq!(plan.request(start, 10 * SECOND), Some(StopSignal::Ask));
        assert_eq!(plan.request(start, Duration::ZERO), Some(StopSignal::Kill));
        assert_eq!(plan.request(start, Duration::ZERO), None);
    }
}
