//! What each event does.

use std::time::SystemTime;

use super::{
    Action, AfterLoss, Event, Holder, Outcome, Refused, State, Workflow,
    action::{self, End},
    deadline::Due,
};
use crate::ids::{HardwareId, LeaseId};

impl Workflow {
    /// The workflow after `event`, or why there is no change. The same event at the same time again changes nothing.
    pub fn after(mut self, event: Event, now: SystemTime) -> Result<Self, Refused> {
        match event {
            Event::Turn => self.turn(now),
            Event::Prepared => self.prepared(now)?,
            Event::PrepareFailed(reason) => self.prepare_failed(reason, now)?,
            Event::Ask { machine, holder, running, offer } => {
                self.witness(&machine, &holder, running.as_ref(), now);
                self.conclude(now);
                self.offer(&machine, holder, offer, now);
            }
            Event::Waiting { machine, holder, offer } => self.offer(&machine, holder, offer, now),
            Event::Renew(lease) => self.held(&lease)?.keep(None, now),
            Event::Start { lease, terminal } => self.held(&lease)?.start(terminal, now),
            Event::Report { lease, end } => self.report(&lease, end, now)?,
            Event::Booted(machine) => self.booted(&machine, now),
            Event::Cancel => self.cancel(now)?,
            Event::Tick => self.tick(now)?,
            Event::PostDone => self.undone(None, now)?,
            Event::PostFailed(reason) => self.undone(Some(reason), now)?,
        }
        self.conclude(now);
        Ok(self)
    }

    fn turn(&mut self, now: SystemTime) {
        match self.state {
            State::Pending { prepared: false } if self.plan.prepares => {
                self.state = State::Preparing { since: now }
            }
            State::Pending { prepared: false } => self.nothing_to_do(now),
            State::Pending { prepared: true }
            | State::Preparing { .. }
            | State::Running { .. }
            | State::Post { .. }
            | State::Ended { .. } => {}
        }
    }

    /// The news may come late: a cancel may have come first, or the same news.
    fn prepared(&mut self, now: SystemTime) -> Result<(), Refused> {
        match self.state {
            State::Preparing { .. } => {
                self.state = State::Pending { prepared: true };
                self.nothing_to_do(now);
            }
            State::Pending { prepared: false } => return Err(self.illegal("be prepared")),
            State::Pending { prepared: true }
            | State::Running { .. }
            | State::Post { .. }
            | State::Ended { .. } => {}
        }
        Ok(())
    }

    fn prepare_failed(&mut self, reason: String, now: SystemTime) -> Result<(), Refused> {
        match self.state {
            State::Preparing { .. } => self.close(Outcome::Failed { reason }, now),
            State::Pending { .. } | State::Running { .. } => {
                return Err(self.illegal("be prepared"));
            }
            State::Post { .. } | State::Ended { .. } => {}
        }
        Ok(())
    }

    fn cancel(&mut self, now: SystemTime) -> Result<(), Refused> {
        let runs = self.current().is_some_and(Action::is_running);
        match &self.state {
            State::Pending { prepared: false } => {
                self.state = State::Ended { at: now, outcome: Outcome::Cancelled, warning: None };
            }
            State::Running { since, stop: None } if runs => {
                self.state = State::Running { since: *since, stop: Some(now) };
            }
            State::Running { stop: Some(_), .. } => {}
            State::Pending { .. } | State::Preparing { .. } | State::Running { .. } => {
                self.close(Outcome::Cancelled, now);
            }
            State::Post { outcome, .. } | State::Ended { outcome, .. } => {
                if *outcome != Outcome::Cancelled {
                    return Err(self.illegal("be cancelled"));
                }
            }
        }
        Ok(())
    }

    /// A failure to undo spoils a success; every other outcome keeps it as a warning.
    fn undone(&mut self, failure: Option<String>, now: SystemTime) -> Result<(), Refused> {
        let (outcome, warning) = match &self.state {
            State::Post { outcome, .. } => match (outcome.clone(), failure) {
                (Outcome::Success, Some(reason)) => (Outcome::Failed { reason }, None),
                (outcome, warning) => (outcome, warning),
            },
            State::Ended { .. } => return Ok(()),
            State::Pending { .. } | State::Preparing { .. } | State::Running { .. } => {
                return Err(self.illegal("be cleaned up after"));
            }
        };
        self.state = State::Ended { at: now, outcome, warning };
        Ok(())
    }

    /// The next action, leased, if it is this machine's and waits.
    fn offer(&mut self, machine: &HardwareId, holder: Holder, offer: LeaseId, now: SystemTime) {
        match self.state {
            State::Running { .. } => {}
            State::Pending { prepared } if prepared || !self.plan.prepares => {}
            State::Pending { .. }
            | State::Preparing { .. }
            | State::Post { .. }
            | State::Ended { .. } => return,
        }
        let Some(action) = self.current_mut().filter(|action| action.step.machine == *machine)
        else {
            return;
        };
        action.lease_to(holder, offer, now);
        if let (State::Pending { .. }, true) = (&self.state, self.lease().is_some()) {
            self.state = State::Running { since: now, stop: None };
        }
    }

