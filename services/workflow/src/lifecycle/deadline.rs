//! Time limits, counted from stored times, and the effect of exceeding them.
//!
//! Elapsed time is compared by subtraction, so neither an endless limit nor a clock that was set back can overflow:
//! setting a clock back only delays a deadline.

use std::time::{Duration, SystemTime};

use runtime::retry::Backoff;

use super::action::{self, ActionEnd};
use super::{Action, State, Workflow};

/// The duration of a lease without a renewal; workers renew every 15 s.
pub const LEASE_DURATION: Duration = Duration::from_secs(90);
/// The worker enforces an action's timeout; the server does so this much later.
pub const ACTION_TIMEOUT_MARGIN: Duration = Duration::from_secs(60);
/// The time that a cancelled workflow waits for its worker to stop the running action.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of preparing, and again of post.
pub const BMC_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The number of times that a machine is prepared again because its worker did not come.
pub const MAX_REPEATED_PREPARATIONS: u32 = 3;
/// The time between two extensions of a limit while the machine is in maintenance.
pub const SUSPEND_INTERVAL: Duration = Duration::from_secs(60);
/// The time after which a machine that was to leave this boot counts as having done so.
pub const TERMINAL_GRACE: Duration = Duration::from_secs(10 * 60);
/// The time within which the creator of a workflow that is held back has to release it.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The pauses between attempts.
pub const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// A limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Of being held back.
    Release,
    /// Of preparing.
    Preparing,
    /// Of the whole workflow.
    TimeLimit,
    /// Of a worker that was told to stop.
    Stopping,
    /// Of a last terminal action whose machine has not been seen in a new boot.
    TerminalGrace,
    /// Of one attempt.
    ActionTimeout,
    /// Of a worker that is awaited.
    Worker,
    /// Of post.
    Post,
}

/// A limit: the effect of exceeding it, the time from which it counts, and its length.
type Limit = (Due, SystemTime, Duration);

impl Workflow {
    /// The time of the next [`Event::Tick`](super::Event::Tick) that has an effect, if there is one.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.limits().into_iter().filter_map(|(_, since, limit)| since.checked_add(limit)).min()
    }

    /// The exceeded limit of highest priority.
    pub(super) fn due(&self, now: SystemTime) -> Option<Due> {
        let over = |since: SystemTime, limit| {
            now.duration_since(since).is_ok_and(|passed| passed >= limit)
        };
        let mut limits = self.limits().into_iter();
        limits.find(|(_, since, limit)| over(*since, *limit)).map(|(due, ..)| due)
    }

    /// True if the next tick is to prepare the machine again, because its worker did not come.
    pub fn is_worker_overdue(&self, now: SystemTime) -> bool {
        self.due(now) == Some(Due::Worker)
    }

    /// The limits that apply now, in order of priority.
    fn limits(&self) -> Vec<Limit> {
        let whole = self.begun.zip(self.plan.time_limit);
        let whole = whole.map(|(since, limit)| (Due::TimeLimit, since, limit));
        let limits = match &self.state {
            State::Ended { .. } => [None; 4],
            State::HeldBack { since } => {
                [Some((Due::Release, *since, RELEASE_TIMEOUT)), None, None, None]
            }
            State::Post { since, .. } => [Some((Due::Post, *since, BMC_TIMEOUT)), None, None, None],
            State::Preparing { since } => {
                [whole, Some((Due::Preparing, *since, BMC_TIMEOUT)), None, None]
            }
            State::Pending { .. } => [whole, self.worker_limit(), None, None],
            State::Running { stop } => {
                let stop = stop.map(|since| (Due::Stopping, since, STOP_TIMEOUT));
                let action = self.current().and_then(|action| self.action_limit(action));
                [whole, stop, action, self.worker_limit()]
            }
        };
        limits.into_iter().flatten().collect()
    }

    fn worker_limit(&self) -> Option<Limit> {
        let since = self.worker_awaited_since()?;
        let step = self.boot_step.as_ref().and_then(|step| step.at.duration_since(since).ok());
        let timeouts = self.plan.worker_timeouts;
        let limit = match step {
            Some(step) => timeouts.total().min(step.saturating_add(timeouts.step)),
            None => timeouts.silent,
        };
        Some((Due::Worker, since, limit))
    }

    /// The time since which a request of the machine's worker, or its start of an action, is awaited. None while nothing is, and
    /// for a machine that is booted by hand: it may be off for as long as its owner likes.
    pub(super) fn worker_awaited_since(&self) -> Option<SystemTime> {
        match self.state {
            _ if !self.plan.prepares || self.boots.conflict.is_some() => None,
            State::Pending { prepared } => prepared,
            State::Running { .. } => self.next_start_awaited_since(),
            State::HeldBack { .. }
            | State::Preparing { .. }
            | State::Post { .. }
            | State::Ended { .. } => None,
        }
    }

    /// The time since which the start of an action is awaited: the latest sign of life of the worker that holds its lease, or the
    /// time at which it could be leased.
    fn next_start_awaited_since(&self) -> Option<SystemTime> {
        let action = self.current()?;
        match &action.state {
            action::State::Pending { not_before } => {
                // After it has reported a failure, the worker may run the template's reaction to it before it requests more.
                let reaction = if action.reported { action.step.timeout } else { Duration::ZERO };
                let retry = not_before.map(|time| later(time, reaction));
                let previous = self.actions.iter().filter_map(Action::end_time).max();
                retry.max(previous).max(self.begun)
            }
            action::State::Leased { lease } => lease.expires.checked_sub(LEASE_DURATION),
            action::State::Running { .. } | action::State::Ended { .. } => None,
        }
    }

    /// A last terminal action has only its grace: its machine does not return to report a result.
    fn action_limit(&self, action: &Action) -> Option<Limit> {
        // After two boots called at once, it is not known if the action runs: an operator decides.
        if self.boots.conflict.is_some() {
            return None;
        }
        let action::State::Running { since, terminal, .. } = &action.state else { return None };
        let is_last = self.actions.iter().filter(|other| !other.has_ended()).nth(1).is_none();
        match terminal {
            Some(since) if is_last => Some((Due::TerminalGrace, *since, TERMINAL_GRACE)),
            _ => {
                let limit = action.step.timeout.saturating_add(ACTION_TIMEOUT_MARGIN);
                Some((Due::ActionTimeout, *since, limit))
            }
        }
    }

    /// Ends an attempt that exceeded its timeout: as lost if its worker is silent.
    pub(super) fn end_overdue_attempt(&mut self, may_retry: bool, now: SystemTime) {
        let silent = self.is_silent(now);
        let Some(action) = self.current_mut() else { return };
        match silent && !action.is_terminal() {
            true => action.lose_attempt("its worker fell silent", may_retry, now),
            false => action.fail(ActionEnd::Timeout, "", may_retry, now),
        }
    }
}

/// Returns `time` plus `span`, or `time` if the clock cannot represent that.
pub(super) fn later(time: SystemTime, span: Duration) -> SystemTime {
    time.checked_add(span).unwrap_or(time)
}
