//! The machines' queues in memory: whose turn it is, what waits for time, and who is to be woken.
//!
//! Fed with every change of a workflow by the one loop that follows them. What they say may be a moment old: who acts
//! on it commits against the store, which refuses a second holder of a machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tinwright::workflow::v1 as pb;
use tokio::sync::watch;

use crate::ids::{BootId, HardwareId, WorkflowId};
use crate::queue::{self, Standing, Summary, Turn};
use crate::{lifecycle, record};

/// What is known of all queues.
#[derive(Debug, Default)]
pub struct Queues {
    table: Mutex<Table>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Table {
    machines: HashMap<HardwareId, Machine>,
    /// Where a workflow that has not ended stands.
    places: HashMap<WorkflowId, HardwareId>,
    deadlines: BTreeSet<(SystemTime, WorkflowId)>,
    waiting: HashMap<HardwareId, watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct Machine {
    live: BTreeMap<WorkflowId, Live>,
    /// The workflow that ended last.
    last: Option<Last>,
    /// When an instance's workflow last ended, and whether its disk was installed then.
    disk: Option<(SystemTime, bool)>,
}

/// A workflow that has ended.
#[derive(Debug)]
struct Last {
    id: WorkflowId,
    at: SystemTime,
    /// In which its last action was.
    boot: Option<BootId>,
    /// It was an installation that succeeded.
    installed: bool,
}

/// What becomes of a boot for which no workflow has anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It waits for work.
    Stays,
    /// It has finished an installation: the disk's turn.
    Leaves,
    /// It came up though it was the disk's turn, after the end of this workflow.
    Strays(WorkflowId),
}

/// A workflow that has not ended.
#[derive(Debug)]
struct Live {
    summary: Summary,
    needs: Needs,
    deadline: Option<SystemTime>,
}

/// What a workflow needs of the reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Its worker does the rest.
    Nothing,
    /// To be told when its turn comes.
    Turn,
    /// To be prepared, or cleaned up after.
    Work,
}

impl Queues {
    /// Takes in a workflow as it is now. Answers which ones of its machine have to be looked at.
    pub fn put(&self, record: &pb::Workflow) -> Vec<WorkflowId> {
        let mut table = self.lock();
        let (id, machine) = (WorkflowId(record.id.clone()), HardwareId(record.hardware_id.clone()));
        table.remove(&id);
        match live(record) {
            Some(live) => table.insert(&id, &machine, live),
            None => table.machines.entry(machine.clone()).or_default().ended(record),
        }
        table.wake(&machine);
        table.to_look_at(&machine)
    }

    /// Forgets a workflow that was deleted. Answers which ones of its machine have to be looked at.
    pub fn delete(&self, id: &str) -> Vec<WorkflowId> {
        let mut table = self.lock();
        let Some(machine) = table.remove(&id.into()) else { return Vec::new() };
        table.wake(&machine);
        table.to_look_at(&machine)
    }

    /// Everything has been told for the first time.
    pub fn set_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Resolves once everything has been told.
    pub async fn ready(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives as long as the queues do.
        let _synced = synced.wait_for(|synced| *synced).await;
    }

    /// The one that has the machine, or may take it.
    pub fn first(&self, machine: &HardwareId) -> Option<WorkflowId> {
        let table = self.lock();
        let live = &table.machines.get(machine)?.live;
        let all = summaries(live);
        let first =
            all.iter().find(|it| matches!(queue::turn(it, &all), Turn::Now | Turn::Holding));
        first.map(|summary| summary.id.clone())
    }

    /// Whose turn it is, from where this workflow stands; none for one that is not known or has ended.
    pub fn turn(&self, id: &WorkflowId) -> Option<Turn> {
        let table = self.lock();
        let live = &table.machines.get(table.places.get(id)?)?.live;
        Some(queue::turn(&live.get(id)?.summary, &summaries(live)))
    }

    /// What becomes of `boot` on a machine whose queue is empty.
    ///
    /// It is the disk's turn after an installation: the latest workflow there of an instance, which succeeded and was not to
    /// leave the machine off. Work on the installed system, which is no instance's, changes nothing of that; but the boot
    /// that did it stays, as there may be more to do.
    pub fn idle(&self, machine: &HardwareId, boot: &BootId) -> Idle {
        let table = self.lock();
        let Some(machine) = table.machines.get(machine).filter(|it| it.live.is_empty()) else {
            return Idle::Stays;
        };
        match &machine.last {
            Some(last) if last.boot.as_ref() == Some(boot) => {
                if last.installed {
                    Idle::Leaves
                } else {
                    Idle::Stays
                }
            }
            Some(last) if machine.disk.is_some_and(|(_, installed)| installed) => {
                Idle::Strays(last.id.clone())
            }
            Some(_) | None => Idle::Stays,
        }
    }

