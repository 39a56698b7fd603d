//! The machines' queues in memory: turns, deadlines, and the calls to wake.
//!
//! The reconciler's loop feeds every change of a workflow into them. They may be a moment behind the store: a caller that
//! acts on them commits against the store, which refuses a second holder of a machine.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tinwright::workflow::v1 as pb;
use tinwright::{BootId, HardwareId, WorkflowId};
use tokio::sync::watch;

use crate::lifecycle::WorkerTimeouts;
use crate::turn::{QueueEntry, QueueState, Turn, turn};
use crate::{lifecycle, power_off, record};

/// The time after the start of the server in which no worker is overdue. Workers repeat their requests within 15 s. It is short because it
/// begins again with each start: a server that never lives longer prepares no machine again.
const START_GRACE: Duration = Duration::from_secs(30);

/// The queues of all machines.
#[derive(Debug, Default)]
pub struct MachineQueues {
    table: Mutex<Table>,
    synced: watch::Sender<bool>,
    worker_timeouts: WorkerTimeouts,
    /// The time before which no worker is overdue.
    start_grace_end: Option<SystemTime>,
}

#[derive(Debug, Default)]
struct Table {
    queues: HashMap<HardwareId, MachineQueue>,
    /// The machine of each workflow that has not ended.
    machines: HashMap<WorkflowId, HardwareId>,
    deadlines: BTreeSet<(SystemTime, WorkflowId)>,
    subscribers: HashMap<HardwareId, watch::Sender<()>>,
    /// While all records are sent again: the workflows in the queues that were not among them yet.
    unconfirmed: HashSet<WorkflowId>,
}

#[derive(Debug, Default)]
struct MachineQueue {
    live: BTreeMap<WorkflowId, LiveWorkflow>,
    /// The workflow that ended last.
    last: Option<LastWorkflow>,
    /// The end of the last workflow of an instance, and whether it installed the disk.
    disk: Option<(SystemTime, bool)>,
    /// True if both of these regard the workflows that ended before the start of the server, too.
    has_history: bool,
}

/// A workflow that has ended.
#[derive(Debug)]
struct LastWorkflow {
    id: WorkflowId,
    at: SystemTime,
    /// The boot of its last action.
    boot: Option<BootId>,
    /// True if it was an installation that succeeded.
    installed: bool,
}

/// The instruction for a boot for which no workflow has an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdleBoot {
    /// Wait for work.
    Wait,
    /// Reboot from the disk: this boot has finished an installation.
    Reboot,
    /// Unexpected: the machine should have booted its disk after this workflow.
    Unexpected(WorkflowId),
}

/// A workflow that has not ended.
#[derive(Debug)]
struct LiveWorkflow {
    entry: QueueEntry,
    needs: ReconcilerNeed,
    deadline: Option<SystemTime>,
}

/// The reason to reconcile a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReconcilerNeed {
    /// None: its worker does the rest.
    Nothing,
    /// To begin when its turn comes.
    Turn,
    /// To be prepared, or cleaned up after.
    Work,
}

impl MachineQueues {
    /// Empty queues, at the start of the server, of machines whose workers are awaited for `worker_timeouts`.
    pub fn new(worker_timeouts: WorkerTimeouts, start: SystemTime) -> Self {
        let start_grace_end = start.checked_add(START_GRACE);
        Self { worker_timeouts, start_grace_end, ..Self::default() }
    }

    /// Records the present state of a workflow. Returns the workflows of its machine that need the reconciler.
    pub fn put(&self, record: &pb::Workflow) -> Vec<WorkflowId> {
        let (Ok(id), Ok(machine)) = (record.id.parse(), record.hardware_id.parse()) else {
            tracing::error!(
                workflow.id = record.id,
                "workflow ignored: its record has invalid ids"
            );
            return Vec::new();
        };
        let mut table = self.lock();
        table.unconfirmed.remove(&id);
        table.remove(id);
        match self.live(id, record) {
            Some(live) => table.insert(id, machine, live),
            None => table.queues.entry(machine).or_default().record_ended(id, record),
        }
        table.wake(machine);
        table.to_reconcile(machine)
    }

    /// Removes a deleted workflow. Returns the workflows of its machine that need the reconciler.
    pub fn delete(&self, id: &str) -> Vec<WorkflowId> {
        let mut table = self.lock();
        let Some(machine) = id.parse().ok().and_then(|id| table.remove(id)) else {
            return Vec::new();
        };
        table.wake(machine);
        table.to_reconcile(machine)
    }

    /// Adds an ended workflow of `machine` that was read from the store.
    pub fn add_ended(&self, machine: HardwareId, record: &pb::Workflow) {
        let Ok(id) = record.id.parse() else { return };
        if record::queue_state(record) == QueueState::Ended {
            self.lock().queues.entry(machine).or_default().record_ended(id, record);
        }
    }

