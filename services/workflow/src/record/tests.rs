//! Records survive a round trip.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::lifecycle::{
    Action, ActionEnd, AfterLoss, BootStep, Boots, Holder, Lease, Plan, SeenBoot, State, Step,
    WorkerTimeouts, Workflow, WorkflowOutcome, action,
};

fn read(record: &pb::Workflow) -> Result<Workflow, Damaged> {
    super::read(record, WorkerTimeouts::DEFAULT)
}

fn any_time() -> impl Strategy<Value = SystemTime> {
    (0..4_000_000_000_u64, 0..1_000_000_000_u32)
        .prop_map(|(s, n)| SystemTime::UNIX_EPOCH + Duration::new(s, n))
}

fn any_span() -> impl Strategy<Value = Duration> {
    (0..315_000_000_000_u64, 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n))
}

fn any_reason() -> impl Strategy<Value = String> {
    "[a-z ]{0,12}"
}

fn any_lease() -> impl Strategy<Value = Lease> {
    ("[a-z]{1,4}", any_holder(), 0..99_u32, any_time()).prop_map(
        |(id, holder, attempt, expires)| Lease { id: id.as_str().into(), holder, attempt, expires },
    )
}

fn any_holder() -> impl Strategy<Value = Holder> {
    ("[a-z]{1,4}", "[a-z]{1,4}", any::<u64>()).prop_map(|(boot, process, epoch)| Holder {
        boot: boot.as_str().into(),
        process: process.as_str().into(),
        epoch,
    })
}

fn any_end() -> impl Strategy<Value = ActionEnd> {
    prop::sample::select(vec![
        ActionEnd::Success,
        ActionEnd::Failed,
        ActionEnd::Timeout,
        ActionEnd::Skipped,
    ])
}

fn any_attempt() -> impl Strategy<Value = action::State> {
    use action::State as Attempt;
    let optional = prop::option::of(any_time());
    prop_oneof![
        prop::option::of(any_time()).prop_map(|not_before| Attempt::Pending { not_before }),
        any_lease().prop_map(|lease| Attempt::Leased { lease }),
        (any_lease(), any_time(), optional).prop_map(|(lease, since, terminal)| Attempt::Running {
            lease,
            since,
            terminal
        }),
        (any_time(), any_end(), prop::option::of(any_lease())).prop_map(|(at, end, lease)| {
            Attempt::Ended { at, end, lease: lease.map(|lease| lease.id) }
        }),
    ]
}

fn any_action() -> impl Strategy<Value = Action> {
    let after =
        prop::sample::select(vec![AfterLoss::Retry, AfterLoss::Fail, AfterLoss::ExpectBoot]);
    let step = (any_span(), 0..9_u32, any::<bool>(), after);
    let text = (any_reason(), any::<bool>());
    (any_attempt(), step, 0..9_u32, 0..9_u32, text).prop_map(
        |(state, (timeout, retries, background, after_loss), failed, lost, text)| {
            let skipped = matches!(state, action::State::Ended { end: ActionEnd::Skipped, .. });
            let (task, name) = ("t".into(), "a".into());
            let step = Step { task, name, timeout, retries, background, skipped, after_loss };
            let (reason, reported) = text;
            // Only an attempt that has a lease, and is over, can have been reported.
            let reported = reported && matches!(state, action::State::Ended { lease: Some(_), .. });
            Action { step, failed, lost, state, reason, reported }
        },
    )
}

fn any_outcome() -> impl Strategy<Value = WorkflowOutcome> {
    prop_oneof![
        Just(WorkflowOutcome::Success),
        any_reason().prop_map(|reason| WorkflowOutcome::Failed { reason }),
        Just(WorkflowOutcome::Timeout),
        any_reason().prop_map(|reason| WorkflowOutcome::Cancelled { reason }),
    ]
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        any_time().prop_map(|since| State::HeldBack { since }),
        prop::option::of(any_time()).prop_map(|prepared| State::Pending { prepared }),
        any_time().prop_map(|since| State::Preparing { since }),
        prop::option::of(any_time()).prop_map(|stop| State::Running { stop }),
        (any_time(), any_outcome()).prop_map(|(since, outcome)| State::Post { since, outcome }),
        (any_time(), any_outcome(), prop::option::of("[a-z]{1,12}"))
            .prop_map(|(at, outcome, warning)| State::Ended { at, outcome, warning }),
    ]
}

fn any_boots() -> impl Strategy<Value = Boots> {
    let boot = || {
        let seen = ("[a-z]{1,4}", any_time());
        prop::option::of(seen.prop_map(|(id, at)| SeenBoot { id: id.as_str().into(), at }))
    };
    (boot(), boot(), prop::option::of(any_time())).prop_map(|(current, other, conflict)| Boots {
        current,
        other,
        conflict,
    })
}