    /// Who restarted? The same process goes on; a new one of the same boot goes on if it still runs the action;
    /// a new boot ends the action, well if it was meant to and lost if not.
    fn witness(
        &mut self,
        machine: &HardwareId,
        holder: &Holder,
        running: Option<&LeaseId>,
        now: SystemTime,
    ) {
        let again = !self.is_stopping();
        let Some(action) = self.current_mut().filter(|action| action.step.machine == *machine)
        else {
            return;
        };
        let Some(lease) = action.lease().cloned() else { return };
        let same_boot = lease.holder.boot == holder.boot;
        let same =
            same_boot && (lease.holder.process == holder.process || running == Some(&lease.id));
        let expected = action.is_terminal() || action.step.after_loss == AfterLoss::ExpectBoot;
        match (action.is_running(), same_boot) {
            (false, _) if lease.holder == *holder => action.keep(None, now),
            // Whoever leased it before has not begun, and from now on may not.
            (false, _) => action.release(),
            (true, false) if expected => action.settle(End::Success, again, now),
            (true, false) => action.lose("the machine rebooted", again, now),
            (true, true) if action.is_terminal() => {
                let reason = "the machine did not leave its boot".to_owned();
                action.settle(End::Failed { reason }, again, now);
            }
            (true, true) if same => action.keep(Some(holder.clone()), now),
            (true, true) => action.lose("its worker restarted", again, now),
        }
    }

    fn booted(&mut self, machine: &HardwareId, now: SystemTime) {
        let waits = |action: &&mut Action| action.step.machine == *machine && action.is_terminal();
        if let Some(action) = self.current_mut().filter(waits) {
            action.settle(End::Success, false, now);
        }
    }

    fn report(&mut self, lease: &LeaseId, end: End, now: SystemTime) -> Result<(), Refused> {
        if self.actions.iter().any(|action| action.ended_so(lease, &end)) {
            return Ok(());
        }
        let again = !self.is_stopping();
        self.held(lease)?.settle(end, again, now);
        Ok(())
    }

    fn tick(&mut self, now: SystemTime) -> Result<(), Refused> {
        let again = !self.is_stopping();
        match self.due(now) {
            None => {}
            Some(Due::Preparing) => {
                let reason = "preparing the machine took longer than 30 minutes".to_owned();
                self.close(Outcome::Failed { reason }, now);
            }
            Some(Due::Post) => {
                let reason = "cleaning up took longer than 30 minutes".to_owned();
                self.undone(Some(reason), now)?;
            }
            Some(Due::TimeLimit) => self.close(Outcome::Timeout, now),
            Some(Due::Stopping) => self.close(Outcome::Cancelled, now),
            Some(Due::Grace) => {
                if let Some(action) = self.current_mut() {
                    action.settle(End::Success, again, now);
                }
            }
            Some(Due::Action) => self.overrun(again, now),
        }
        Ok(())
    }

    /// On to Post, if a running workflow has come to an end one way or the other.
    ///
    /// A workflow whose last action succeeded is a success even if somebody wished it to stop: all of it was done.
    fn conclude(&mut self, now: SystemTime) {
        let State::Running { stop, .. } = self.state else { return };
        let stopping = stop.is_some() && !self.current().is_some_and(Action::is_running);
        let bad = self.actions.iter().find_map(bad_end);
        let outcome = match bad {
            Some(_) if stop.is_some() => Outcome::Cancelled,
            Some(outcome) => outcome,
            None if self.current().is_none() => Outcome::Success,
            None if stopping => Outcome::Cancelled,
            None => return,
        };
        self.close(outcome, now);
    }

    /// Post begins; what is still out is called back.
    fn close(&mut self, outcome: Outcome, now: SystemTime) {
        if let Some(action) = self.current_mut() {
            action.release();
            if action.is_running() {
                let end = match outcome {
                    Outcome::Timeout => End::Timeout,
                    Outcome::Success | Outcome::Failed { .. } | Outcome::Cancelled => {
                        End::Failed { reason: "stopped".to_owned() }
                    }
                };
                action.finish(end, now);
            }
        }
        self.state = State::Post { since: now, outcome };
    }

    /// A workflow of skipped actions is done when its turn comes.
    fn nothing_to_do(&mut self, now: SystemTime) {
        if self.current().is_none() {
            self.close(Outcome::Success, now);
        }
    }

    fn illegal(&self, event: &'static str) -> Refused {
        Refused::Illegal { state: self.state.name(), event }
    }

    /// The current action, if this lease is the one it is held under.
    fn held(&mut self, lease: &LeaseId) -> Result<&mut Action, Refused> {
        let superseded = || Refused::Superseded(lease.clone());
        let action = self
            .current_mut()
            .filter(|action| action.lease().is_some_and(|held| held.id == *lease));
        action.ok_or_else(superseded)
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Action> {
        self.actions.iter_mut().find(|action| !action.has_ended())
    }
}

/// What an action's end means for the whole, if it is a bad one.
fn bad_end(action: &Action) -> Option<Outcome> {
    let action::State::Ended { end, .. } = &action.state else { return None };
    match end {
        End::Success | End::Skipped => None,
        End::Timeout => Some(Outcome::Timeout),
        End::Failed { reason } => {
            Some(Outcome::Failed { reason: format!("action {:?}: {reason}", action.step.name) })
        }
    }
}
