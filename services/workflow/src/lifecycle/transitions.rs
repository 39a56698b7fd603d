//! The transitions: the effect of each event.

use std::time::SystemTime;

use tinwright::LeaseId;

use super::action::{self, ActionEnd, AttemptReport};
use super::deadline::{Due, MAX_REPEATED_PREPARATIONS, SUSPEND_INTERVAL};
use super::{
    Action, AfterLoss, BootStep, Boots, Event, EventRefused, Holder, State, Workflow,
    WorkflowOutcome,
};

impl Workflow {
    /// Returns the workflow after `event`, or the reason why there is no change. Applying the same event at the same time
    /// again changes nothing.
    pub fn after(mut self, event: Event, now: SystemTime) -> Result<Self, EventRefused> {
        match event {
            Event::Release => self.release(),
            Event::BeginTurn => self.begin_turn(now),
            Event::PoweredOff { epoch } => self.powered_off(epoch)?,
            Event::Prepared => self.prepared(now)?,
            Event::PrepareFailed(reason) => self.prepare_failed(reason, now)?,
            Event::RequestAction { holder, running, new_lease } => {
                self.check_epoch(&holder)?;
                if self.admit(&holder.boot, now)? {
                    self.detect_restart(&holder, running.as_ref(), now);
                    self.finish_if_done(now);
                    self.lease_next(holder, new_lease, now);
                }
            }
            Event::RequestWhileSuspended { holder, running } => {
                self.check_epoch(&holder)?;
                if self.admit(&holder.boot, now)? {
                    self.detect_restart(&holder, running.as_ref(), now);
                }
            }
            Event::RetryRequest { holder, new_lease } => {
                self.check_epoch(&holder)?;
                if self.is_current(&holder.boot, now)? {
                    self.lease_next(holder, new_lease, now);
                }
            }
            Event::Renew(lease) => {
                if self.admit_holder(&lease, now)? {
                    self.under_lease(&lease)?.renew(None, now);
                }
            }
            Event::Start { lease, terminal } => {
                if self.admit_holder(&lease, now)? {
                    self.under_lease(&lease)?.start(terminal, now);
                }
            }
            Event::Report { lease, report } => self.report(&lease, report, now)?,
            Event::Booted => self.booted(now),
            Event::RestartConfirmed { epoch } => self.restart_confirmed(epoch, now)?,
            Event::BootStep(step) => self.record_boot_step(step, now),
            Event::Suspend => self.suspend(now),
            Event::Cancel => self.cancel(now)?,
            Event::CancelInTime => self.cancel_in_time(now)?,
            Event::Tick => self.tick(now)?,
            Event::PostDone => self.post_done(None, now)?,
            Event::PostFailed(reason) => self.post_done(Some(reason), now)?,
        }
        self.finish_if_done(now);
        Ok(self)
    }

    fn release(&mut self) {
        if let State::HeldBack { .. } = self.state {
            self.state = State::Pending { prepared: None };
        }
    }

    fn begin_turn(&mut self, now: SystemTime) {
        match self.state {
            State::Pending { prepared: None } if self.plan.prepares => self.prepare(now),
            State::Pending { prepared: None } => self.finish_if_empty(now),
            State::HeldBack { .. }
            | State::Pending { prepared: Some(_) }
            | State::Preparing { .. }
            | State::Running { .. }
            | State::Post { .. }
            | State::Ended { .. } => {}
        }
    }

    fn prepare(&mut self, now: SystemTime) {
        self.preparations = self.preparations.saturating_add(1);
        (self.boot_epoch, self.boots) = (0, Boots::default());
        self.state = State::Preparing { since: now };
    }

    /// Prepares the machine again, because its worker requests no action. Fails if that did not help before.
    fn prepare_again(&mut self, now: SystemTime) {
        if self.preparations > MAX_REPEATED_PREPARATIONS {
            let reason = self.no_worker_reason(now);
            return self.enter_post(WorkflowOutcome::Failed { reason }, now);
        }
        if let Some(action) = self.current_mut() {
            action.release();
        }
        self.prepare(now);
    }

    fn no_worker_reason(&self, now: SystemTime) -> String {
        let step = match &self.boot_step {
            None => "no step of a boot was seen".to_owned(),
            Some(BootStep { at, text }) => {
                let minutes = now.duration_since(*at).unwrap_or_default().as_secs() / 60;
                format!("last boot step, {minutes} minutes ago: {text}")
            }
        };
        let count = self.preparations;
        format!("the machine's worker requests no action, after {count} preparations; {step}")
    }

