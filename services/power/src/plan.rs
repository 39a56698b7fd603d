//! What to ask of a BMC next, from what it says and from what it was asked before. Pure: no clock, no wire.
//!
//! Every answer comes from reading the machine: that the BMC said yes is never taken for done, but where the
//! specification knows no better sign (a forced restart). What already holds is done without a call.

pub(crate) mod boot;
mod power;

use std::time::Duration;

use serde_json::Value;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::What;

use crate::redfish::System;
use crate::stored::Progress;

/// How patient the reconciler is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two readings of a BMC that is at work.
    pub poll: Duration,
    /// How long what was asked may take to show, before it is asked in another way or again.
    pub patience: Duration,
    /// How long a system that was asked to shut down may take.
    pub soft: Duration,
    /// How long an operation may take in all.
    pub deadline: Duration,
    /// The first pause after a failure; doubled up to [`longest`](Self::longest).
    pub first: Duration,
    /// The longest pause after a failure.
    pub longest: Duration,
    /// How often an operation is tried.
    pub tries: i32,
    /// How long a process is silent before another carries out what it had begun.
    pub claim: Duration,
}

impl Default for Pace {
    /// The numbers of the control-plane specification, section 4.2; the last is our own.
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

impl Pace {
    /// The pause before the try that follows the `attempt`-th, which failed; never shorter than the BMC `asked` for, which is
    /// bounded by [`patience`](Self::patience).
    pub fn pause(&self, attempt: i32, asked: Duration) -> Duration {
        let doubled = u32::try_from(attempt.clamp(1, 16) - 1).unwrap_or_default();
        let pause = self.first.saturating_mul(1 << doubled).min(self.longest);
        pause.max(asked.min(self.patience))
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing: it reads as wanted, but for these.
    Done(Vec<String>),
    /// This is to be asked.
    Ask(Ask),
    /// The BMC is at work.
    Wait,
    /// There is no way left, for this reason.
    Never(String),
}

/// Something a BMC can be asked, under a name unlike the others'.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// How progress and people name it.
    pub name: String,
    /// The request.
    pub how: How,
}

/// The request that asks it.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// `ComputerSystem.Reset` with this `ResetType`.
    Reset(&'static str),
    /// PATCH of the system with this body.
    System(Value),
    /// PATCH of the system's settings object with this body.
    Settings(Value),
}

/// What comes next for `operation`, `now` being milliseconds since 1970.
pub fn next(
    operation: &pb::Operation,
    system: &System,
    progress: &Progress,
    pace: &Pace,
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

/// What was asked before, and what may be asked now.
#[derive(Clone, Copy)]
struct Choice<'a> {
    progress: &'a Progress,
    pace: &'a Pace,
    now: i64,
}

impl Choice<'_> {
    /// Whether `name` was asked last, and the BMC said yes.
    fn accepted(self, name: &str) -> bool {
        self.progress.accepted && self.progress.asked == name
    }

    /// Whether what was asked last may still be on its way.
    fn waits(self, limit: Duration) -> bool {
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let waited = self.now.saturating_sub(self.progress.asked_at);
        // A clock that was set back is not waited for.
        self.progress.accepted && (0..limit).contains(&waited)
    }

    fn refused(self, name: &str) -> bool {
        self.progress.refused.iter().any(|refused| refused == name)
    }

    /// The first of `asks` that was not refused; where one was accepted and came to nothing, the one after it.
    fn among(self, asks: Vec<Ask>) -> Next {
        let names: Vec<_> = asks.iter().map(|ask| ask.name.clone()).collect();
        let last = names.iter().position(|name| *name == self.progress.asked);
        if last.is_some() && self.waits(self.pace.patience) {
            return Next::Wait;
        }
        // Not accepted: nobody knows whether it arrived, so the same is asked again.
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

/// `progress` after the machine was read.
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
