//! Writes a lifecycle value to a record.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::workflow::v1 as pb;
use uuid::Uuid;

use super::attempts;
use crate::abilities::OUTDATED;
use crate::lifecycle::{
    Action, ActionEnd, AfterLoss, BootStep, Boots, Lease, Plan, SeenBoot, State, Step, Workflow,
    WorkflowOutcome, action,
};
use crate::template;

/// The longest span of a record: ten thousand years (google.protobuf.Duration).
const MAX_SPAN_SECONDS: u64 = 315_576_000_000;
/// The warning that two boots of a machine called at once.
const TWO_BOOTS: &str = "two boots of the machine call at once, and both are refused: restart the machine, then confirm that (tinwright workflow confirm-restart)";
/// The warning that a boot of a machine was refused because it was not seen from its firmware on.
pub const REFUSED_BOOT: &str = "a boot was refused: the machine was not seen booting from the network, its installed system may run; it is prepared again if its worker does not come";

/// Returns `record` with the state of `workflow`. Fields outside of the lifecycle stay as they are.
pub fn write(record: &pb::Workflow, workflow: &Workflow) -> pb::Workflow {
    let mut new = record.clone();
    for (stored, action) in new.actions.iter_mut().zip(&workflow.actions) {
        write_action(stored, action);
    }
    write_state(&mut new, workflow);
    new.wants_machine = workflow.wants_machine();
    new.warning = warning(record, workflow);
    new
}

/// Returns the record of a new workflow: `blank`, which says whether it is held back, with these `steps`, each with its rendered
/// action.
pub fn new_record(
    mut blank: pb::Workflow,
    plan: Plan,
    steps: Vec<(Step, &template::Action)>,
    now: SystemTime,
) -> pb::Workflow {
    blank.time_limit = plan.time_limit.map(span);
    blank.actions = steps.iter().map(|(step, action)| new_action(step, action)).collect();
    let steps = steps.into_iter().map(|(step, _)| step).collect();
    let workflow = Workflow::new(plan, steps, now);
    write(&blank, &if blank.held { workflow.held_back(now) } else { workflow })
}