    /// Begins the boot epoch of this preparation, once.
    fn powered_off(&mut self, epoch: u64) -> Result<(), EventRefused> {
        match self.state {
            State::Preparing { .. } if self.boot_epoch == 0 => self.boot_epoch = epoch,
            State::HeldBack { .. } | State::Pending { prepared: None } => {
                return Err(self.wrong_state("be switched off"));
            }
            State::Preparing { .. }
            | State::Pending { prepared: Some(_) }
            | State::Running { .. }
            | State::Post { .. }
            | State::Ended { .. } => {}
        }
        Ok(())
    }

    /// Refuses a worker whose identity is of another boot epoch than that of the preparation. A machine that is booted by hand
    /// may be in a newer epoch than at the latest lease.
    fn check_epoch(&self, holder: &Holder) -> Result<(), EventRefused> {
        let (held, present) = (holder.epoch, self.boot_epoch);
        let is_present = match self.state {
            State::HeldBack { .. }
            | State::Pending { prepared: None }
            | State::Preparing { .. } => true,
            State::Pending { .. } | State::Running { .. } if self.plan.prepares => held == present,
            State::Pending { .. } | State::Running { .. } => held >= present,
            State::Post { .. } | State::Ended { .. } => true,
        };
        if is_present { Ok(()) } else { Err(EventRefused::OtherEpoch { held, present }) }
    }

    /// The event may be late: a cancellation may have come first, or the same event.
    fn prepared(&mut self, now: SystemTime) -> Result<(), EventRefused> {
        match self.state {
            State::Preparing { .. } => {
                self.state = State::Pending { prepared: Some(now) };
                self.finish_if_empty(now);
            }
            State::HeldBack { .. } | State::Pending { prepared: None } => {
                return Err(self.wrong_state("be prepared"));
            }
            State::Pending { prepared: Some(_) }
            | State::Running { .. }
            | State::Post { .. }
            | State::Ended { .. } => {}
        }
        Ok(())
    }

    fn prepare_failed(&mut self, reason: String, now: SystemTime) -> Result<(), EventRefused> {
        match self.state {
            State::Preparing { .. } => self.enter_post(WorkflowOutcome::Failed { reason }, now),
            State::HeldBack { .. } | State::Pending { .. } | State::Running { .. } => {
                return Err(self.wrong_state("be prepared"));
            }
            State::Post { .. } | State::Ended { .. } => {}
        }
        Ok(())
    }

    /// Lets the limit of preparing, of post or of an awaited worker count from `now`, unless it was extended a short time ago:
    /// each change is stored.
    fn suspend(&mut self, now: SystemTime) {
        let extend = |since: &mut SystemTime| {
            if now.duration_since(*since).is_ok_and(|passed| passed >= SUSPEND_INTERVAL) {
                *since = now;
            }
        };
        match &mut self.state {
            State::Preparing { since }
            | State::Post { since, .. }
            | State::Pending { prepared: Some(since) } => extend(since),
            State::Running { .. } => {
                if let Some(Action { state: action::State::Pending { not_before }, .. }) =
                    self.current_mut()
                {
                    extend(not_before.get_or_insert(SystemTime::UNIX_EPOCH));
                }
            }
            State::HeldBack { .. } | State::Pending { prepared: None } | State::Ended { .. } => {}
        }
    }

    fn cancel(&mut self, now: SystemTime) -> Result<(), EventRefused> {
        let runs = self.current().is_some_and(Action::is_running);
        let outcome = WorkflowOutcome::CANCELLED;
        match &self.state {
            State::HeldBack { .. } | State::Pending { prepared: None } => {
                self.state = State::Ended { at: now, outcome, warning: None };
            }
            State::Running { stop: None } if runs => {
                self.state = State::Running { stop: Some(now) };
            }
            State::Running { stop: Some(_) } => {}
            State::Pending { .. } | State::Preparing { .. } | State::Running { .. } => {
                self.enter_post(outcome, now);
            }
            State::Post { outcome: first, .. } | State::Ended { outcome: first, .. } => {
                if !matches!(first, WorkflowOutcome::Cancelled { .. }) {
                    return Err(self.wrong_state("be cancelled"));
                }
            }
        }
        Ok(())
    }

    /// Cancels the workflow, unless that would have no effect although the workflow has not ended.
    fn cancel_in_time(&mut self, now: SystemTime) -> Result<(), EventRefused> {
        if self.is_leaving() {
            let reason = "its last action restarts the machine or switches it off";
            return Err(EventRefused::TooLate(reason));
        }
        let is_in_post = matches!(self.state, State::Post { .. });
        self.cancel(now).map_err(|refused| match is_in_post {
            true => EventRefused::TooLate("its outcome is decided, and only the clean-up is left"),
            false => refused,
        })
    }

