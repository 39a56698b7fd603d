//! The next request to a BMC, chosen from its state and from earlier requests. Pure: no clock, no network.
//!
//! An operation is done when its effect reads back. An accepted request is not enough, except for a forced restart, which
//! may leave no other sign. An effect that is there already needs no request.

pub(crate) mod boot;
mod power;

use std::time::Duration;

use runtime::retry::Backoff;
use serde_json::Value;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::What;

use crate::redfish::System;
use crate::stored::Progress;

/// Intervals and limits of the reconciler.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The interval between two readings of a BMC that is working.
    pub poll: Duration,
    /// The time for the effect of a request, before another one is sent.
    pub patience: Duration,
    /// The time for a graceful shutdown.
    pub soft: Duration,
    /// The time for one operation.
    pub deadline: Duration,
    /// The first pause after a failure; doubled up to [`longest`](Self::longest).
    pub first: Duration,
    /// The longest pause after a failure.
    pub longest: Duration,
    /// The most attempts at an operation.
    pub tries: i32,
    /// The time without renewal after which another process takes over a claim.
    pub claim: Duration,
}

impl Default for Timing {
    /// The limits in `docs/reference/power-jobs.md`.
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(2),
            patience: Duration::from_secs(45),
            soft: Duration::from_secs(120),
            deadline: Duration::from_secs(600),
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            tries: 10,
            claim: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// The pause before the try that follows the `attempt`-th, which failed; never shorter than the BMC `asked` for, which is
    /// bounded by [`patience`](Self::patience).
    pub fn pause(&self, attempt: i32, asked: Duration) -> Duration {
        let failures = u32::try_from(attempt.max(1)).unwrap_or_default();
        let pause = Backoff::new(self.first, self.longest).delay_after(failures);
        pause.max(asked.min(self.patience))
    }
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The operation is done, with these deviations.
    Done(Vec<String>),
    /// Send this request.
    Ask(Ask),
    /// Wait for the BMC.
    Wait,
    /// The operation cannot be done, for this reason.
    Never(String),
}

/// A request to a BMC, with a unique name.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The name in progress records and messages.
    pub name: String,
    /// The request.
    pub how: How,
}

/// The HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// `ComputerSystem.Reset` with this `ResetType`.
    Reset(&'static str),
    /// PATCH of the system with this body.
    System(Value),
    /// PATCH of the system's settings object with this body.
    Settings(Value),
}

/// Returns the next action for `operation`; `now` is in milliseconds since 1970.
pub fn next(
    operation: &pb::Operation,
    system: &System,
    progress: &Progress,
    pace: &Timing,
    now: i64,
) -> Next {
    let choice = Choice { progress, pace, now };
    match &operation.what {
        Some(What::Boot(wanted)) => boot::next(wanted, system, choice),
        Some(What::Power(_)) => power::next(operation_power(operation), system, choice),
        None => Next::Never("the operation says nothing".into()),
    }
}

fn operation_power(operation: &pb::Operation) -> pb::operation::Power {
    match operation.what {
        Some(What::Power(number)) => number.try_into().unwrap_or_default(),
        Some(What::Boot(_)) | None => pb::operation::Power::Unspecified,
    }
}

/// The earlier requests, and the limits for the next one.
#[derive(Clone, Copy)]
struct Choice<'a> {
    progress: &'a Progress,
    pace: &'a Timing,
    now: i64,
}

impl Choice<'_> {
    /// True if `name` was the latest request and the BMC accepted it.
    fn accepted(self, name: &str) -> bool {
        self.progress.accepted && self.progress.asked == name
    }

    /// True if the latest request may still have its effect.
    fn waits(self, limit: Duration) -> bool {
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let waited = self.now.saturating_sub(self.progress.asked_at);
        // If the clock was set back, there is no wait.
        self.progress.accepted && (0..limit).contains(&waited)
    }

    fn refused(self, name: &str) -> bool {
        self.progress.refused.iter().any(|refused| refused == name)
    }

    /// Chooses the first of `asks` that was not refused. After an accepted one without effect it chooses the next one.
    fn among(self, asks: Vec<Ask>) -> Next {
        let names: Vec<_> = asks.iter().map(|ask| ask.name.clone()).collect();
        let last = names.iter().position(|name| *name == self.progress.asked);
        if last.is_some() && self.waits(self.pace.patience) {
            return Next::Wait;
        }
        // Not accepted: the request may or may not have arrived, so it is repeated.
        let begin = last.map_or(0, |at| if self.progress.accepted { at + 1 } else { at });
        let count = asks.len().max(1);
        let in_turn = asks.iter().cycle().skip(begin % count).take(asks.len());
        match in_turn.into_iter().find(|ask| !self.refused(&ask.name)) {
            Some(ask) => Next::Ask(ask.clone()),
            None if names.is_empty() => Next::Never("the BMC offers no way to do it".into()),
            None => Next::Never(format!("the BMC refused {}", names.join(", "))),
        }
    }
}

/// Returns `progress` after a reading of the machine.
pub fn observed(progress: &Progress, system: &System) -> Progress {
    let mut progress = progress.clone();
    progress.seen_off |= system.power == crate::redfish::Power::Off;
    if progress.asked.is_empty() {
        progress.reset_time.clone_from(&system.reset_time);
    }
    progress
}

#[cfg(test)]
mod tests;
