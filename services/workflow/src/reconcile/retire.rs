//! Workflows that ended long ago are removed, with their logs, one after the other.
//!
//! Which ones is found out anew each time from the mirror: nothing is remembered, and a removal that was cut short is made
//! again.

use std::time::{Duration, SystemTime};

use store::records;
use tinwright::watch::WatchEvent;

use super::Reconciler;
use crate::queue::Standing;
use crate::record;
use crate::retention::Past;
use crate::workflows::Error;

/// How often it is looked for those that are kept no longer.
const ROUND: Duration = Duration::from_secs(60 * 60);

impl Reconciler {
    /// Removes what is kept no longer, for ever.
    pub(super) async fn retire(&self) {
        self.mirror.ready().await;
        let mut rounds = tokio::time::interval(ROUND);
        loop {
            rounds.tick().await;
            let gone = self.past().await.outlived(SystemTime::now());
            for id in &gone {
                if let Err(error) = self.remove(id).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(workflow.id = id, error, "an old workflow stays for now");
                }
            }
            if !gone.is_empty() {
                tracing::info!(workflows = gone.len(), "old workflows removed");
            }
        }
    }

    /// All there are.
    async fn past(&self) -> Past {
        let (mut past, mut watcher) = (Past::default(), self.mirror.watch());
        loop {
            match watcher.next().await {
                Ok(WatchEvent::Put(workflow)) => past.add(&workflow),
                Ok(WatchEvent::Deleted(_)) => {}
                Ok(WatchEvent::Synced) => return past,
                Err(_) => (past, watcher) = (Past::default(), self.mirror.watch()),
            }
            // There may be very many, and others have work to do.
            tokio::task::consume_budget().await;
        }
    }

    async fn remove(&self, id: &str) -> Result<(), Error> {
        match self.workflows.get(id).await {
            Ok(found) if record::standing(&found) == Standing::Over => {
                self.workflows.delete(&found, &self.logs).await
            }
            Ok(_) | Err(Error::Records(records::Error::Missing { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