    /// Marks the history of `machine` as complete.
    pub fn set_history_complete(&self, machine: HardwareId) {
        self.lock().queues.entry(machine).or_default().has_history = true;
    }

    /// Begins again: all live workflows are to be put once more, as changes were missed.
    pub fn begin_again(&self) {
        let mut table = self.lock();
        table.unconfirmed = table.machines.keys().copied().collect();
    }

    /// Marks the queues as complete. Workflows that were not put again have ended. Returns the workflows of their machines that need
    /// the reconciler.
    pub fn set_synced(&self) -> Vec<WorkflowId> {
        let mut table = self.lock();
        let mut needed = Vec::new();
        for id in std::mem::take(&mut table.unconfirmed) {
            let Some(machine) = table.remove(id) else { continue };
            table.queues.entry(machine).or_default().has_history = false;
            table.wake(machine);
            needed.extend(table.to_reconcile(machine));
        }
        drop(table);
        self.synced.send_replace(true);
        needed
    }

    /// Resolves once the queues are complete.
    pub async fn ready(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives as long as `self`.
        let _synced = synced.wait_for(|synced| *synced).await;
    }

    /// The workflow that holds the machine, or may begin on it.
    pub fn first(&self, machine: HardwareId) -> Option<WorkflowId> {
        let table = self.lock();
        let queue = table.queues.get(&machine)?;
        let may_use =
            |entry: &&QueueEntry| matches!(turn(entry, queue.entries()), Turn::Now | Turn::Holding);
        queue.entries().find(may_use).map(|entry| entry.id)
    }

    /// The turn of a workflow; none if it is unknown or has ended.
    pub fn turn(&self, id: WorkflowId) -> Option<Turn> {
        let table = self.lock();
        let queue = table.queues.get(table.machines.get(&id)?)?;
        Some(turn(&queue.live.get(&id)?.entry, queue.entries()))
    }

    /// Returns the instruction for `boot` on a machine whose queue is empty; none while the machine's history is not known.
    ///
    /// The machine should boot its disk after an installation: if the latest workflow there of an instance succeeded and was
    /// not to leave the machine off. Later workflows without an instance work on the installed system and do not change
    /// that; but the boot that ran one waits, as another may follow.
    pub fn idle_boot(&self, machine: HardwareId, boot: &BootId) -> Option<IdleBoot> {
        let table = self.lock();
        let queue = table.queues.get(&machine)?;
        if !queue.live.is_empty() {
            return Some(IdleBoot::Wait);
        }
        queue.has_history.then(|| queue.idle_boot(boot))
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        self.lock().deadlines.first().map(|(at, _)| *at)
    }

    /// Removes and returns the workflows whose deadline has passed. Each returns when its record changes.
    pub fn take_due(&self, now: SystemTime) -> Vec<WorkflowId> {
        let mut table = self.lock();
        let mut due = Vec::new();
        while table.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(table.deadlines.pop_first().map(|(_, id)| id));
        }
        due
    }

    /// Subscribes to changes in the queue of `machine`, and of no other.
    pub fn subscribe(self: &Arc<Self>, machine: HardwareId) -> Subscription {
        let mut table = self.lock();
        let sender = table.subscribers.entry(machine);
        let changed = Some(sender.or_insert_with(|| watch::Sender::new(())).subscribe());
        Subscription { queues: self.clone(), machine, changed }
    }

    /// Returns the queue's part of a record; none once the workflow has ended, or if the record is damaged.
    fn live(&self, id: WorkflowId, record: &pb::Workflow) -> Option<LiveWorkflow> {
        let state = record::queue_state(record);
        if state == QueueState::Ended {
            return None;
        }
        let damaged = |error: &record::Damaged| {
            tracing::error!(error = error as &dyn std::error::Error, "workflow ignored");
        };
        let workflow = record::read(record, self.worker_timeouts).inspect_err(damaged).ok()?;
        let created = record.create_time.and_then(|at| at.try_into().ok());
        let created = created.unwrap_or(SystemTime::UNIX_EPOCH);
        let entry = QueueEntry { id, created, state };
        let needs = match power_off::is_awaited(record) {
            true => ReconcilerNeed::Work,
            false => needs(&workflow),
        };
        Some(LiveWorkflow { entry, needs, deadline: self.deadline(&workflow) })
    }

    /// Returns the time of the next tick. While the server was stopped, workers could not request anything: they get some time.
    fn deadline(&self, workflow: &lifecycle::Workflow) -> Option<SystemTime> {
        let deadline = workflow.deadline()?;
        let grace_end = self.start_grace_end.filter(|_| workflow.is_worker_overdue(deadline));
        Some(grace_end.map_or(deadline, |end| end.max(deadline)))
    }

    // The table is consistent between any two statements that change it, so a panic elsewhere does not damage it.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, id: WorkflowId, machine: HardwareId, live: LiveWorkflow) {
        self.machines.insert(id, machine);
        self.deadlines.extend(live.deadline.map(|at| (at, id)));
        self.queues.entry(machine).or_default().live.insert(id, live);
    }

    fn remove(&mut self, id: WorkflowId) -> Option<HardwareId> {
        let machine = self.machines.remove(&id)?;
        let removed = self.queues.get_mut(&machine).and_then(|queue| queue.live.remove(&id));
        if let Some(at) = removed.and_then(|live| live.deadline) {
            self.deadlines.remove(&(at, id));
        }
        Some(machine)
    }

    fn wake(&self, machine: HardwareId) {
        if let Some(sender) = self.subscribers.get(&machine) {
            sender.send_replace(());
        }
    }

    fn to_reconcile(&self, machine: HardwareId) -> Vec<WorkflowId> {
        let Some(queue) = self.queues.get(&machine) else { return Vec::new() };
        let needed = |live: &&LiveWorkflow| match live.needs {
            ReconcilerNeed::Nothing => false,
            ReconcilerNeed::Turn => turn(&live.entry, queue.entries()) == Turn::Now,
            ReconcilerNeed::Work => true,
        };
        queue.live.values().filter(needed).map(|live| live.entry.id).collect()
    }
}

