//! The workflows in the store.
//!
//! ```text
//! workflow/record/<id>                   the record
//! workflow/machine/<hardware id>/<id>    ─▶ id    every workflow of the machine, also ended ones
//! workflow/holder/<hardware id>          ─▶ id    the workflow that holds the machine
//! workflow/live/<id>                     ─▶ id    every workflow that has not ended
//! ```
//!
//! Each change is one compare-and-commit on the record: read, apply, write if the record has not changed meanwhile, else
//! read again. The holder's entry is written in the commit that makes a workflow active, so that of two workflows that take
//! a free machine at once one is refused.
//!
//! The mirror holds the live workflows: the history of a site may be many times as large. An ended one is read from the store.

use std::time::{Duration, SystemTime};

use nouns::Served;
use prost_types::Timestamp;
use runtime::clock::Clock;
use store::ScopedStore;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Mirrored, Records};
use store::schema::Migration;
use tinwright::requests::Filter;
use tinwright::workflow::v1 as pb;
use tinwright::{HardwareId, WorkflowId};

use crate::boot_epochs::BootEpochs;
use crate::lifecycle::{self, AttemptReport, Event, EventRefused, WorkerTimeouts};
use crate::logs::{LogKey, Logs};
use crate::record::{self, Damaged};
use crate::turn::QueueState;

/// The index of the workflows of each machine.
const MACHINE: &str = "machine";
/// The number of attempts at a change that conflicts with others.
const MAX_COMMIT_ATTEMPTS: usize = 20;
/// The most by which the clock of a boot server may differ from ours.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);
/// The number of a machine's workflows that are read at a time.
const PART_RECORDS: usize = 100;
/// The pause between two pages of the index of machines, which may be long: other reads come first.
const PAGE_PAUSE: Duration = Duration::from_millis(5);

