//! The fields of objects that the metrics need.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::{Instance, State};
use tinwright::power::v1::{PowerJob, power_job};
use tinwright::workflow::v1::Workflow;
use uuid::Uuid;

/// The fields of an object that the metrics need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::metrics) struct Observation {
    pub(super) id: Uuid,
    pub(super) state: i32,
    /// The machine in whose queue it is.
    pub(super) machine: Option<Uuid>,
    /// The instance that it was created for.
    pub(super) instance: Option<Uuid>,
    /// The time that it took, once it has ended; for an instance, once its provisioning has.
    pub(super) took: Option<Duration>,
    pub(super) created: Option<SystemTime>,
    /// True if it changes no more, and is forgotten.
    pub(super) has_ended: bool,
    pub(super) has_warning: bool,
    /// The attempts of a power job that its BMC failed, as far as the record shows.
    pub(super) failures: u32,
}

impl Observation {
    /// An object that has not ended, without the fields that only some nouns have; none if the id is malformed.
    fn new(id: &str, state: i32, created: Option<Timestamp>) -> Option<Self> {
        Some(Self {
            id: id.parse().ok()?,
            state,
            machine: None,
            instance: None,
            took: None,
            created: time(created),
            has_ended: false,
            has_warning: false,
            failures: 0,
        })
    }
}

/// An object of a noun.
pub(in crate::metrics) trait Observed: Sized {
    /// Returns the fields of interest; none if the id is malformed.
    fn observe(&self, now: SystemTime) -> Option<Observation>;
}

impl Observed for Workflow {
    fn observe(&self, now: SystemTime) -> Option<Observation> {
        let has_ended = self.is_terminal();
        Some(Observation {
            machine: self.hardware_id.parse().ok(),
            instance: self.instance_id.parse().ok(),
            took: has_ended.then(|| duration(self.create_time, self.end_time, now)),
            has_ended,
            has_warning: !self.warning.is_empty(),
            ..Observation::new(&self.id, self.state, self.create_time)?
        })
    }
}

impl Observed for PowerJob {
    fn observe(&self, now: SystemTime) -> Option<Observation> {
        let has_ended = self.is_terminal();
        Some(Observation {
            machine: self.hardware_id.parse().ok(),
            took: has_ended.then(|| duration(self.create_time, self.end_time, now)),
            has_ended,
            failures: failures(self),
            ..Observation::new(&self.id, self.state, self.create_time)?
        })
    }
}

impl Observed for Hardware {
    fn observe(&self, _: SystemTime) -> Option<Observation> {
        Observation::new(&self.id, self.state, self.create_time)
    }
}

impl Observed for Instance {
    fn observe(&self, now: SystemTime) -> Option<Observation> {
        let is_provisioned =
            matches!(self.state(), State::Active | State::Reinstalling | State::Failed);
        Some(Observation {
            took: is_provisioned.then(|| duration(self.create_time, None, now)),
            has_ended: self.state() == State::Deleted,
            ..Observation::new(&self.id, self.state, self.create_time)?
        })
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
