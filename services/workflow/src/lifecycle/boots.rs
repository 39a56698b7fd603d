//! The boots of a machine whose workers call for a workflow: one at a time works on it.
//!
//! ```text
//!        first call                     the current boot was to end, or is silent for 90 s
//! none ─────────────▶ current ─another─▶ waits ───────────────────────────────────────────▶ current
//!                                          └─ the current boot calls within 90 s ─▶ conflict: both are refused
//! ```
//!
//! A machine has one boot at a time. Two that call at once mean that somebody else uses the identity of one of them, and it is not
//! known which. A machine that crashes and boots again within 90 s only waits for the rest of that time.

use std::time::{Duration, SystemTime};

use tinwright::BootId;

use super::{Action, AfterLoss, EventRefused, State, Workflow};

/// The time after the last call of a boot from which on it counts as over.
pub const BOOT_SILENCE: Duration = Duration::from_secs(90);
/// The shortest time between two changes of the time of a boot's latest call: each change is stored.
const SEEN_INTERVAL: Duration = Duration::from_secs(30);

/// The boots of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boots {
    /// The boot that works on the workflow.
    pub current: Option<SeenBoot>,
    /// Another boot, which waits for the end of the current one.
    pub other: Option<SeenBoot>,
    /// Time from which on both called at once: both are refused.
    pub conflict: Option<SystemTime>,
}

/// A boot, and its latest call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenBoot {
    /// Its id.
    pub id: BootId,
    /// The time of its latest call, or somewhat earlier.
    pub at: SystemTime,
}

impl Boots {
    /// Records a call of `boot`; the current one `is_leaving` if it was to end. True if the call may have its effect.
    fn admit(
        &mut self,
        boot: &BootId,
        is_leaving: bool,
        now: SystemTime,
    ) -> Result<bool, EventRefused> {
        if self.conflict.is_some() {
            return Err(EventRefused::TwoBoots);
        }
        match &mut self.current {
            Some(current) if current.id == *boot => {
                if self.other.as_ref().is_some_and(|other| is_recent(other.at, now)) {
                    self.conflict = Some(now);
                    return Ok(false);
                }
                self.other = None;
                current.record(now);
                Ok(true)
            }
            Some(current) if !is_leaving && is_recent(current.at, now) => {
                match &mut self.other {
                    Some(other) if other.id == *boot => other.record(now),
                    Some(_) | None => self.other = Some(SeenBoot { id: boot.clone(), at: now }),
                }
                Ok(false)
            }
            Some(_) | None => {
                *self = Self::of(boot, now);
                Ok(true)
            }
        }
    }

    fn of(boot: &BootId, now: SystemTime) -> Self {
        Self { current: Some(SeenBoot { id: boot.clone(), at: now }), ..Self::default() }
    }
}

impl SeenBoot {
    fn record(&mut self, now: SystemTime) {
        if now.duration_since(self.at).is_ok_and(|passed| passed >= SEEN_INTERVAL) {
            self.at = now;
        }
    }
}

/// True if a boot that called at `at` may still be alive. A clock that was set back makes the boot count as alive.
fn is_recent(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).map_or(true, |passed| passed < BOOT_SILENCE)
}

impl Workflow {
    /// Records a call of `boot`. True if it may have its effect; false if it waits, or is the second of two at once.
    pub(super) fn admit(&mut self, boot: &BootId, now: SystemTime) -> Result<bool, EventRefused> {
        if !self.takes_workers() {
            return Ok(true);
        }
        let leaves = |action: &Action| {
            action.is_terminal() || action.step.after_loss == AfterLoss::ExpectBoot
        };
        let is_leaving = self.current().is_some_and(|action| action.is_running() && leaves(action));
        self.boots.admit(boot, is_leaving, now)
    }

    /// True if a held request of `boot` may go on: it is the boot that works on the workflow.
    pub(super) fn is_current(
        &mut self,
        boot: &BootId,
        now: SystemTime,
    ) -> Result<bool, EventRefused> {
        match &self.boots {
            Boots { conflict: Some(_), .. } => Err(EventRefused::TwoBoots),
            Boots { current: Some(current), .. } => Ok(current.id == *boot),
            Boots { current: None, .. } => self.admit(boot, now),
        }
    }

    /// Forgets the current boot, which is over: the next one need not wait.
    pub(super) fn end_current_boot(&mut self) {
        self.boots.current = None;
    }

    /// True if a worker may get an action now.
    fn takes_workers(&self) -> bool {
        match self.state {
            State::Pending { prepared } => prepared.is_some() || !self.plan.prepares,
            State::Running { .. } => true,
            State::HeldBack { .. }
            | State::Preparing { .. }
            | State::Post { .. }
            | State::Ended { .. } => false,
        }
    }

    /// Begins the boot epoch `epoch` after an operator restarted the machine. What the worker of an earlier boot had is taken back.
    pub(super) fn restart_confirmed(
        &mut self,
        epoch: u64,
        now: SystemTime,
    ) -> Result<(), EventRefused> {
        match self.state {
            State::Preparing { .. } | State::Post { .. } => {
                return Err(self.wrong_state("be told of a restart"));
            }
            State::Ended { .. } => return Ok(()),
            State::HeldBack { .. } | State::Pending { .. } | State::Running { .. } => {}
        }
        self.boots = Boots::default();
        if !self.takes_workers() {
            return Ok(());
        }
        self.boot_epoch = epoch;
        if let State::Pending { prepared: Some(since) } = &mut self.state {
            *since = now;
        }
        let may_retry = !self.is_stopping();
        self.booted(now);
        if let Some(action) = self.current_mut() {
            if action.is_running() {
                action.lose_attempt("the machine was restarted", may_retry, now);
            }
            action.release();
            action.await_from(now);
        }
        Ok(())
    }
}
