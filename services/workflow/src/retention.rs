//! The retention of ended workflows.
//!
//! A workflow is deleted 30 days after its end, unless it is among its machine's newest 20, or among the newest 100 of the
//! machine's latest instance: an instance remembers that many, the one whose end it waits for among them. The instance that
//! occupies the machine is always the latest one, or has had no workflow that it could remember.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::workflow::v1 as pb;

use crate::record;
use crate::turn::QueueState;

/// The age at which an ended workflow is deleted.
pub const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The number of a machine's newest workflows that are never deleted.
pub const MIN_PER_MACHINE: usize = 20;
/// The number of the latest instance's newest workflows that are never deleted: as many as an instance remembers.
pub const MIN_PER_INSTANCE: usize = 100;

/// The part of all workflows that retention depends on.
#[derive(Debug, Default)]
pub struct WorkflowHistory(HashMap<String, MachineHistory>);

#[derive(Debug, Default)]
struct MachineHistory {
    ended: Vec<EndedWorkflow>,
    /// The instance of the newest workflow that has one, and the creation time of that workflow.
    latest: Option<(SystemTime, String)>,
}

#[derive(Debug)]
struct EndedWorkflow {
    at: SystemTime,
    id: String,
    instance: String,
}

impl WorkflowHistory {
    /// Adds a workflow, ended or not.
    pub fn add(&mut self, record: &pb::Workflow) {
        let machine = self.0.entry(record.hardware_id.clone()).or_default();
        let (id, instance) = (record.id.clone(), record.instance_id.clone());
        if let Some(created) = time(record.create_time).filter(|_| !instance.is_empty())
            && machine.latest.as_ref().is_none_or(|(latest, _)| *latest <= created)
        {
            machine.latest = Some((created, instance.clone()));
        }
        if let Some(at) = time(record.end_time)
            && record::queue_state(record) == QueueState::Ended
        {
            machine.ended.push(EndedWorkflow { at, id, instance });
        }
    }

    /// Returns the ids of the workflows to delete at `now`.
    pub fn expired(self, now: SystemTime) -> Vec<String> {
        self.0.into_values().flat_map(|machine| machine.expired(now)).collect()
    }
}

impl MachineHistory {
    fn expired(mut self, now: SystemTime) -> Vec<String> {
        self.ended.sort_by_key(|it| Reverse(it.at));
        let latest = self.latest.map(|(_, instance)| instance);
        let of_latest = self.ended.iter().filter(|it| latest.as_ref() == Some(&it.instance));
        let remembered: HashSet<String> =
            of_latest.take(MIN_PER_INSTANCE).map(|it| it.id.clone()).collect();
        // An end in the future, after a clock was set back, is young.
        let old = |it: &EndedWorkflow| now.duration_since(it.at).is_ok_and(|age| age > MAX_AGE);
        let rest = self.ended.into_iter().skip(MIN_PER_MACHINE);
        rest.filter(|it| old(it) && !remembered.contains(&it.id)).map(|it| it.id).collect()
    }
}

fn time(stored: Option<Timestamp>) -> Option<SystemTime> {
    stored.and_then(|at| at.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn day(day: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY)
    }

    /// A workflow that was created and ended on a day.
    fn ended(id: &str, on: u64, instance: &str) -> pb::Workflow {
        pb::Workflow {
            id: id.into(),
            hardware_id: "m".into(),
            instance_id: instance.into(),
            state: pb::WorkflowState::Success.into(),
            create_time: Some(day(on).into()),
            end_time: Some(day(on).into()),
            ..Default::default()
        }
    }

    fn expired(all: &[pb::Workflow], on: u64) -> Vec<String> {
        let mut history = WorkflowHistory::default();
        all.iter().for_each(|it| history.add(it));
        let mut ids = history.expired(day(on) + Duration::from_secs(1));
        ids.sort();
        ids
    }

    /// One workflow a day from day 100 on; their ids have the same length.
    fn daily(count: u64, instance: &str) -> Vec<pb::Workflow> {
        (100..100 + count).map(|on| ended(&format!("w{on}"), on, instance)).collect()
    }

    #[test]
    fn workflows_older_than_thirty_days_are_deleted_except_a_machines_newest_twenty() {
        let all = daily(25, "");
        assert_eq!(expired(&all, 131), ["w100", "w101"], "three more are not old enough");
        assert_eq!(expired(&all, 500), ["w100", "w101", "w102", "w103", "w104"]);
        let mut others = daily(25, "");
        others.iter_mut().for_each(|it| it.hardware_id.clone_from(&it.id));
        assert!(expired(&others, 500).is_empty(), "each is the newest of its machine");
    }

    #[test]
    fn the_latest_instances_workflows_stay_and_those_of_earlier_instances_are_deleted() {
        let mut all = vec![ended("first", 1, "gone"), ended("install", 2, "present")];
        all.extend(daily(30, ""));
        let deleted = expired(&all, 500);
        assert!(deleted.contains(&"first".to_owned()) && !deleted.contains(&"install".to_owned()));
        assert_eq!(expired(&daily(130, "present"), 500).len(), 30, "an instance remembers 100");
    }

    #[test]
    fn a_workflow_that_has_not_ended_stays_and_makes_its_instance_the_latest() {
        let mut all = vec![ended("install", 1, "present"), ended("other", 2, "other")];
        all.extend(daily(30, ""));
        let mut live = ended("live", 200, "present");
        (live.end_time, live.state) = (None, pb::WorkflowState::Running.into());
        all.push(live);
        let deleted = expired(&all, 500);
        assert!(!deleted.contains(&"install".to_owned()) && !deleted.contains(&"live".to_owned()));
        assert!(deleted.contains(&"other".to_owned()));
    }

    #[test]
    fn no_workflow_is_deleted_after_the_clock_was_set_back() {
        assert!(expired(&daily(30, ""), 50).is_empty());
    }
}