/// The constant fields of an action.
fn new_action(step: &Step, action: &template::Action) -> pb::Action {
    let variable = |(name, value): (&String, &String)| format!("{name}={value}");
    pb::Action {
        id: Uuid::now_v7().to_string(),
        task_name: step.task.clone(),
        name: step.name.clone(),
        image: action.image.clone(),
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
    record.set_state(pb::WorkflowState::from(&workflow.state));
    record.start_time = workflow.begun.map(Timestamp::from);
    record.preparations = number(workflow.preparations);
    record.boot_epoch = workflow.boot_epoch;
    // An end does not change it: a workflow that ended while it was held back has done nothing.
    record.held &= matches!(workflow.state, State::HeldBack { .. } | State::Ended { .. });
    record.boots = boots(&workflow.boots);
    if let Some(BootStep { at, text }) = &workflow.boot_step {
        record.boot_step_time = Some((*at).into());
        record.boot_step.clone_from(text);
    }
    match &workflow.state {
        State::HeldBack { since } => {
            record.held = true;
            record.prepared = false;
            record.phase_time = Some((*since).into());
        }
        State::Pending { prepared } => {
            record.prepared = prepared.is_some();
            record.prepare_time = prepared.map(Timestamp::from);
        }
        State::Preparing { since } => {
            record.prepared = false;
            record.phase_time = Some((*since).into());
        }
        State::Running { stop } => record.stop_time = stop.map(Timestamp::from),
        State::Post { since, outcome } => {
            record.phase_time = Some((*since).into());
            record.set_outcome(pb::WorkflowState::from(outcome));
            record.state_reason = reason(outcome, workflow);
        }
        State::Ended { at, outcome, warning: _ } => {
            record.end_time = Some((*at).into());
            record.set_outcome(pb::WorkflowState::Unspecified);
            record.state_reason = reason(outcome, workflow);
        }
    }
}

/// The warning of `workflow`. That of a refused boot stays until the machine is prepared again, or its worker has come; that of an old
/// environment until a worker has taken the action.
fn warning(record: &pb::Workflow, workflow: &Workflow) -> String {
    match &workflow.state {
        State::Ended { warning, .. } => warning.clone().unwrap_or_default(),
        _ if workflow.boots.conflict.is_some() => TWO_BOOTS.to_owned(),
        State::Pending { .. } if record.warning == REFUSED_BOOT => REFUSED_BOOT.to_owned(),
        State::Pending { .. } | State::Running { .. }
            if record.warning.starts_with(OUTDATED) && workflow.lease().is_none() =>
        {
            record.warning.clone()
        }
        State::HeldBack { .. }
        | State::Pending { .. }
        | State::Preparing { .. }
        | State::Running { .. }
        | State::Post { .. } => String::new(),
    }
}

fn boots(boots: &Boots) -> Option<pb::Boots> {
    let seen = |boot: &SeenBoot| pb::SeenBoot { id: boot.id.0.clone(), time: Some(boot.at.into()) };
    let Boots { current, other, conflict } = boots;
    (*boots != Boots::default()).then(|| pb::Boots {
        current: current.as_ref().map(seen),
        other: other.as_ref().map(seen),
        conflict_time: conflict.map(Timestamp::from),
    })
}

/// The cause of `outcome`, for people.
fn reason(outcome: &WorkflowOutcome, workflow: &Workflow) -> String {
    let overdue = |action: &&Action| action.result() == Some(ActionEnd::Timeout);
    match (outcome, workflow.actions.iter().find(overdue)) {
        (WorkflowOutcome::Success, _) => String::new(),
        (WorkflowOutcome::Failed { reason } | WorkflowOutcome::Cancelled { reason }, _) => {
            reason.clone()
        }
        (WorkflowOutcome::Timeout, None) => "time limit exceeded".to_owned(),
        (WorkflowOutcome::Timeout, Some(action)) => {
            format!("action {:?} exceeded its timeout", action.step.name)
        }
    }
}

fn write_action(record: &mut pb::Action, action: &Action) {
    use pb::ActionState as Stored;
    record.failed_attempts = number(action.failed);
    record.lost_attempts = number(action.lost);
    record.reason.clone_from(&action.reason);
    record.not_before = None;
    let state = match &action.state {
        action::State::Pending { not_before } => {
            // The lease of the latest attempt stays: late reports are matched with it.
            record.not_before = not_before.map(Timestamp::from);
            Stored::Pending
        }
        action::State::Leased { lease } => {
            if record.lease.as_ref().is_none_or(|old| old.id != lease.id.0) {
                attempts::archive_lease(record);
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
            // The boot in the lease says in which boot the action ended.
            let held = record.lease.take();
            record.lease = lease.as_ref().map(|id| match held {
                Some(held) if held.id == id.0 => held,
                Some(_) | None => pb::Lease { id: id.0.clone(), ..pb::Lease::default() },
            });
            Stored::from(*end)
        }
    };
    if let Some(lease) = &mut record.lease {
        lease.reported = action.reported;
    }
    record.state = state.into();
}

impl From<ActionEnd> for pb::ActionState {
    fn from(end: ActionEnd) -> Self {
        match end {
            ActionEnd::Success => Self::Success,
            ActionEnd::Failed => Self::Failed,
            ActionEnd::Timeout => Self::Timeout,
            ActionEnd::Skipped => Self::Skipped,
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
            reported: false,
            boot_epoch: lease.holder.epoch,
        }
    }
}

/// Converts a span. A longer one than a record can hold is cut to the longest.
fn span(span: Duration) -> prost_types::Duration {
    let seconds = span.as_secs().min(MAX_SPAN_SECONDS);
    let nanos = if span.as_secs() < MAX_SPAN_SECONDS { span.subsec_nanos() } else { 0 };
    prost_types::Duration { seconds: seconds.cast_signed(), nanos: nanos.cast_signed() }
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