/// The reason why a workflow was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The event was refused.
    #[error(transparent)]
    Refused(#[from] EventRefused),
    /// Another workflow holds the machine.
    #[error("workflow {0} has the machine")]
    MachineHeld(WorkflowId),
    /// The record is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The machine's state is not known: the hardware service did not answer.
    #[error("the hardware service did not answer")]
    Hardware(#[source] Box<tonic::Status>),
    /// There is no such record, it has another revision, or it cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl Error {
    /// The error for a failed call of the hardware service.
    pub fn hardware(status: tonic::Status) -> Self {
        Self::Hardware(Box::new(status))
    }
}

/// The kind of these records.
#[derive(Debug)]
pub enum WorkflowKind {}

impl Kind for WorkflowKind {
    type Record = pb::Workflow;
    type Id = WorkflowId;
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &[MACHINE, "holder", "live"];
    const MIRRORED: Mirrored = Mirrored::Indexed("live");

    fn indexes(workflow: &pb::Workflow) -> Vec<Index> {
        let machine = &workflow.hardware_id;
        let state = record::queue_state(workflow);
        let holder = (state == QueueState::Active).then(|| Index::unique("holder", machine));
        let live = (state != QueueState::Ended).then(|| Index::unique("live", &workflow.id));
        holder.into_iter().chain(live).chain([Index::shared(MACHINE, machine)]).collect()
    }

    fn warning(workflow: &pb::Workflow) -> &str {
        &workflow.warning
    }
}

impl Served for WorkflowKind {
    fn index_of(filter: &impl Filter) -> Option<(&'static str, String)> {
        let machine: HardwareId = filter.hardware_id().parse().ok()?;
        Some((MACHINE, machine.to_string()))
    }
}

/// Adds the index of live workflows.
pub fn index_live_workflows() -> Migration {
    Migration::reindex::<WorkflowKind>("index live workflows", "workflow")
}

/// The workflows.
#[derive(Clone, Debug)]
pub struct Workflows {
    /// The underlying records.
    pub records: Records<WorkflowKind>,
    /// The boot epochs of the machines.
    pub epochs: BootEpochs,
    clock: Clock,
    worker_timeouts: WorkerTimeouts,
}

impl Workflows {
    /// The workflows in `store`.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let epochs = BootEpochs::new(store.clone());
        let worker_timeouts = WorkerTimeouts::DEFAULT;
        Self { records: Records::new(store), epochs, clock, worker_timeouts }
    }

    /// Sets for how long workers are awaited.
    pub fn with_worker_timeouts(self, worker_timeouts: WorkerTimeouts) -> Self {
        Self { worker_timeouts, ..self }
    }

    /// Returns the lifecycle value of a record.
    pub fn lifecycle(&self, record: &pb::Workflow) -> Result<lifecycle::Workflow, Damaged> {
        record::read(record, self.worker_timeouts)
    }

    /// Stores a new workflow. Repeating the same `request` returns the first result.
    pub async fn create(
        &self,
        workflow: &pb::Workflow,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Workflow, Error> {
        Ok(self.records.create(workflow, Change::default(), request.as_ref()).await?)
    }

    /// Returns a workflow.
    pub async fn get(&self, id: WorkflowId) -> Result<pb::Workflow, Error> {
        Ok(self.records.require(&id.to_string()).await?)
    }

    /// Returns the workflow that holds the machine.
    pub async fn holder(&self, machine: HardwareId) -> Result<Option<pb::Workflow>, Error> {
        Ok(self.records.find("holder", &machine.to_string()).await?)
    }

    /// Returns the id of the workflow that holds the machine.
    pub async fn holder_id(&self, machine: HardwareId) -> Result<Option<WorkflowId>, Error> {
        let holder = self.holder(machine).await?;
        Ok(holder.and_then(|holder| holder.id.parse().ok()))
    }

    /// Calls `visit` with every workflow of `machine`, also ended ones. They may have too many bytes for the memory.
    pub async fn visit_all_of(
        &self,
        machine: HardwareId,
        mut visit: impl FnMut(&pb::Workflow),
    ) -> Result<(), Error> {
        let machine = machine.to_string();
        let mut after = String::new();
        loop {
            let all = |_: &pb::Workflow| true;
            let part =
                self.records.list_indexed(MACHINE, &machine, &after, PART_RECORDS, all).await?;
            part.records.iter().for_each(&mut visit);
            match part.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the machines that have more than `count` workflows.
    pub async fn machines_with_more_than(&self, count: usize) -> Result<Vec<HardwareId>, Error> {
        let mut machines = Vec::new();
        let (mut last, mut workflows) = (String::new(), 0);
        let mut pages = self.records.store().pages("machine/");
        while let Some(pairs) = pages.next().await.map_err(records::Error::from)? {
            for (key, _) in pairs {
                let machine = key.split('/').nth(1).unwrap_or_default();
                if machine != last {
                    (last, workflows) = (machine.to_owned(), 0);
                }
                workflows += 1;
                if workflows == count + 1 {
                    machines.extend(machine.parse::<HardwareId>().ok());
                }
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
        Ok(machines)
    }

    /// Applies `event` to a workflow. An event without an effect writes nothing.
    pub async fn apply(&self, id: WorkflowId, event: &Event) -> Result<pb::Workflow, Error> {
        self.apply_and_edit(id, event, |_| {}).await
    }

    /// Applies `event` to the workflow that holds `machine`, if there is one.
    pub async fn apply_to_holder(&self, machine: HardwareId, event: &Event) -> Result<(), Error> {
        match self.holder_id(machine).await? {
            Some(id) => self.apply(id, event).await.map(drop),
            None => Ok(()),
        }
    }

    /// Applies the `event` that is a call of a worker. Refused if it shows that two boots of the machine call at once.
    pub async fn apply_call(&self, id: WorkflowId, event: &Event) -> Result<pb::Workflow, Error> {
        refuse_two_boots(self.apply(id, event).await?)
    }

    /// Applies `event` to a workflow; if it has an effect, also changes fields outside of the lifecycle with `edit`.
    pub async fn apply_and_edit(
        &self,
        id: WorkflowId,
        event: &Event,
        edit: impl Fn(&mut pb::Workflow),
    ) -> Result<pb::Workflow, Error> {
        self.apply_with(id, event, edit, |_| Change::default()).await
    }

    /// Applies the `report` of a worker on the end of its attempt under `lease`, with the last
    /// lines of the action. Returns false if it came too late: then it is only recorded.
    pub async fn report_end(
        &self,
        id: WorkflowId,
        lease: &str,
        report: AttemptReport,
        tail: &str,
    ) -> Result<bool, Error> {
        let late = pb::LateResult {
            lease_id: lease.to_owned(),
            state: pb::ActionState::from(report.end).into(),
            reason: report.reason.clone(),
            time: Some(Timestamp::from(self.clock.wall())),
            attempt: 0,
        };
        let event = Event::Report { lease: lease.into(), report };
        let applied = self.apply_report(id, &event, lease, tail).await;
        match applied.and_then(refuse_two_boots) {
            Err(refused @ Error::Refused(EventRefused::TwoBoots)) => Err(refused),
            Err(Error::Refused(refused)) => {
                tracing::info!(reason = %refused, "late result: recorded without effect");
                self.record_late_result(id, late).await.map(|()| false)
            }
            applied => applied.map(|_| true),
        }
    }

    /// Records a late result, for people.
    async fn record_late_result(&self, id: WorkflowId, late: pb::LateResult) -> Result<(), Error> {
        let record =
            |new: &mut pb::Workflow| record::attempts::record_late_result(new, late.clone());
        match self.edit(id, record).await {
            // The worker must be able to go on even if the record is full.
            Err(Error::Records(records::Error::Store(store::Error::Refused(reason)))) => {
                tracing::warn!(%reason, "late result not recorded");
                Ok(())
            }
            recorded => recorded.map(drop),
        }
    }

    /// Applies the event of a reported end, and stores the last lines of the action that ended, if it has an effect.
    async fn apply_report(
        &self,
        id: WorkflowId,
        event: &Event,
        lease: &str,
        tail: &str,
    ) -> Result<pb::Workflow, Error> {
        let write = |old: &pb::Workflow| {
            let under_lease =
                |it: &&pb::Action| it.lease.as_ref().is_some_and(|held| held.id == lease);
            let key = old.actions.iter().find(under_lease).map(|it| LogKey::of(old, it));
            key.map(|key| Logs::to_write_tail(&key, tail)).unwrap_or_default()
        };
        self.apply_with(id, event, |_| {}, write).await
    }

    async fn apply_with(
        &self,
        id: WorkflowId,
        event: &Event,
        edit: impl Fn(&mut pb::Workflow),
        more: impl Fn(&pb::Workflow) -> Change,
    ) -> Result<pb::Workflow, Error> {
        let change = |old: &pb::Workflow, now| {
            let before = self.lifecycle(old)?;
            let workflow = before.clone().after(event.clone(), now)?;
            Ok((workflow != before).then(|| {
                let mut new = record::write(old, &workflow);
                edit(&mut new);
                new
            }))
        };
        self.change(id, change, more).await
    }

    /// Begins a boot epoch of the workflow's machine, whose BMC reported it as off in its preparation; once in each preparation.
    pub async fn begin_epoch(&self, id: WorkflowId) -> Result<pb::Workflow, Error> {
        let mut attempts = 0;
        loop {
            let old = self.get(id).await?;
            let (present, now) = (self.epochs.present(&old.hardware_id).await?, self.clock.wall());
            let before = self.lifecycle(&old)?;
            let after = before.clone().after(Event::PoweredOff { epoch: present.next() }, now)?;
            if after == before {
                return Ok(old);
            }
            let mut new = record::write(&old, &after);
            new.update_time = Some(Timestamp::from(now));
            let change = self.records.to_replace(&old, &new);
            attempts += 1;
            match self.records.commit(change.and(self.epochs.to_begin_next(&present, now))).await {
                Err(records::Error::Changed { .. }) if attempts < MAX_COMMIT_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return self.get(id).await,
            }
        }
    }

    /// Begins a boot epoch of `machine`, which an operator restarted. Returns its number, and the workflow that holds the machine.
    pub async fn confirm_restart(
        &self,
        machine: HardwareId,
    ) -> Result<(u64, Option<pb::Workflow>), Error> {
        let mut attempts = 0;
        loop {
            let present = self.epochs.present(&machine.to_string()).await?;
            let (epoch, now) = (present.next(), self.clock.wall());
            let mut change = self.epochs.to_begin_next(&present, now);
            let holder = self.holder(machine).await?;
            if let Some(old) = &holder {
                let event = Event::RestartConfirmed { epoch };
                let mut new = record::write(old, &self.lifecycle(old)?.after(event, now)?);
                new.update_time = Some(Timestamp::from(now));
                change = change.and(self.records.to_replace(old, &new));
            }
            attempts += 1;
            match self.records.commit(change).await {
                Err(records::Error::Changed { .. } | records::Error::Exists { .. })
                    if attempts < MAX_COMMIT_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok((epoch, self.holder(machine).await?)),
            }
        }
    }

    /// Records that a boot of `machine` was refused at `time` while its worker is awaited: an alarm, once in each preparation. A late
    /// report of a boot before this preparation changes nothing.
    pub async fn record_refused_boot(
        &self,
        machine: HardwareId,
        time: Option<SystemTime>,
    ) -> Result<(), Error> {
        let Some(id) = self.holder_id(machine).await? else { return Ok(()) };
        let warn = |new: &mut pb::Workflow| {
            let is_awaited = new.state() == pb::WorkflowState::Pending && new.prepared;
            let prepared = new.prepare_time.and_then(|time| SystemTime::try_from(time).ok());
            let is_late = prepared
                .zip(time)
                .and_then(|(prepared, time)| prepared.duration_since(time).ok())
                .is_some_and(|before| before > MAX_CLOCK_DIFFERENCE);
            if is_awaited && !is_late && new.warning.is_empty() {
                new.warning = record::REFUSED_BOOT.to_owned();
            }
        };
        self.edit(id, warn).await.map(drop)
    }

    /// Changes fields outside of the lifecycle with `edit`, also of a workflow that has ended.
    pub async fn edit(
        &self,
        id: WorkflowId,
        edit: impl Fn(&mut pb::Workflow),
    ) -> Result<pb::Workflow, Error> {
        let change = |old: &pb::Workflow, _| {
            let mut new = old.clone();
            edit(&mut new);
            Ok((new != *old).then_some(new))
        };
        self.change(id, change, |_| Change::default()).await
    }

    /// Replaces a workflow by what `change` returns, with `more` in the same commit; none leaves it as it is.
    async fn change(
        &self,
        id: WorkflowId,
        change: impl Fn(&pb::Workflow, SystemTime) -> Result<Option<pb::Workflow>, Error>,
        more: impl Fn(&pb::Workflow) -> Change,
    ) -> Result<pb::Workflow, Error> {
        let mut attempts = 0;
        loop {
            let old = self.get(id).await?;
            let now = self.clock.wall();
            let Some(mut new) = change(&old, now)? else { return Ok(old) };
            new.update_time = Some(Timestamp::from(now));
            if new.state != old.state {
                (new.state_time, new.overdue) = (new.update_time, false);
            }
            record::size::shrink_to_fit(&mut new);
            attempts += 1;
            match self.records.replace_with(&old, new, more(&old)).await {
                Err(records::Error::Changed { .. }) if attempts < MAX_COMMIT_ATTEMPTS => {}
                // The holder ended between the commit and the read of its index entry.
                Err(records::Error::Taken { by, .. })
                    if by.is_empty() && attempts < MAX_COMMIT_ATTEMPTS => {}
                Err(records::Error::Taken { by, noun, index, value, name }) => {
                    return Err(match by.parse() {
                        Ok(by) => Error::MachineHeld(by),
                        Err(_) => records::Error::Taken { by, noun, index, value, name }.into(),
                    });
                }
                done => return Ok(done?),
            }
        }
    }

    /// Deletes an ended workflow with its logs. The record is deleted last, so that an interrupted deletion can be repeated.
    pub async fn delete(&self, ended: &pb::Workflow, logs: &Logs) -> Result<(), Error> {
        for action in &ended.actions {
            logs.delete(&LogKey::of(ended, action)).await?;
        }
        self.records.commit(self.records.to_delete(ended)).await?;
        Ok(())
    }
}

/// Refuses the call after which `record` was stored, if it showed that two boots call at once.
pub fn refuse_two_boots(record: pb::Workflow) -> Result<pb::Workflow, Error> {
    let Some(boots) = record.boots.as_ref().filter(|boots| boots.conflict_time.is_some()) else {
        return Ok(record);
    };
    tracing::error!(
        hardware.id = record.hardware_id,
        workflow.id = record.id,
        boot = boots.current.as_ref().map(|boot| &boot.id),
        "two boots of a machine call at once: both are refused until an operator confirms a restart"
    );
    Err(EventRefused::TwoBoots.into())
}

#[cfg(test)]
mod tests;