impl MachineQueue {
    fn entries(&self) -> impl Iterator<Item = &QueueEntry> + Clone {
        self.live.values().map(|live| &live.entry)
    }

    fn idle_boot(&self, boot: &BootId) -> IdleBoot {
        match &self.last {
            Some(last) if last.boot.as_ref() == Some(boot) => {
                if last.installed {
                    IdleBoot::Reboot
                } else {
                    IdleBoot::Wait
                }
            }
            Some(last) if self.disk.is_some_and(|(_, installed)| installed) => {
                IdleBoot::Unexpected(last.id)
            }
            Some(_) | None => IdleBoot::Wait,
        }
    }

    fn record_ended(&mut self, id: WorkflowId, record: &pb::Workflow) {
        let Some(at) = record.end_time.and_then(|at| SystemTime::try_from(at).ok()) else { return };
        let of_instance = !record.instance_id.is_empty();
        let off = record.boot_options.is_some_and(|options| options.power_off_after);
        let installed = of_instance && !off && record.state() == pb::WorkflowState::Success;
        if of_instance && self.disk.is_none_or(|(last, _)| last <= at) {
            self.disk = Some((at, installed));
        }
        if self.last.as_ref().is_none_or(|last| last.at <= at) {
            let lease = record.actions.iter().rev().find_map(|action| action.lease.as_ref());
            let boot = lease.filter(|lease| !lease.boot_id.is_empty());
            let boot = boot.map(|lease| lease.boot_id.as_str().into());
            self.last = Some(LastWorkflow { id, at, boot, installed });
        }
    }
}

fn needs(workflow: &lifecycle::Workflow) -> ReconcilerNeed {
    use lifecycle::State;
    let begins = workflow.plan.prepares || workflow.current().is_none();
    match workflow.state {
        State::Pending { prepared: None } if begins => ReconcilerNeed::Turn,
        State::Preparing { .. } | State::Post { .. } => ReconcilerNeed::Work,
        State::HeldBack { .. }
        | State::Pending { .. }
        | State::Running { .. }
        | State::Ended { .. } => ReconcilerNeed::Nothing,
    }
}

/// Reports changes of one machine's queue.
#[derive(Debug)]
pub struct Subscription {
    queues: Arc<MachineQueues>,
    machine: HardwareId,
    /// None only while it is dropped.
    changed: Option<watch::Receiver<()>>,
}

impl Subscription {
    /// Marks the changes until now as processed.
    pub fn mark_unchanged(&mut self) {
        if let Some(changed) = &mut self.changed {
            changed.mark_unchanged();
        }
    }

    /// Resolves at the next change.
    pub async fn changed(&mut self) {
        if let Some(changed) = &mut self.changed {
            // The sender lives as long as there are subscriptions.
            let _changed = changed.changed().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut table = self.queues.lock();
        self.changed = None; // dropped first, so that it is not counted below
        let unused = |sender: &watch::Sender<()>| sender.receiver_count() == 0;
        if table.subscribers.get(&self.machine).is_some_and(unused) {
            table.subscribers.remove(&self.machine);
        }
    }
}

#[cfg(test)]
mod tests;
