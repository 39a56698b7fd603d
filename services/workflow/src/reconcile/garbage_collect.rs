//! Deletes ended workflows, with their logs, by the rules of [`retention`](crate::retention).
//!
//! Each round computes the workflows to delete from the store, and reads those of machines that have many only: nothing else is stored, and
//! an interrupted deletion is repeated.

use std::time::Duration;

use store::records;

use super::Reconciler;
use crate::record;
use crate::retention::{MIN_PER_MACHINE, WorkflowHistory};
use crate::turn::QueueState;
use crate::workflows::Error;

/// The time from the start to the first round: what a start needs comes first, and its memory is free again then.
const FIRST_ROUND_DELAY: Duration = Duration::from_secs(5);
/// The time between two rounds.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

impl Reconciler {
    /// Deletes expired workflows, for ever.
    pub(super) async fn collect_garbage(&self) {
        self.mirror.ready().await;
        tokio::time::sleep(FIRST_ROUND_DELAY).await;
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            match self.delete_expired().await {
                Ok(0) => {}
                Ok(workflows) => tracing::info!(workflows, "expired workflows deleted"),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "expired workflows not found");
                }
            }
        }
    }

    /// Deletes the expired workflows of each machine in turn. Returns their number.
    async fn delete_expired(&self) -> Result<usize, Error> {
        let mut deleted = 0;
        for machine in self.workflows.machines_with_more_than(MIN_PER_MACHINE).await? {
            let mut history = WorkflowHistory::default();
            self.workflows.visit_all_of(machine, |workflow| history.add(workflow)).await?;
            for id in &history.expired(self.clock.wall()) {
                match self.delete(id).await {
                    Ok(()) => deleted += 1,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(workflow.id = id, error, "expired workflow not deleted");
                    }
                }
            }
        }
        Ok(deleted)
    }

    async fn delete(&self, id: &str) -> Result<(), Error> {
        let Ok(id) = id.parse() else { return Ok(()) };
        match self.workflows.get(id).await {
            Ok(found) if record::queue_state(&found) == QueueState::Ended => {
                self.workflows.delete(&found, &self.logs).await
            }
            Ok(_) | Err(Error::Records(records::Error::Missing { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