prop_compose! {
    fn any_workflow()(
        prepares: bool,
        powers_off: bool,
        time_limit in prop::option::of(any_span()),
        actions in prop::collection::vec(any_action(), 0..4),
        begun in prop::option::of(any_time()),
        preparations in 1..9_u32,
        boot_step in prop::option::of((any_time(), any_reason())),
        boot_epoch: u64,
        boots in any_boots(),
        state in any_state(),
    ) -> Workflow {
        let plan = Plan { prepares, powers_off, time_limit, ..Plan::default() };
        let boot_step = boot_step.map(|(at, text)| BootStep { at, text });
        Workflow { plan, actions, begun, preparations, boot_step, boot_epoch, boots, state }
    }
}

/// A record with the constant part of `workflow`.
fn blank(workflow: &Workflow) -> pb::Workflow {
    let mode = match workflow.plan.prepares {
        true => pb::boot_options::Mode::Netboot,
        false => pb::boot_options::Mode::Unspecified,
    };
    let options = pb::BootOptions { mode: mode.into(), power_off_after: workflow.plan.powers_off };
    let record = pb::Workflow { boot_options: Some(options), ..Default::default() };
    let rendered =
        crate::template::Template::parse("t", TEXT).unwrap().render(Default::default()).unwrap();
    let action = &rendered.definition.tasks[0].actions[0];
    let steps = workflow.actions.iter().map(|it| (it.step.clone(), action)).collect();
    new_record(record, workflow.plan, steps, SystemTime::UNIX_EPOCH)
}

const TEXT: &str = "
name: t
tasks: [{name: a, worker: w, actions: [{name: x, image: rootio, command: [version], environment: {B: 1, A: 2}}]}]
";

proptest! {
    #[test]
    fn a_written_workflow_is_read_back(workflow in any_workflow()) {
        let written = write(&blank(&workflow), &workflow);
        prop_assert_eq!(read(&written).unwrap(), workflow.clone());
        prop_assert_eq!(write(&written, &workflow), written, "writing it again changes nothing");
    }

    #[test]
    fn a_state_may_be_written_over_any_other(first in any_workflow(), state in any_state(), attempt in any_attempt()) {
        let mut second = first.clone();
        second.state = state;
        if let Some(action) = second.actions.first_mut().filter(|action| !action.step.skipped) {
            let skips = matches!(attempt, action::State::Ended { end: ActionEnd::Skipped, .. });
            action.reported = false;
            action.state = if skips { action.state.clone() } else { attempt };
        }
        let written = write(&write(&blank(&first), &first), &second);
        prop_assert_eq!(read(&written).unwrap(), second);
    }

    #[test]
    fn reading_any_record_does_not_panic(state: i32, seconds: i64, nanos: i32, count: i32) {
        let time = Some(prost_types::Timestamp { seconds, nanos });
        let span = Some(prost_types::Duration { seconds, nanos });
        let action = pb::Action {
            state, after_loss: 1, failed_attempts: count, timeout: span, start_time: time, ..Default::default()
        };
        let mut record = pb::Workflow { state, actions: vec![action], ..Default::default() };
        (record.start_time, record.time_limit) = (time, span);
        let _either = read(&record);
    }
}

#[test]
fn a_prepared_record_without_a_count_was_prepared_once() {
    let time = Some(prost_types::Timestamp { seconds: 1_000_000, nanos: 0 });
    let state = pb::WorkflowState::Pending.into();
    let old = pb::Workflow { state, prepared: true, phase_time: time, ..Default::default() };
    assert_eq!(read(&old).unwrap().preparations, 1);
    let waiting = pb::Workflow { prepared: false, ..old };
    assert_eq!(read(&waiting).unwrap().preparations, 0);
}

#[test]
fn the_error_names_the_damaged_field() {
    let record = pb::Workflow { id: "w".into(), ..Default::default() };
    assert_eq!(
        read(&record).unwrap_err().to_string(),
        "the record of workflow w has no usable state"
    );
}

#[test]
fn a_worker_is_awaited_for_the_times_of_the_models_and_else_for_those_of_the_site() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let of = |boot_silent_minutes, boot_step_minutes| {
        let state = pb::WorkflowState::Pending.into();
        let record = pb::Workflow {
            boot_silent_minutes,
            boot_step_minutes,
            state,
            ..pb::Workflow::default()
        };
        read(&record).unwrap().plan.worker_timeouts
    };
    assert_eq!(of(0, 0), WorkerTimeouts::DEFAULT);
    let step = WorkerTimeouts::DEFAULT.step;
    assert_eq!(of(45, 0), WorkerTimeouts { silent: minutes(45), step });
    assert_eq!(of(45, 2), WorkerTimeouts { silent: minutes(45), step: minutes(2) });
}
