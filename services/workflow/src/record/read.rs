//! Reads a lifecycle value from a record.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::LeaseId;
use tinwright::workflow::v1 as pb;

use crate::lifecycle::{
    Action, ActionEnd, AfterLoss, BootStep, Boots, Holder, Lease, Plan, SeenBoot, State, Step,
    WorkerTimeouts, Workflow, WorkflowOutcome, action,
};

/// A record that no lifecycle value corresponds to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of workflow {workflow} has no usable {field}")]
pub struct Damaged {
    /// The id in the record.
    pub workflow: String,
    /// The field that is missing or out of range.
    pub field: &'static str,
}

/// Returns the lifecycle value of `record`, whose worker is awaited for `worker_timeouts`.
pub fn read(record: &pb::Workflow, worker_timeouts: WorkerTimeouts) -> Result<Workflow, Damaged> {
    let damaged = |field| Damaged { workflow: record.id.clone(), field };
    workflow(record, worker_timeouts).map_err(damaged)
}

fn workflow(
    record: &pb::Workflow,
    worker_timeouts: WorkerTimeouts,
) -> Result<Workflow, &'static str> {
    let netboot = pb::boot_options::Mode::Netboot;
    let options = record.boot_options.unwrap_or_default();
    let plan = Plan {
        prepares: options.mode() == netboot,
        powers_off: options.power_off_after,
        time_limit: record.time_limit.map(duration).transpose()?,
        worker_timeouts: of_models(record, worker_timeouts),
    };
    let actions = record.actions.iter().map(action).collect::<Result<_, _>>()?;
    // Records of earlier versions have no count.
    let begun = record.prepared || record.state() == pb::WorkflowState::Preparing;
    Ok(Workflow {
        plan,
        actions,
        begun: record.start_time.map(time).transpose()?,
        preparations: count(record.preparations)?.max(begun.into()),
        boot_step: boot_step(record)?,
        boot_epoch: record.boot_epoch,
        boots: boots(record.boots.as_ref())?,
        state: state(record)?,
    })
}

/// Returns the time for which the worker of `record` is awaited: the one of its machine's models, or else of the `site`.
fn of_models(record: &pb::Workflow, site: WorkerTimeouts) -> WorkerTimeouts {
    let or = |minutes: u32, site| match minutes {
        0 => site,
        minutes => Duration::from_secs(u64::from(minutes) * 60),
    };
    WorkerTimeouts {
        silent: or(record.boot_silent_minutes, site.silent),
        step: or(record.boot_step_minutes, site.step),
    }
}

fn boots(record: Option<&pb::Boots>) -> Result<Boots, &'static str> {
    let Some(pb::Boots { current, other, conflict_time }) = record else {
        return Ok(Boots::default());
    };
    let seen = |boot: &Option<pb::SeenBoot>| -> Result<Option<SeenBoot>, &'static str> {
        let Some(boot) = boot else { return Ok(None) };
        Ok(Some(SeenBoot { id: boot.id.as_str().into(), at: since(boot.time)? }))
    };
    let conflict = conflict_time.map(time).transpose()?;
    Ok(Boots { current: seen(current)?, other: seen(other)?, conflict })
}

fn boot_step(record: &pb::Workflow) -> Result<Option<BootStep>, &'static str> {
    let at = record.boot_step_time.map(time).transpose()?;
    Ok(at.map(|at| BootStep { at, text: record.boot_step.clone() }))
}

fn state(record: &pb::Workflow) -> Result<State, &'static str> {
    use pb::WorkflowState as Stored;
    Ok(match record.state() {
        Stored::Unspecified => return Err("state"),
        Stored::Pending if record.held => State::HeldBack { since: since(record.phase_time)? },
        Stored::Pending if record.prepared => {
            // Records of earlier versions have the start of the preparation.
            State::Pending { prepared: Some(since(record.prepare_time.or(record.phase_time))?) }
        }
        Stored::Pending => State::Pending { prepared: None },
        Stored::Preparing => State::Preparing { since: since(record.phase_time)? },
        Stored::Running => State::Running { stop: record.stop_time.map(time).transpose()? },
        Stored::Post => State::Post {
            since: since(record.phase_time)?,
            outcome: outcome(record.outcome(), &record.state_reason)?,
        },
        ended @ (Stored::Success | Stored::Failed | Stored::Timeout | Stored::Cancelled) => {
            let outcome = outcome(ended, &record.state_reason)?;
            let warning = Some(record.warning.clone()).filter(|warning| !warning.is_empty());
            State::Ended { at: since(record.end_time)?, outcome, warning }
        }
    })
}

