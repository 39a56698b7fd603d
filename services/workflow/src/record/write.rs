//! To the record.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::workflow::v1 as pb;
use uuid::Uuid;

use super::{WARNING, tries};
use crate::lifecycle::{
    Action, AfterLoss, End, Lease, Outcome, Plan, State, Step, Workflow, action,
};
use crate::template;

/// The longest span a record holds: ten thousand years (google.protobuf.Duration).
const LONGEST: u64 = 315_576_000_000;

/// `record` with what `workflow` now is. What the lifecycle knows nothing of stays as it was.
pub fn write(record: &pb::Workflow, workflow: &Workflow) -> pb::Workflow {
    let mut new = record.clone();
    for (stored, action) in new.actions.iter_mut().zip(&workflow.actions) {
        write_action(stored, action);
    }
    write_state(&mut new, workflow);
    new.wants_machine = workflow.wants_machine(&record.hardware_id.as_str().into());
    new
}

/// `blank`, which names its machine, with these `steps` before it, each with the action it was rendered to.
pub fn newborn(
    mut blank: pb::Workflow,
    plan: Plan,
    steps: Vec<(Step, &template::Action)>,
    now: SystemTime,
) -> pb::Workflow {
    blank.time_limit = plan.time_limit.map(span);
    blank.actions = steps.iter().map(|(step, action)| constant(step, action)).collect();
    let steps = steps.into_iter().map(|(step, _)| step).collect();
    write(&blank, &Workflow::new(plan, steps, now))
}

/// What never changes about an action.
fn constant(step: &Step, action: &template::Action) -> pb::Action {
    let variable = |(name, value): (&String, &String)| format!("{name}={value}");
    pb::Action {
        id: Uuid::now_v7().to_string(),
        task_name: step.task.clone(),
        name: step.name.clone(),
        hardware_id: step.machine.0.clone(),
        image: action.image.to_string(),
        timeout: Some(span(step.timeout)),
        retries: number(step.retries),
        background: step.background,
        after_loss: pb::AfterLoss::from(step.after_loss).into(),
        command: action.command.clone(),
        volumes: action.volumes.clone(),
        environment: action.environment.iter().map(variable).collect(),
        pid: action.namespaces.pid.clone(),
        network: action.namespaces.network.clone(),
        on_timeout: action.on_timeout.clone(),
        on_failure: action.on_failure.clone(),
        ..pb::Action::default()
    }
}

fn write_state(record: &mut pb::Workflow, workflow: &Workflow) {
    use pb::WorkflowState as Stored;
    let state = match &workflow.state {
        State::Pending { prepared } => {
            record.prepared = *prepared;
            Stored::Pending
        }
        State::Preparing { since } => {
            record.phase_time = Some((*since).into());
            Stored::Preparing
        }
        State::Running { since, stop } => {
            record.start_time = Some((*since).into());
            record.stop_time = stop.map(Timestamp::from);
            Stored::Running
        }
        State::Post { since, outcome } => {
            record.phase_time = Some((*since).into());
            record.outcome = Stored::from(outcome).into();
            record.state_reason = reason(outcome, workflow);
            Stored::Post
        }
        State::Ended { at, outcome, warning } => {
            record.end_time = Some((*at).into());
            record.outcome = Stored::Unspecified.into();
            record.state_reason = reason(outcome, workflow);
            if let Some(warning) = warning {
                record.state_reason.push_str(WARNING);
                record.state_reason.push_str(warning);
            }
            outcome.into()
        }
    };
    record.state = state.into();
}

/// Why it ends so, for people.
fn reason(outcome: &Outcome, workflow: &Workflow) -> String {
    let late = |action: &&Action| action.end() == Some(&End::Timeout);
    match (outcome, workflow.actions.iter().find(late)) {
        (Outcome::Success | Outcome::Cancelled, _) => String::new(),
        (Outcome::Failed { reason }, _) => reason.clone(),
        (Outcome::Timeout, None) => "it took longer than it may".to_owned(),
        (Outcome::Timeout, Some(action)) => {
            format!("action {:?} took longer than it may", action.step.name)
        }
    }
}

fn write_action(record: &mut pb::Action, action: &Action) {
    use pb::ActionState as Stored;
    record.failed_attempts = number(action.failed);
    record.lost_attempts = number(action.lost);
    record.not_before = None;
    let state = match &action.state {
        action::State::Pending { not_before } => {
            // The lease of the try before stays: it tells whose the last words are.
            record.not_before = not_before.map(Timestamp::from);
            Stored::Pending
        }
        action::State::Leased { lease } => {
            if record.lease.as_ref().is_none_or(|old| old.id != lease.id.0) {
                // What the try before showed is history.
                tries::retire(record);
                (record.progress, record.start_time, record.terminal_time) = (None, None, None);
            }
            record.lease = Some(lease.into());
            Stored::Leased
        }
        action::State::Running { lease, since, terminal } => {
            record.lease = Some(lease.into());
            record.start_time = Some((*since).into());
            record.terminal_time = terminal.map(Timestamp::from);
            Stored::Running
        }
        action::State::Ended { at, end, lease } => {
            record.end_time = Some((*at).into());
            // Its holder stays readable: it tells in which boot the action ended.
            let held = record.lease.take();
            record.lease = lease.as_ref().map(|id| match held {
                Some(held) if held.id == id.0 => held,
                Some(_) | None => pb::Lease { id: id.0.clone(), ..pb::Lease::default() },
            });
            write_end(record, end)
        }
    };
    record.state = state.into();
}

fn write_end(record: &mut pb::Action, end: &End) -> pb::ActionState {
    match end {
        End::Success => {
            record.reason.clear();
            pb::ActionState::Success
        }
        End::Failed { reason } => {
            record.reason.clone_from(reason);
            pb::ActionState::Failed
        }
        End::Timeout => pb::ActionState::Timeout,
        End::Skipped => pb::ActionState::Skipped,
    }
}

impl From<&Outcome> for pb::WorkflowState {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Success,
            Outcome::Failed { .. } => Self::Failed,
            Outcome::Timeout => Self::Timeout,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

impl From<AfterLoss> for pb::AfterLoss {
    fn from(after: AfterLoss) -> Self {
        match after {
            AfterLoss::Retry => Self::Retry,
            AfterLoss::Fail => Self::Fail,
            AfterLoss::ExpectBoot => Self::ExpectBoot,
        }
    }
}

impl From<&Lease> for pb::Lease {
    fn from(lease: &Lease) -> Self {
        Self {
            id: lease.id.0.clone(),
            attempt: number(lease.attempt),
            boot_id: lease.holder.boot.0.clone(),
            process_id: lease.holder.process.0.clone(),
            expire_time: Some(lease.expires.into()),
            settled: false,
        }
    }
}

/// As the record holds it; what is longer than that is as good as endless.
fn span(span: Duration) -> prost_types::Duration {
    let seconds = span.as_secs().min(LONGEST);
    let nanos = if span.as_secs() < LONGEST { span.subsec_nanos() } else { 0 };
    prost_types::Duration { seconds: seconds.cast_signed(), nanos: nanos.cast_signed() }
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
