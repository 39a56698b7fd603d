//! How far actions are, between two writes: workers tell often, the store is told every few seconds.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tinwright::workflow::v1 as pb;

/// How often one action's progress is stored at most.
const STORED: Duration = Duration::from_secs(5);

/// The latest that workers told, for workflows that run.
#[derive(Debug, Default)]
pub struct Pulses(Mutex<HashMap<String, Pulse>>);

#[derive(Debug)]
struct Pulse {
    lease: String,
    stored: Instant,
    latest: pb::Progress,
}

impl Pulses {
    /// Notes `progress` under `lease`. Answers whether it should be stored as well.
    pub fn told(&self, workflow: &str, lease: &str, progress: pb::Progress, now: Instant) -> bool {
        let mut pulses = self.lock();
        match pulses.get_mut(workflow).filter(|pulse| pulse.lease == lease) {
            Some(pulse) => {
                pulse.latest = progress;
                let due = now.saturating_duration_since(pulse.stored) >= STORED;
                if due {
                    pulse.stored = now;
                }
                due
            }
            None => {
                let pulse = Pulse { lease: lease.to_owned(), stored: now, latest: progress };
                pulses.insert(workflow.to_owned(), pulse);
                true
            }
        }
    }

    /// Nothing more is to come, or what came could not be stored.
    pub fn forget(&self, workflow: &str) {
        self.lock().remove(workflow);
    }

    /// `record` with the latest progress.
    pub fn over(&self, mut record: pb::Workflow) -> pb::Workflow {
        let pulses = self.lock();
        let Some(pulse) = pulses.get(&record.id) else { return record };
        if let Some(action) = running_under(&mut record, &pulse.lease) {
            action.progress = Some(pulse.latest.clone());
        }
        record
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pulse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The action that `lease` is the present one of.
pub fn running_under<'a>(record: &'a mut pb::Workflow, lease: &str) -> Option<&'a mut pb::Action> {
    let state = |action: &pb::Action| {
        matches!(action.state(), pb::ActionState::Leased | pb::ActionState::Running)
    };
    let under = |action: &pb::Action| action.lease.as_ref().is_some_and(|held| held.id == lease);
    record.actions.iter_mut().find(|action| state(action) && under(action))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(bytes: u64) -> pb::Progress {
        pb::Progress { bytes, ..Default::default() }
    }

    fn record(state: pb::ActionState) -> pb::Workflow {
        let lease = Some(pb::Lease { id: "l".into(), ..Default::default() });
        let action = pb::Action { lease, state: state.into(), ..Default::default() };
        pb::Workflow { id: "w".into(), actions: vec![action], ..Default::default() }
    }

    #[test]
    fn one_in_five_seconds_is_stored_and_the_first_of_every_lease() {
        let (pulses, now) = (Pulses::default(), Instant::now());
        let stored: Vec<bool> = [0, 4, 5, 9, 10]
            .into_iter()
            .map(|second| pulses.told("w", "l", progress(1), now + Duration::from_secs(second)))
            .collect();
        assert_eq!(stored, [true, false, true, false, true]);
        assert!(pulses.told("w", "m", progress(1), now + Duration::from_secs(11)));
    }

    #[test]
    fn the_latest_is_shown_over_what_is_stored_while_the_lease_is_current() {
        let (pulses, now) = (Pulses::default(), Instant::now());
        pulses.told("w", "l", progress(1), now);
        pulses.told("w", "l", progress(2), now);
        let shown = |state| pulses.over(record(state)).actions[0].progress.clone();
        assert_eq!(shown(pb::ActionState::Running), Some(progress(2)));
        assert_eq!(shown(pb::ActionState::Success), None);
    }
}