    /// A failed clean-up turns success into failure; with every other outcome it is a warning.
    fn post_done(&mut self, failure: Option<String>, now: SystemTime) -> Result<(), EventRefused> {
        let (outcome, warning) = match &self.state {
            State::Post { outcome, .. } => match (outcome.clone(), failure) {
                (WorkflowOutcome::Success, Some(reason)) => {
                    (WorkflowOutcome::Failed { reason }, None)
                }
                (outcome, warning) => (outcome, warning),
            },
            State::Ended { .. } => return Ok(()),
            State::HeldBack { .. }
            | State::Pending { .. }
            | State::Preparing { .. }
            | State::Running { .. } => {
                return Err(self.wrong_state("be cleaned up after"));
            }
        };
        self.state = State::Ended { at: now, outcome, warning };
        Ok(())
    }

    /// Leases the next action to `holder`, if one is pending and its backoff is over.
    fn lease_next(&mut self, holder: Holder, new_lease: LeaseId, now: SystemTime) {
        match self.state {
            State::Running { .. } => {}
            State::Pending { prepared } if prepared.is_some() || !self.plan.prepares => {}
            State::HeldBack { .. }
            | State::Pending { .. }
            | State::Preparing { .. }
            | State::Post { .. }
            | State::Ended { .. } => return,
        }
        let Some(action) = self.current_mut() else { return };
        let epoch = holder.epoch;
        action.lease_to(holder, new_lease, now);
        if self.lease().is_some_and(|lease| lease.holder.epoch == epoch) {
            self.boot_epoch = epoch;
        }
        if let (State::Pending { .. }, true) = (&self.state, self.lease().is_some()) {
            self.begun = self.begun.or(Some(now));
            self.state = State::Running { stop: None };
        }
    }

    /// Detects a restart of the holder. The same process continues; a new one of the same boot continues if it still runs
    /// the action; a new boot ends the action, with success if a reboot was expected, and as lost otherwise.
    fn detect_restart(&mut self, holder: &Holder, running: Option<&LeaseId>, now: SystemTime) {
        let may_retry = !self.is_stopping();
        let Some(action) = self.current_mut() else { return };
        let Some(lease) = action.lease().cloned() else { return };
        let same_boot = lease.holder.boot == holder.boot;
        let same =
            same_boot && (lease.holder.process == holder.process || running == Some(&lease.id));
        let expected = action.is_terminal() || action.step.after_loss == AfterLoss::ExpectBoot;
        match (action.is_running(), same_boot) {
            (false, _) if lease.holder == *holder => action.renew(None, now),
            // The earlier holder has not started the action, and may not start it from now on.
            (false, _) => action.release(),
            (true, false) if expected => action.end(ActionEnd::Success, "", now),
            (true, false) => action.lose_attempt("the machine rebooted", may_retry, now),
            (true, true) if action.is_terminal() => {
                let reason = "the machine did not leave its boot";
                action.fail(ActionEnd::Failed, reason, may_retry, now);
            }
            (true, true) if same => action.renew(Some(holder.clone()), now),
            (true, true) => action.lose_attempt("its worker restarted", may_retry, now),
        }
    }

    pub(super) fn booted(&mut self, now: SystemTime) {
        if let Some(action) = self.current_mut().filter(|action| action.is_terminal()) {
            action.end(ActionEnd::Success, "", now);
            self.end_current_boot();
        }
    }

    /// Records a step that was taken while the worker is awaited. The boot server's clock may be ahead of this one.
    fn record_boot_step(&mut self, step: BootStep, now: SystemTime) {
        let step = BootStep { at: step.at.min(now), ..step };
        let awaited = self.worker_awaited_since().is_some_and(|since| since <= step.at);
        let newer = self.boot_step.as_ref().is_none_or(|latest| latest.at < step.at);
        if awaited && newer {
            self.boot_step = Some(step);
        }
    }

    fn report(
        &mut self,
        lease: &LeaseId,
        report: AttemptReport,
        now: SystemTime,
    ) -> Result<(), EventRefused> {
        if self.actions.iter().any(|action| action.ended_with(lease, &report)) {
            return Ok(());
        }
        let may_retry = !self.is_stopping();
        if self.admit_holder(lease, now)? {
            self.under_lease(lease)?.end_attempt(report, may_retry, now);
        }
        Ok(())
    }

