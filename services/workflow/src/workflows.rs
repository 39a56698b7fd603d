//! The workflows, as the store keeps them.
//!
//! ```text
//! workflow/record/<id>                   the record, with everything
//! workflow/machine/<hardware id>/<id>    ─▶ id    every workflow of the machine, ended ones too
//! workflow/holder/<hardware id>          ─▶ id    the one that has the machine
//! ```
//!
//! What happens to a workflow is one compare-and-commit on its record: read, decide, write if nobody wrote meanwhile,
//! else read again. The holder's entry is written in the commit that makes a workflow active, so that of two that take
//! a free machine at once one is refused.

use std::collections::BTreeMap;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Listing, Records};
use store::{ScopedStore, Store as _};
use tinwright::workflow::v1 as pb;

use crate::lifecycle::{self, Event, Refused};
use crate::logs::{Logs, Of};
use crate::queue::Standing;
use crate::record::{self, Damaged};

/// How often a change is tried again that somebody else came before.
const TRIES: usize = 20;

/// Why a workflow was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its life does not lead there.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another workflow has the machine.
    #[error("workflow {0} has the machine")]
    Held(String),
    /// Its record makes no sense.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// There is no such record, it is not as the caller saw it, or it cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// The kind of these records.
#[derive(Debug)]
pub enum WorkflowKind {}

impl Kind for WorkflowKind {
    type Record = pb::Workflow;
    const NOUN: &'static str = "workflow";
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &["machine", "holder"];

    fn id(workflow: &pb::Workflow) -> &str {
        &workflow.id
    }

    fn revision_mut(workflow: &mut pb::Workflow) -> &mut i64 {
        &mut workflow.revision
    }

    fn indexes(workflow: &pb::Workflow) -> Vec<Index> {
        let machine = &workflow.hardware_id;
        let holds = record::standing(workflow) == Standing::Active;
        let holder = holds.then(|| Index::unique("holder", machine));
        holder.into_iter().chain([Index::shared("machine", machine)]).collect()
    }
}

/// The workflows.
#[derive(Clone, Debug)]
pub struct Workflows {
    records: Records<WorkflowKind>,
}

impl Workflows {
    /// Those kept in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<WorkflowKind> {
        &self.records
    }

    /// What `request` made, if it was carried out before.
    pub async fn answered(
        &self,
        request: Option<&IdempotentRequest>,
    ) -> Result<Option<pb::Workflow>, Error> {
        Ok(self.records.previous_result(request).await?)
    }

    /// Adds a workflow. Repeating the same `request` answers as the first time.
    pub async fn create(
        &self,
        workflow: &pb::Workflow,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Workflow, Error> {
        Ok(self.records.create(workflow, Change::default(), request.as_ref()).await?)
    }

    /// The workflow that goes by `id`.
    pub async fn get(&self, id: &str) -> Result<pb::Workflow, Error> {
        Ok(self.records.require(id).await?)
    }

    /// The one that has the machine now.
    pub async fn holder(&self, machine: &str) -> Result<Option<pb::Workflow>, Error> {
        Ok(self.records.find("holder", machine).await?)
    }

    /// At most `limit` workflows after the id `after` that have all of `labels`.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::Workflow>, Error> {
        Ok(self.records.list(after, limit, |workflow| has(workflow, labels)).await?)
    }

    /// The same, of one machine's only: no other's is read.
    pub async fn list_of(
        &self,
        machine: &str,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::Workflow>, Error> {
        let prefix = format!("machine/{machine}/");
        let from = if after.is_empty() { String::new() } else { format!("{prefix}{after}") };
        let page =
            self.records.store().list(&prefix, &from, limit).await.map_err(records::Error::from)?;
        let id = |key: &str| key.strip_prefix(&prefix).unwrap_or_default().to_owned();
        let last = page.pairs.last().map(|(key, _)| id(key));
        let mut found = Vec::new();
        for (key, _) in &page.pairs {
            // Deleted since the entry was read, perhaps.
            found
                .extend(self.records.get(&id(key)).await?.filter(|workflow| has(workflow, labels)));
        }
        Ok(Listing { records: found, next: last.filter(|_| page.more) })
    }

    /// Lets `event` happen to the workflow that goes by `id`; where that changes anything, `note` changes with it what
    /// the lifecycle knows nothing of. Else there is nothing to write.
    pub async fn apply(
        &self,
        id: &str,
        event: &Event,
        note: impl Fn(&mut pb::Workflow),
    ) -> Result<pb::Workflow, Error> {
        self.change(id, |old, now| after(old, event, &note, now)).await
    }

    /// Lets `note` change what the lifecycle knows nothing of, of a workflow that may have ended.
    pub async fn note(
        &self,
        id: &str,
        note: impl Fn(&mut pb::Workflow),
    ) -> Result<pb::Workflow, Error> {
        self.change(id, |old, now| Ok(noted(old, old.clone(), &note, now))).await
    }

    async fn change(
        &self,
        id: &str,
        change: impl Fn(&pb::Workflow, SystemTime) -> Result<pb::Workflow, Error>,
    ) -> Result<pb::Workflow, Error> {
        let mut tries = 0;
        loop {
            let old = self.records.require(id).await?;
            let new = change(&old, SystemTime::now())?;
            tries += 1;
            match self.records.replace(&old, new).await {
                Err(records::Error::Changed { .. }) if tries < TRIES => {}
                Err(records::Error::Taken { by, .. }) => return Err(Error::Held(by)),
                done => return Ok(done?),
            }
        }
    }

    /// Removes a workflow that has ended, with its `logs`. The record goes last: a removal cut short can be repeated.
    pub async fn delete(&self, ended: &pb::Workflow, logs: &Logs) -> Result<(), Error> {
        for action in &ended.actions {
            let of = Of { workflow: ended.id.clone(), action: action.id.clone() };
            logs.delete(&of).await?;
        }
        self.records.commit(self.records.to_delete(ended)).await?;
        Ok(())
    }
}

/// `old` after `event`, with `note` and the time if that is a change.
fn after(
    old: &pb::Workflow,
    event: &Event,
    note: impl Fn(&mut pb::Workflow),
    now: SystemTime,
) -> Result<pb::Workflow, Error> {
    let before: lifecycle::Workflow = record::read(old)?;
    let workflow = before.clone().after(event.clone(), now)?;
    if workflow == before {
        return Ok(old.clone());
    }
    Ok(noted(old, record::write(old, &workflow), note, now))
}

/// `new` with `note`, and with the time if that makes it another than `old`.
fn noted(
    old: &pb::Workflow,
    mut new: pb::Workflow,
    note: impl Fn(&mut pb::Workflow),
    now: SystemTime,
) -> pb::Workflow {
    note(&mut new);
    if new != *old {
        new.update_time = Some(Timestamp::from(now));
    }
    new
}

fn has(workflow: &pb::Workflow, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| workflow.labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