    /// The first time at which something is due.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        self.lock().deadlines.first().map(|(at, _)| *at)
    }

    /// What is due at `now`, told once: it is due again only when its workflow changes.
    pub fn take_due(&self, now: SystemTime) -> Vec<WorkflowId> {
        let mut table = self.lock();
        let mut due = Vec::new();
        while table.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(table.deadlines.pop_first().map(|(_, id)| id));
        }
        due
    }

    /// Waits for changes in the queue of `machine`, and of no other.
    pub fn wait(self: &Arc<Self>, machine: &HardwareId) -> Waiter {
        let mut table = self.lock();
        let sender = table.waiting.entry(machine.clone());
        let changed = Some(sender.or_insert_with(|| watch::Sender::new(())).subscribe());
        Waiter { queues: self.clone(), machine: machine.clone(), changed }
    }

    // The table is whole between any two statements that touch it, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, id: &WorkflowId, machine: &HardwareId, live: Live) {
        self.places.insert(id.clone(), machine.clone());
        self.deadlines.extend(live.deadline.map(|at| (at, id.clone())));
        self.machines.entry(machine.clone()).or_default().live.insert(id.clone(), live);
    }

    fn remove(&mut self, id: &WorkflowId) -> Option<HardwareId> {
        let machine = self.places.remove(id)?;
        let gone = self.machines.get_mut(&machine).and_then(|at| at.live.remove(id));
        if let Some(at) = gone.and_then(|live| live.deadline) {
            self.deadlines.remove(&(at, id.clone()));
        }
        Some(machine)
    }

    fn wake(&self, machine: &HardwareId) {
        if let Some(sender) = self.waiting.get(machine) {
            sender.send_replace(());
        }
    }

    fn to_look_at(&self, machine: &HardwareId) -> Vec<WorkflowId> {
        let Some(Machine { live, .. }) = self.machines.get(machine) else { return Vec::new() };
        let all = summaries(live);
        let has_to = |one: &&Live| match one.needs {
            Needs::Nothing => false,
            Needs::Turn => queue::turn(&one.summary, &all) == Turn::Now,
            Needs::Work => true,
        };
        live.values().filter(has_to).map(|one| one.summary.id.clone()).collect()
    }
}

impl Machine {
    fn ended(&mut self, record: &pb::Workflow) {
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
            self.last = Some(Last { id: record.id.as_str().into(), at, boot, installed });
        }
    }
}

fn summaries(live: &BTreeMap<WorkflowId, Live>) -> Vec<Summary> {
    live.values().map(|one| one.summary.clone()).collect()
}

/// What a record says to its queue; nothing once it has ended, or if it makes no sense.
fn live(record: &pb::Workflow) -> Option<Live> {
    let standing = record::standing(record);
    if standing == Standing::Over {
        return None;
    }
    let damaged = |error: &record::Damaged| {
        tracing::error!(error = error as &dyn std::error::Error, "a workflow is passed over");
    };
    let workflow = record::read(record).inspect_err(damaged).ok()?;
    let created = record.create_time.and_then(|at| at.try_into().ok());
    let summary = Summary {
        id: record.id.as_str().into(),
        created: created.unwrap_or(SystemTime::UNIX_EPOCH),
        machines: [record.hardware_id.as_str().into()].into(),
        disabled: false,
        standing,
    };
    Some(Live { summary, needs: needs(&workflow), deadline: workflow.deadline() })
}

fn needs(workflow: &lifecycle::Workflow) -> Needs {
    use lifecycle::State;
    let begins = workflow.plan.prepares || workflow.current().is_none();
    match workflow.state {
        State::Pending { prepared: false } if begins => Needs::Turn,
        State::Preparing { .. } | State::Post { .. } => Needs::Work,
        State::Pending { .. } | State::Running { .. } | State::Ended { .. } => Needs::Nothing,
    }
}

/// One who waits at a machine's queue.
#[derive(Debug)]
pub struct Waiter {
    queues: Arc<Queues>,
    machine: HardwareId,
    /// There until it is dropped.
    changed: Option<watch::Receiver<()>>,
}

impl Waiter {
    /// What changed until now was looked at.
    pub fn seen(&mut self) {
        if let Some(changed) = &mut self.changed {
            changed.mark_unchanged();
        }
    }

    /// Resolves at the next change.
    pub async fn changed(&mut self) {
        if let Some(changed) = &mut self.changed {
            // The sender stays as long as somebody waits.
            let _changed = changed.changed().await;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut table = self.queues.lock();
        self.changed = None; // its own must be gone to be not counted
        if table.waiting.get(&self.machine).is_some_and(|sender| sender.receiver_count() == 0) {
            table.waiting.remove(&self.machine);
        }
    }
}

#[cfg(test)]
mod tests;
