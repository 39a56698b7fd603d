//! Deletes ended workflows, with their logs, by the rules of [`retention`](crate::retention).
//!
//! Each round computes the workflows to delete from the mirror: nothing is stored, and an interrupted deletion is repeated.

use std::time::Duration;

use store::records;
use tinwright::watch::WatchEvent;

use super::Reconciler;
use crate::record;
use crate::retention::WorkflowHistory;
use crate::turn::QueueState;
use crate::workflows::Error;

/// The time between two rounds.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

impl Reconciler {
    /// Deletes expired workflows, for ever.
    pub(super) async fn collect_garbage(&self) {
        self.mirror.ready().await;
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            let expired = self.history().await.expired(self.clock.wall());
            for id in &expired {
                if let Err(error) = self.delete(id).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(workflow.id = id, error, "expired workflow not deleted");
                }
            }
            if !expired.is_empty() {
                tracing::info!(workflows = expired.len(), "expired workflows deleted");
            }
        }
    }

    async fn history(&self) -> WorkflowHistory {
        let (mut history, mut watcher) = (WorkflowHistory::default(), self.mirror.watch());
        loop {
            match watcher.next().await {
                Ok(WatchEvent::Put(workflow)) => history.add(&workflow),
                Ok(WatchEvent::Deleted(_)) => {}
                Ok(WatchEvent::Synced) => return history,
                Err(_) => (history, watcher) = (WorkflowHistory::default(), self.mirror.watch()),
            }
            // There may be very many, and other tasks have to run.
            tokio::task::consume_budget().await;
        }
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
