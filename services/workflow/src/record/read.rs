//! From the record.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::workflow::v1 as pb;

use super::WARNING;
use crate::ids::LeaseId;
use crate::lifecycle::{
    Action, AfterLoss, End, Holder, Lease, Outcome, Plan, State, Step, Workflow, action,
};

/// The record says something that no workflow can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of workflow {workflow} has no usable {field}")]
pub struct Damaged {
    /// Which.
    pub workflow: String,
    /// What is missing or out of its range.
    pub field: &'static str,
}

/// The workflow that `record` stands for.
pub fn read(record: &pb::Workflow) -> Result<Workflow, Damaged> {
    workflow(record).map_err(|field| Damaged { workflow: record.id.clone(), field })
}

fn workflow(record: &pb::Workflow) -> Result<Workflow, &'static str> {
    let netboot = pb::boot_options::Mode::Netboot;
    let plan = Plan {
        prepares: record.boot_options.as_ref().is_some_and(|options| options.mode() == netboot),
        time_limit: record.time_limit.map(duration).transpose()?,
    };
    let actions = record.actions.iter().map(action).collect::<Result<_, _>>()?;
    Ok(Workflow { plan, actions, state: state(record)? })
}

fn state(record: &pb::Workflow) -> Result<State, &'static str> {
    use pb::WorkflowState as Stored;
    Ok(match record.state() {
        Stored::Unspecified => return Err("state"),
        Stored::Pending => State::Pending { prepared: record.prepared },
        Stored::Preparing => State::Preparing { since: since(record.phase_time)? },
        Stored::Running => State::Running {
            since: since(record.start_time)?,
            stop: record.stop_time.map(time).transpose()?,
        },
        Stored::Post => State::Post {
            since: since(record.phase_time)?,
            outcome: outcome(record.outcome(), &record.state_reason)?,
        },
        ended @ (Stored::Success | Stored::Failed | Stored::Timeout | Stored::Cancelled) => {
            let (reason, warning) = match record.state_reason.rsplit_once(WARNING) {
                Some((reason, warning)) => (reason, Some(warning.to_owned())),
                None => (record.state_reason.as_str(), None),
            };
            State::Ended { at: since(record.end_time)?, outcome: outcome(ended, reason)?, warning }
        }
    })
}

fn outcome(state: pb::WorkflowState, reason: &str) -> Result<Outcome, &'static str> {
    use pb::WorkflowState as Stored;
    match state {
        Stored::Success => Ok(Outcome::Success),
        Stored::Failed => Ok(Outcome::Failed { reason: reason.to_owned() }),
        Stored::Timeout => Ok(Outcome::Timeout),
        Stored::Cancelled => Ok(Outcome::Cancelled),
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
            machine: record.hardware_id.as_str().into(),
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
    })
}

fn action_state(record: &pb::Action) -> Result<action::State, &'static str> {
    use pb::ActionState as Stored;
    let end = match record.state() {
        Stored::Unspecified => return Err("actions.state"),
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
        Stored::Success => End::Success,
        Stored::Failed => End::Failed { reason: record.reason.clone() },
        Stored::Timeout => End::Timeout,
        Stored::Skipped => End::Skipped,
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
