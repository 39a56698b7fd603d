//! How long workflows are kept after their end: for 30 days, and after that as far as somebody may still ask for them.
//!
//! Kept longer are each machine's newest 20, and the newest 100 of the instance that had work done on it last: those are
//! what an instance remembers, the one whose end it waits for among them. Which machine an instance occupies is not asked:
//! it is the latest to have had work done there, or has had none that it could name.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::workflow::v1 as pb;

use crate::queue::Standing;
use crate::record;

/// How long any is kept.
pub const AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many of a machine's are kept longer.
pub const OF_MACHINE: usize = 20;
/// How many of its latest instance's are: as many as an instance remembers.
pub const OF_INSTANCE: usize = 100;

/// All workflows there are, as far as it matters here.
#[derive(Debug, Default)]
pub struct Past(HashMap<String, Machine>);

#[derive(Debug, Default)]
struct Machine {
    ended: Vec<Ended>,
    /// The instance that had work queued last, and when.
    latest: Option<(SystemTime, String)>,
}

#[derive(Debug)]
struct Ended {
    at: SystemTime,
    id: String,
    instance: String,
}

impl Past {
    /// Takes in a workflow, ended or not.
    pub fn add(&mut self, record: &pb::Workflow) {
        let machine = self.0.entry(record.hardware_id.clone()).or_default();
        let (id, instance) = (record.id.clone(), record.instance_id.clone());
        if let Some(made) = time(record.create_time).filter(|_| !instance.is_empty())
            && machine.latest.as_ref().is_none_or(|(latest, _)| *latest <= made)
        {
            machine.latest = Some((made, instance.clone()));
        }
        if let Some(at) = time(record.end_time)
            && record::standing(record) == Standing::Over
        {
            machine.ended.push(Ended { at, id, instance });
        }
    }

    /// The ids of those that are kept no longer at `now`.
    pub fn outlived(self, now: SystemTime) -> Vec<String> {
        self.0.into_values().flat_map(|machine| machine.outlived(now)).collect()
    }
}

impl Machine {
    fn outlived(mut self, now: SystemTime) -> Vec<String> {
        self.ended.sort_by_key(|it| Reverse(it.at));
        let latest = self.latest.map(|(_, instance)| instance);
        let its = self.ended.iter().filter(|it| latest.as_ref() == Some(&it.instance));
        let named: HashSet<String> = its.take(OF_INSTANCE).map(|it| it.id.clone()).collect();
        // What ended after now, by a clock that was set back, is young.
        let old = |it: &Ended| now.duration_since(it.at).is_ok_and(|age| age > AGE);
        let rest = self.ended.into_iter().skip(OF_MACHINE);
        rest.filter(|it| old(it) && !named.contains(&it.id)).map(|it| it.id).collect()
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

    /// One that was made and ended on a day.
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

    fn outlived(all: &[pb::Workflow], on: u64) -> Vec<String> {
        let mut past = Past::default();
        all.iter().for_each(|it| past.add(it));
        let mut ids = past.outlived(day(on) + Duration::from_secs(1));
        ids.sort();
        ids
    }

    /// One a day from day 100 on, the ids as long as each other.
    fn daily(count: u64, instance: &str) -> Vec<pb::Workflow> {
        (100..100 + count).map(|on| ended(&format!("w{on}"), on, instance)).collect()
    }

    #[test]
    fn what_is_older_than_thirty_days_goes_but_for_a_machines_newest_twenty() {
        let all = daily(25, "");
        assert_eq!(outlived(&all, 131), ["w100", "w101"], "three more are not old enough");
        assert_eq!(outlived(&all, 500), ["w100", "w101", "w102", "w103", "w104"]);
        let mut others = daily(25, "");
        others.iter_mut().for_each(|it| it.hardware_id.clone_from(&it.id));
        assert!(outlived(&others, 500).is_empty(), "each is its machine's newest");
    }

    #[test]
    fn what_the_latest_instance_may_name_stays_and_what_earlier_ones_named_goes() {
        let mut all = vec![ended("first", 1, "gone"), ended("install", 2, "present")];
        all.extend(daily(30, ""));
        let goes = outlived(&all, 500);
        assert!(goes.contains(&"first".to_owned()) && !goes.contains(&"install".to_owned()));
        assert_eq!(outlived(&daily(130, "present"), 500).len(), 30, "an instance remembers 100");
    }

    #[test]
    fn one_that_has_not_ended_stays_and_counts_as_its_instances() {
        let mut all = vec![ended("install", 1, "present"), ended("other", 2, "other")];
        all.extend(daily(30, ""));
        let mut live = ended("live", 200, "present");
        (live.end_time, live.state) = (None, pb::WorkflowState::Running.into());
        all.push(live);
        let goes = outlived(&all, 500);
        assert!(!goes.contains(&"install".to_owned()) && !goes.contains(&"live".to_owned()));
        assert!(goes.contains(&"other".to_owned()));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_old() {
        assert!(outlived(&daily(30, ""), 50).is_empty());
    }
}
