//! Reading a log from its beginning, and on while it grows.

use std::vec::IntoIter;

use store::mirror::Watcher;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;

use super::{Error, LogKind, Logs, Of};
use crate::workflows::WorkflowKind;

/// Reads one action's log.
#[derive(Debug)]
pub struct Reader {
    logs: Logs,
    of: Of,
    attempt: i32,
    /// The key of the last chunk read.
    after: String,
    page: IntoIter<(String, pb::ReadLogResponse)>,
    growth: Option<Growth>,
}

/// What tells that there is more, and that there is no more to come.
#[derive(Debug)]
pub struct Growth {
    /// Of the log.
    pub log: Watcher<LogKind>,
    /// Of the workflow.
    pub workflow: Watcher<WorkflowKind>,
}

impl Reader {
    /// A reader of one try's log, or of all at 0: what there is now, or with `growth` until the action has ended.
    pub fn new(logs: Logs, of: Of, attempt: i32, growth: Option<Growth>) -> Self {
        Self { logs, of, attempt, after: String::new(), page: Vec::new().into_iter(), growth }
    }

    /// The next chunk, as soon as there is one; none at the end.
    pub async fn next(&mut self) -> Result<Option<pb::ReadLogResponse>, Error> {
        loop {
            if let Some((key, chunk)) = self.page.next() {
                self.after = key;
                return Ok(Some(chunk));
            }
            self.page = self.logs.chunks(&self.of, self.attempt, &self.after).await?.into_iter();
            if self.page.len() > 0 {
                continue;
            }
            let Some(growth) = &mut self.growth else { return Ok(None) };
            if growth.ended(&self.of.action).await {
                // What was written before the end is read once more, and then no more is waited for.
                self.growth = None;
            }
        }
    }
}

impl Growth {
    /// Resolves when the log grew, false, or its action has ended, true.
    async fn ended(&mut self, action: &str) -> bool {
        loop {
            tokio::select! {
                told = self.log.next() => match told {
                    Ok(WatchEvent::Put(_)) | Err(_) => return false,
                    Ok(WatchEvent::Deleted(_)) => return true,
                    Ok(WatchEvent::Synced) => {}
                },
                told = self.workflow.next() => match told {
                    Ok(WatchEvent::Put(record)) if !has_ended(&record, action) => {}
                    Ok(WatchEvent::Put(_) | WatchEvent::Deleted(_)) | Err(_) => return true,
                    Ok(WatchEvent::Synced) => {}
                },
            }
        }
    }
}

/// Whether nothing more can be written: the action is over, or will never begin because its workflow is.
fn has_ended(record: &pb::Workflow, action: &str) -> bool {
    use pb::{ActionState as State, WorkflowState as Whole};
    let over = match record.state() {
        Whole::Success | Whole::Failed | Whole::Timeout | Whole::Cancelled => true,
        Whole::Unspecified | Whole::Pending | Whole::Preparing | Whole::Running | Whole::Post => {
            false
        }
    };
    let found = record.actions.iter().find(|one| one.id == action);
    over || found.is_none_or(|action| match action.state() {
        State::Success | State::Failed | State::Timeout | State::Skipped => true,
        State::Unspecified | State::Pending | State::Leased | State::Running => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_that_never_began_is_over_with_its_workflow() {
        let action = pb::Action { id: "a".into(), ..pb::Action::default() };
        let mut record = pb::Workflow { actions: vec![action], ..pb::Workflow::default() };
        record.set_state(pb::WorkflowState::Running);
        assert!(!has_ended(&record, "a"));
        assert!(has_ended(&record, "gone"));
        record.set_state(pb::WorkflowState::Cancelled);
        assert!(has_ended(&record, "a"));
    }
}
