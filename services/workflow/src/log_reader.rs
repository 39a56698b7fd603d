//! Reads the log of an action from its beginning, and further while it grows.

use std::vec::IntoIter;

use futures_util::{Stream, stream};
use store::mirror::Watcher;
use store::records::{self, Records};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::logs::{LogKey, LogKind, Logs};
use crate::workflows::WorkflowKind;

/// Reads one action's log.
#[derive(Debug)]
pub struct LogReader {
    logs: Logs,
    key: LogKey,
    attempt: i32,
    /// The key of the last chunk that was read.
    after: String,
    page: IntoIter<(String, pb::ReadLogResponse)>,
    growth: Option<LogGrowth>,
}

/// Watches for more of a log, and for its end.
#[derive(Debug)]
pub struct LogGrowth {
    /// Of the log.
    pub log: Watcher<LogKind>,
    /// Of the workflow.
    pub workflow: Watcher<WorkflowKind>,
    /// The workflows in the store.
    pub stored: Records<WorkflowKind>,
}

impl LogReader {
    /// A reader of one attempt's log, or of all at 0: up to its present end, or with `growth` until the action has ended.
    pub fn new(logs: Logs, key: LogKey, attempt: i32, growth: Option<LogGrowth>) -> Self {
        Self { logs, key, attempt, after: String::new(), page: Vec::new().into_iter(), growth }
    }

    /// Streams the chunks, until `stop`.
    pub fn into_stream(
        self,
        stop: CancellationToken,
    ) -> impl Stream<Item = Result<pb::ReadLogResponse, Status>> {
        stream::try_unfold((self, stop), |(mut reader, stop)| async move {
            match stop.run_until_cancelled(reader.next()).await {
                Some(next) => Ok(next?.map(|chunk| (chunk, (reader, stop)))),
                None => Err(Status::unavailable("the server is stopping")),
            }
        })
    }

    /// Waits for the next chunk; none at the end.
    async fn next(&mut self) -> Result<Option<pb::ReadLogResponse>, records::Error> {
        loop {
            if let Some((key, chunk)) = self.page.next() {
                self.after = key;
                return Ok(Some(chunk));
            }
            self.page = self.logs.chunks(&self.key, self.attempt, &self.after).await?.into_iter();
            if self.page.len() > 0 {
                continue;
            }
            let Some(growth) = &mut self.growth else { return Ok(None) };
            if growth.is_complete(&self.key).await? {
                // What was written before the end is read once more, without waiting.
                self.growth = None;
            }
        }
    }
}

impl LogGrowth {
    /// Waits for a change. Returns false if the log grew, true if its action has ended.
    async fn is_complete(&mut self, key: &LogKey) -> Result<bool, records::Error> {
        loop {
            tokio::select! {
                event = self.log.next() => match event {
                    Ok(WatchEvent::Put(_)) | Err(_) => return Ok(false),
                    Ok(WatchEvent::Deleted(_)) => return Ok(true),
                    Ok(WatchEvent::Synced) => {}
                },
                event = self.workflow.next() => match event {
                    Ok(WatchEvent::Put(record)) if !has_ended(&record, &key.action) => {}
                    Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_)) | Err(_) => return Ok(true),
                    // The mirror does not hold it if it ended before the first look.
                    Ok(WatchEvent::Synced) => {
                        let found = self.stored.get(&key.workflow).await?;
                        if found.is_none_or(|record| has_ended(&record, &key.action)) {
                            return Ok(true);
                        }
                    }
                },
            }
        }
    }
}

/// True if nothing more can be written: the action has ended, or will not begin because its workflow has ended.
fn has_ended(record: &pb::Workflow, action: &str) -> bool {
    let action = record.actions.iter().find(|it| it.id == action);
    record.state().is_terminal() || action.is_none_or(|action| action.state().is_terminal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_that_never_began_ends_with_its_workflow() {
        let action = pb::Action { id: "a".into(), ..pb::Action::default() };
        let mut record = pb::Workflow { actions: vec![action], ..pb::Workflow::default() };
        record.set_state(pb::WorkflowState::Running);
        assert!(!has_ended(&record, "a"));
        assert!(has_ended(&record, "gone"));
        record.set_state(pb::WorkflowState::Cancelled);
        assert!(has_ended(&record, "a"));
    }
}