    fn tick(&mut self, now: SystemTime) -> Result<(), EventRefused> {
        let may_retry = !self.is_stopping();
        match self.due(now) {
            None => {}
            Some(Due::Release) => {
                let reason = "its creator did not release it within 10 minutes".to_owned();
                let outcome = WorkflowOutcome::Cancelled { reason };
                self.state = State::Ended { at: now, outcome, warning: None };
            }
            Some(Due::Preparing) => {
                let reason = "preparing the machine took longer than 30 minutes".to_owned();
                self.enter_post(WorkflowOutcome::Failed { reason }, now);
            }
            Some(Due::Post) => {
                let reason = "cleaning up took longer than 30 minutes".to_owned();
                self.post_done(Some(reason), now)?;
            }
            Some(Due::TimeLimit) => self.enter_post(WorkflowOutcome::Timeout, now),
            Some(Due::Stopping) => self.enter_post(WorkflowOutcome::CANCELLED, now),
            Some(Due::TerminalGrace) => {
                if let Some(action) = self.current_mut() {
                    action.end(ActionEnd::Success, "", now);
                }
                self.end_current_boot();
            }
            Some(Due::Worker) => self.prepare_again(now),
            Some(Due::ActionTimeout) => self.end_overdue_attempt(may_retry, now),
        }
        Ok(())
    }

    /// Leaves the running state, if no action is left to run.
    ///
    /// A workflow whose last action succeeded is a success even if it was cancelled meanwhile: all of it was done.
    fn finish_if_done(&mut self, now: SystemTime) {
        let State::Running { stop } = self.state else { return };
        let stopped = stop.is_some() && !self.current().is_some_and(Action::is_running);
        let failure = self.actions.iter().find_map(failure);
        let outcome = match failure {
            Some(_) if stop.is_some() => WorkflowOutcome::CANCELLED,
            Some(outcome) => outcome,
            None if self.current().is_none() => WorkflowOutcome::Success,
            None if stopped => WorkflowOutcome::CANCELLED,
            None => return,
        };
        self.enter_post(outcome, now);
    }

    /// Enters post, or the end if there is nothing to undo. A lease that is held is revoked.
    fn enter_post(&mut self, outcome: WorkflowOutcome, now: SystemTime) {
        self.boots = Boots::default();
        if let Some(action) = self.current_mut() {
            action.release();
            if action.is_running() {
                match outcome {
                    WorkflowOutcome::Timeout => action.end(ActionEnd::Timeout, "", now),
                    WorkflowOutcome::Success
                    | WorkflowOutcome::Failed { .. }
                    | WorkflowOutcome::Cancelled { .. } => {
                        action.end(ActionEnd::Failed, "stopped", now)
                    }
                }
            }
        }
        self.state = if self.plan.has_post() {
            State::Post { since: now, outcome }
        } else {
            State::Ended { at: now, outcome, warning: None }
        };
    }

    /// Ends a workflow whose actions are all skipped.
    fn finish_if_empty(&mut self, now: SystemTime) {
        if self.current().is_none() {
            self.enter_post(WorkflowOutcome::Success, now);
        }
    }

    pub(super) fn wrong_state(&self, event: &'static str) -> EventRefused {
        EventRefused::WrongState { state: self.state.name(), event }
    }

    /// Records a call of the worker that holds the lease. True if it may have its effect.
    fn admit_holder(&mut self, lease: &LeaseId, now: SystemTime) -> Result<bool, EventRefused> {
        let boot = self.under_lease(lease)?.lease().map(|held| held.holder.boot.clone());
        boot.map_or(Ok(true), |boot| self.admit(&boot, now))
    }

    /// The current action, if it is held under `lease`.
    fn under_lease(&mut self, lease: &LeaseId) -> Result<&mut Action, EventRefused> {
        let current = self.current_mut();
        let held = current.filter(|action| action.lease().is_some_and(|held| held.id == *lease));
        held.ok_or_else(|| EventRefused::Superseded(lease.clone()))
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Action> {
        self.actions.iter_mut().find(|action| !action.has_ended())
    }
}

/// The outcome of the workflow that follows from a failed action.
fn failure(action: &Action) -> Option<WorkflowOutcome> {
    let action::State::Ended { end, .. } = &action.state else { return None };
    match end {
        ActionEnd::Success | ActionEnd::Skipped => None,
        ActionEnd::Timeout => Some(WorkflowOutcome::Timeout),
        ActionEnd::Failed => {
            let reason = format!("action {:?}: {}", action.step.name, action.reason);
            Some(WorkflowOutcome::Failed { reason })
        }
    }
}
