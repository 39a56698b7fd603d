//! The latest progress of actions, in memory: workers report often, the store is updated every few seconds.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tinwright::workflow::v1 as pb;

/// The shortest time between two writes of one action's progress.
const STORE_INTERVAL: Duration = Duration::from_secs(5);

/// The latest progress of each running workflow.
#[derive(Debug, Default)]
pub struct ProgressCache(Mutex<HashMap<String, CachedProgress>>);

#[derive(Debug)]
struct CachedProgress {
    lease: String,
    stored: Instant,
    latest: pb::Progress,
}

impl ProgressCache {
    /// Records `progress` under `lease`. Returns true if it should be stored as well.
    pub fn record(
        &self,
        workflow: &str,
        lease: &str,
        progress: pb::Progress,
        now: Instant,
    ) -> bool {
        let mut cache = self.lock();
        match cache.get_mut(workflow).filter(|cached| cached.lease == lease) {
            Some(cached) => {
                cached.latest = progress;
                let due = now.saturating_duration_since(cached.stored) >= STORE_INTERVAL;
                if due {
                    cached.stored = now;
                }
                due
            }
            None => {
                let cached =
                    CachedProgress { lease: lease.to_owned(), stored: now, latest: progress };
                cache.insert(workflow.to_owned(), cached);
                true
            }
        }
    }

    /// Removes a workflow's progress: its action has ended, or the progress could not be stored.
    pub fn remove(&self, workflow: &str) {
        self.lock().remove(workflow);
    }

    /// Returns `record` with the latest progress.
    pub fn merge_into(&self, mut record: pb::Workflow) -> pb::Workflow {
        let cache = self.lock();
        let Some(cached) = cache.get(&record.id) else { return record };
        if let Some(action) = action_under_lease(&mut record, &cached.lease) {
            action.progress = Some(cached.latest);
        }
        record
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the action that is held under `lease`.
pub fn action_under_lease<'a>(
    record: &'a mut pb::Workflow,
    lease: &str,
) -> Option<&'a mut pb::Action> {
    let is_held = |action: &pb::Action| {
        matches!(action.state(), pb::ActionState::Leased | pb::ActionState::Running)
    };
    let under = |action: &pb::Action| action.lease.as_ref().is_some_and(|held| held.id == lease);
    record.actions.iter_mut().find(|action| is_held(action) && under(action))
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
    fn progress_is_stored_every_five_seconds_and_at_the_beginning_of_every_lease() {
        let (cache, now) = (ProgressCache::default(), Instant::now());
        let stored: Vec<bool> = [0, 4, 5, 9, 10]
            .into_iter()
            .map(|second| cache.record("w", "l", progress(1), now + Duration::from_secs(second)))
            .collect();
        assert_eq!(stored, [true, false, true, false, true]);
        assert!(cache.record("w", "m", progress(1), now + Duration::from_secs(11)));
    }

    #[test]
    fn the_latest_progress_is_shown_while_the_lease_is_current() {
        let (cache, now) = (ProgressCache::default(), Instant::now());
        cache.record("w", "l", progress(1), now);
        cache.record("w", "l", progress(2), now);
        let shown = |state| cache.merge_into(record(state)).actions[0].progress;
        assert_eq!(shown(pb::ActionState::Running), Some(progress(2)));
        assert_eq!(shown(pb::ActionState::Success), None);
    }
}
