//! How long things may take, counted from times that are stored, and what happens when they take longer.
//!
//! Whether a span is over is asked by subtracting, so that neither an endless limit nor a clock set back can
//! overflow: a clock that goes back only makes a deadline come later.

use std::time::{Duration, SystemTime};

use super::{
    Action, State, Workflow,
    action::{self, End},
};

/// How long a lease lasts without a renewal; workers renew every 15 s.
pub const LEASE: Duration = Duration::from_secs(90);
/// The worker enforces an action's timeout; the server steps in this much later.
pub const SLACK: Duration = Duration::from_secs(60);
/// How long a cancelled workflow waits for its worker to stop what runs.
pub const STOPPING: Duration = Duration::from_secs(60);
/// How long the BMCs may take before, and again after.
pub const PREPARING: Duration = Duration::from_secs(30 * 60);
/// When a machine that was told to leave this boot is believed to have done so.
pub const GRACE: Duration = Duration::from_secs(10 * 60);
/// The least and the most pause before another try.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Setting the BMCs.
    Preparing,
    /// The whole workflow's time.
    TimeLimit,
    /// The patience with a worker told to stop.
    Stopping,
    /// The wait for a last terminal action's machine to show itself.
    Grace,
    /// One try's time.
    Action,
    /// Undoing things on the BMCs.
    Post,
}

impl Workflow {
    /// When [`Event::Tick`](super::Event::Tick) will have something to do, if time alone brings anything about.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.limits().into_iter().filter_map(|(_, since, limit)| since.checked_add(limit)).min()
    }

    /// The first of the spans that are over, in order of weight.
    pub(super) fn due(&self, now: SystemTime) -> Option<Due> {
        let over = |since: SystemTime, limit| {
            now.duration_since(since).is_ok_and(|passed| passed >= limit)
        };
        self.limits()
            .into_iter()
            .find(|(_, since, limit)| over(*since, *limit))
            .map(|(due, ..)| due)
    }

    /// The spans that count now, the weightiest first.
    fn limits(&self) -> Vec<(Due, SystemTime, Duration)> {
        match &self.state {
            State::Pending { .. } | State::Ended { .. } => Vec::new(),
            State::Preparing { since } => vec![(Due::Preparing, *since, PREPARING)],
            State::Post { since, .. } => vec![(Due::Post, *since, PREPARING)],
            State::Running { since, stop } => {
                let whole = self.plan.time_limit.map(|limit| (Due::TimeLimit, *since, limit));
                let stop = stop.map(|since| (Due::Stopping, since, STOPPING));
                let action = self.current().and_then(|action| self.action_limit(action));
                [whole, stop, action].into_iter().flatten().collect()
            }
        }
    }

    /// A last terminal action has only its grace: its machine is not coming back to say how it went.
    fn action_limit(&self, action: &Action) -> Option<(Due, SystemTime, Duration)> {
        let action::State::Running { since, terminal, .. } = &action.state else { return None };
        match terminal {
            Some(since) if self.is_last_on_its_machine(action) => Some((Due::Grace, *since, GRACE)),
            _ => Some((Due::Action, *since, action.step.timeout.saturating_add(SLACK))),
        }
    }

    fn is_last_on_its_machine(&self, action: &Action) -> bool {
        let here =
            |other: &&Action| !other.has_ended() && other.step.machine == action.step.machine;
        self.actions.iter().filter(here).nth(1).is_none()
    }

    /// One try took too long: late if its worker still speaks, lost if it does not.
    pub(super) fn overrun(&mut self, again: bool, now: SystemTime) {
        let silent = self.is_silent(now);
        let Some(action) = self.current_mut() else { return };
        match silent && !action.is_terminal() {
            true => action.lose("its worker fell silent", again, now),
            false => action.settle(End::Timeout, again, now),
        }
    }
}

/// `span` after `time`, or `time` itself at the end of all clocks.
pub(super) fn later(time: SystemTime, span: Duration) -> SystemTime {
    time.checked_add(span).unwrap_or(time)
}