fn outcome(state: pb::WorkflowState, reason: &str) -> Result<WorkflowOutcome, &'static str> {
    use pb::WorkflowState as Stored;
    match state {
        Stored::Success => Ok(WorkflowOutcome::Success),
        Stored::Failed => Ok(WorkflowOutcome::Failed { reason: reason.to_owned() }),
        Stored::Timeout => Ok(WorkflowOutcome::Timeout),
        Stored::Cancelled => Ok(WorkflowOutcome::Cancelled { reason: reason.to_owned() }),
        Stored::Unspecified
        | Stored::Pending
        | Stored::Preparing
        | Stored::Running
        | Stored::Post => Err("outcome"),
    }
}

fn action(record: &pb::Action) -> Result<Action, &'static str> {
    Ok(Action {
        step: Step {
            task: record.task_name.clone(),
            name: record.name.clone(),
            timeout: record.timeout.map(duration).transpose()?.ok_or("actions.timeout")?,
            retries: count(record.retries)?,
            background: record.background,
            skipped: record.state() == pb::ActionState::Skipped,
            after_loss: match record.after_loss() {
                pb::AfterLoss::Retry => AfterLoss::Retry,
                pb::AfterLoss::Fail => AfterLoss::Fail,
                pb::AfterLoss::ExpectBoot => AfterLoss::ExpectBoot,
                pb::AfterLoss::Unspecified => return Err("actions.after_loss"),
            },
        },
        failed: count(record.failed_attempts)?,
        lost: count(record.lost_attempts)?,
        state: action_state(record)?,
        reason: record.reason.clone(),
        reported: record.lease.as_ref().is_some_and(|lease| lease.reported),
    })
}

fn action_state(record: &pb::Action) -> Result<action::State, &'static str> {
    use pb::ActionState as Stored;
    let end = match record.state() {
        // Callers see an action that was not run in this state. It is stored as pending.
        Stored::Unspecified | Stored::NotRun => return Err("actions.state"),
        Stored::Pending => {
            let not_before = record.not_before.map(time).transpose()?;
            return Ok(action::State::Pending { not_before });
        }
        Stored::Leased => return Ok(action::State::Leased { lease: lease(record)? }),
        Stored::Running => {
            return Ok(action::State::Running {
                lease: lease(record)?,
                since: since(record.start_time)?,
                terminal: record.terminal_time.map(time).transpose()?,
            });
        }
        Stored::Success => ActionEnd::Success,
        Stored::Failed => ActionEnd::Failed,
        Stored::Timeout => ActionEnd::Timeout,
        Stored::Skipped => ActionEnd::Skipped,
    };
    let lease = record.lease.as_ref().map(|lease| LeaseId(lease.id.clone()));
    Ok(action::State::Ended { at: since(record.end_time)?, end, lease })
}

fn lease(record: &pb::Action) -> Result<Lease, &'static str> {
    let lease = record.lease.as_ref().ok_or("actions.lease")?;
    Ok(Lease {
        id: LeaseId(lease.id.clone()),
        holder: Holder {
            boot: lease.boot_id.as_str().into(),
            process: lease.process_id.as_str().into(),
            epoch: lease.boot_epoch,
        },
        attempt: count(lease.attempt)?,
        expires: since(lease.expire_time)?,
    })
}

fn since(stored: Option<Timestamp>) -> Result<SystemTime, &'static str> {
    time(stored.ok_or("time")?)
}

fn time(stored: Timestamp) -> Result<SystemTime, &'static str> {
    stored.try_into().map_err(|_| "time")
}

fn duration(stored: prost_types::Duration) -> Result<Duration, &'static str> {
    stored.try_into().map_err(|_| "duration")
}

fn count(stored: i32) -> Result<u32, &'static str> {
    stored.try_into().map_err(|_| "count")
}
