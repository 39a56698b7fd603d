//! What is written is read back.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::lifecycle::{
    Action, AfterLoss, End, Holder, Lease, Outcome, Plan, State, Step, Workflow, action,
};

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
    ("[a-z]{1,4}", "[a-z]{1,4}", "[a-z]{1,4}", 0..99_u32, any_time()).prop_map(
        |(id, boot, process, attempt, expires)| Lease {
            id: id.as_str().into(),
            holder: Holder { boot: boot.as_str().into(), process: process.as_str().into() },
            attempt,
            expires,
        },
    )
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Success),
        any_reason().prop_map(|reason| End::Failed { reason }),
        Just(End::Timeout),
        Just(End::Skipped),
    ]
}

fn any_try() -> impl Strategy<Value = action::State> {
    use action::State as Try;
    let optional = prop::option::of(any_time());
    prop_oneof![
        prop::option::of(any_time()).prop_map(|not_before| Try::Pending { not_before }),
        any_lease().prop_map(|lease| Try::Leased { lease }),
        (any_lease(), any_time(), optional).prop_map(|(lease, since, terminal)| Try::Running {
            lease,
            since,
            terminal
        }),
        (any_time(), any_end(), prop::option::of(any_lease())).prop_map(|(at, end, lease)| {
            Try::Ended { at, end, lease: lease.map(|lease| lease.id) }
        }),
    ]
}

fn any_action() -> impl Strategy<Value = Action> {
    let after =
        prop::sample::select(vec![AfterLoss::Retry, AfterLoss::Fail, AfterLoss::ExpectBoot]);
    (any_try(), any_span(), 0..9_u32, 0..9_u32, 0..9_u32, any::<bool>(), after).prop_map(
        |(state, timeout, retries, failed, lost, background, after_loss)| {
            let skipped = matches!(state, action::State::Ended { end: End::Skipped, .. });
            let (task, name, machine) = ("t".into(), "a".into(), "m".into());
            let step =
                Step { task, name, machine, timeout, retries, background, skipped, after_loss };
            Action { step, failed, lost, state }
        },
    )
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Success),
        any_reason().prop_map(|reason| Outcome::Failed { reason }),
        Just(Outcome::Timeout),
        Just(Outcome::Cancelled),
    ]
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        any::<bool>().prop_map(|prepared| State::Pending { prepared }),
        any_time().prop_map(|since| State::Preparing { since }),
        (any_time(), prop::option::of(any_time()))
            .prop_map(|(since, stop)| State::Running { since, stop }),
        (any_time(), any_outcome()).prop_map(|(since, outcome)| State::Post { since, outcome }),
        (any_time(), any_outcome(), prop::option::of(any_reason()))
            .prop_map(|(at, outcome, warning)| State::Ended { at, outcome, warning }),
    ]
}

prop_compose! {
    fn any_workflow()(
        prepares: bool,
        time_limit in prop::option::of(any_span()),
        actions in prop::collection::vec(any_action(), 0..4),
        state in any_state(),
    ) -> Workflow {
        Workflow { plan: Plan { prepares, time_limit }, actions, state }
    }
}

/// A record with what never changes about `workflow`.
fn blank(workflow: &Workflow) -> pb::Workflow {
    let mode = match workflow.plan.prepares {
        true => pb::boot_options::Mode::Netboot,
        false => pb::boot_options::Mode::Unspecified,
    };
    let options = pb::BootOptions { mode: mode.into(), power_off_after: false };
    let record = pb::Workflow { boot_options: Some(options), ..Default::default() };
    let rendered =
        crate::template::Template::parse("t", TEXT).unwrap().render(Default::default()).unwrap();
    let action = &rendered.tasks[0].actions[0];
    let steps = workflow.actions.iter().map(|it| (it.step.clone(), action)).collect();
    newborn(record, workflow.plan, steps, SystemTime::UNIX_EPOCH)
}

const TEXT: &str = "
name: t
tasks: [{name: a, worker: w, actions: [{name: x, image: cexec, environment: {B: 1, A: 2}}]}]
";

proptest! {
    #[test]
    fn what_is_written_is_read_back(workflow in any_workflow()) {
        let written = write(&blank(&workflow), &workflow);
        prop_assert_eq!(read(&written).unwrap(), workflow.clone());
        prop_assert_eq!(write(&written, &workflow), written, "writing it again changes nothing");
    }

    #[test]
    fn one_state_may_be_written_over_any_other(first in any_workflow(), state in any_state(), tries in any_try()) {
        let mut second = first.clone();
        second.state = state;
        if let Some(action) = second.actions.first_mut().filter(|action| !action.step.skipped) {
            let skips = matches!(tries, action::State::Ended { end: End::Skipped, .. });
            action.state = if skips { action.state.clone() } else { tries };
        }
        let written = write(&write(&blank(&first), &first), &second);
        prop_assert_eq!(read(&written).unwrap(), second);
    }

    #[test]
    fn the_record_alone_tells_who_holds_the_machine(workflow in any_workflow()) {
        prop_assert_eq!(standing(&write(&blank(&workflow), &workflow)), workflow.standing());
    }

    #[test]
    fn no_record_is_too_odd(state: i32, seconds: i64, nanos: i32, count: i32) {
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
fn a_damaged_record_is_named_with_its_field() {
    let record = pb::Workflow { id: "w".into(), ..Default::default() };
    assert_eq!(
        read(&record).unwrap_err().to_string(),
        "the record of workflow w has no usable state"
    );
}
