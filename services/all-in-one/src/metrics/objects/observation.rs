//! The fields of objects that the metrics need.

use std::any::Any;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use store::records::Kind;
use tinwright::Stored as _;
use tinwright::instance::v1::{Instance, State};
use tinwright::nouns::{NounInfo, StateInfo};
use tinwright::power::v1::{PowerJob, power_job};
use tinwright::workflow::v1::Workflow;
use uuid::Uuid;

/// The fields of an object that the metrics need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) id: Uuid,
    /// None: a state that the contract does not have.
    pub(super) state: Option<&'static StateInfo>,
    pub(super) details: Details,
}

impl Observation {
    /// Looks at an object of `noun`. Returns none if its id is malformed.
    pub(super) fn new<K: Kind>(
        object: &K::Record,
        noun: &NounInfo,
        now: SystemTime,
    ) -> Option<Self> {
        let id = object.id().parse().ok()?;
        let state = noun.state(&K::state(object));
        Some(Self { id, state, details: Details::new(object, now) })
    }
}

/// The fields that only some nouns have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// The machine in whose queue it is.
    pub(super) machine: Option<Uuid>,
    /// The instance that it was created for.
    pub(super) instance: Option<Uuid>,
    /// The time that it took, once it has ended; for an instance, once its provisioning has.
    pub(super) took: Option<Duration>,
    pub(super) created: Option<SystemTime>,
    pub(super) has_warning: bool,
    /// The attempts of a power job that its BMC failed, as far as the record shows.
    pub(super) failures: u32,
}

impl Details {
    fn new(object: &dyn Any, now: SystemTime) -> Self {
        if let Some(workflow) = object.downcast_ref() {
            Self::of_workflow(workflow, now)
        } else if let Some(job) = object.downcast_ref() {
            Self::of_power_job(job, now)
        } else if let Some(instance) = object.downcast_ref() {
            Self::of_instance(instance, now)
        } else {
            Self::default()
        }
    }

    fn of_workflow(workflow: &Workflow, now: SystemTime) -> Self {
        let Workflow { create_time, end_time, .. } = *workflow;
        Self {
            machine: workflow.hardware_id.parse().ok(),
            instance: workflow.instance_id.parse().ok(),
            took: workflow.is_terminal().then(|| duration(create_time, end_time, now)),
            created: time(create_time),
            has_warning: !workflow.warning.is_empty(),
            ..Self::default()
        }
    }

    fn of_power_job(job: &PowerJob, now: SystemTime) -> Self {
        let PowerJob { create_time, end_time, .. } = *job;
        Self {
            machine: job.hardware_id.parse().ok(),
            took: job.is_terminal().then(|| duration(create_time, end_time, now)),
            created: time(create_time),
            failures: failures(job),
            ..Self::default()
        }
    }

    fn of_instance(instance: &Instance, now: SystemTime) -> Self {
        let is_provisioned =
            matches!(instance.state(), State::Active | State::Reinstalling | State::Failed);
        Self {
            took: is_provisioned.then(|| duration(instance.create_time, None, now)),
            created: time(instance.create_time),
            ..Self::default()
        }
    }
}

/// Returns the failed attempts of the job's present operation. The attempts of operations that are done are not in the record.
fn failures(job: &PowerJob) -> u32 {
    let attempts = u32::try_from(job.attempt).unwrap_or_default();
    match job.state() {
        power_job::State::Failed => attempts,
        power_job::State::Unspecified
        | power_job::State::Pending
        | power_job::State::Running
        | power_job::State::Success
        | power_job::State::Cancelled => attempts.saturating_sub(1),
    }
}

fn time(stamp: Option<Timestamp>) -> Option<SystemTime> {
    SystemTime::try_from(stamp?).ok()
}

/// Returns the time from `start` to `end`, or to `now` if the record has no end.
fn duration(start: Option<Timestamp>, end: Option<Timestamp>, now: SystemTime) -> Duration {
    let end = time(end).unwrap_or(now);
    time(start).and_then(|start| end.duration_since(start).ok()).unwrap_or_default()
}
