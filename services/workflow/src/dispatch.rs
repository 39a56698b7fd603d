//! The next action for a machine's worker: returned at once, or as soon as there is one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::clock::Clock;
use store::records;
use tinwright::workflow::v1 as pb;
use tinwright::{HardwareId, LeaseId, WorkflowId};
use uuid::Uuid;

use crate::abilities::Abilities;
use crate::lifecycle::boots::BOOT_SILENCE;
use crate::lifecycle::{Event, Holder};
use crate::machine_gate::{self, MachineGate, Permission};
use crate::queue::{IdleBoot, MachineQueues};
use crate::unexpected_boots::{self, UnexpectedBoot};
use crate::workflows::{Error, Workflows};

/// The longest time that a request is held while there is nothing to do.
const MAX_HOLD: Duration = Duration::from_secs(50);

/// Dispatches actions to workers.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    /// The workflows in the store.
    pub workflows: Workflows,
    /// The machines' queues.
    pub queues: Arc<MachineQueues>,
    /// The machines on which steps wait.
    pub gate: MachineGate,
    /// The time.
    pub clock: Clock,
}

/// The result of one look at a machine's queue.
enum Lookup {
    Found(Box<pb::NextActionResponse>),
    /// Nothing; look again at this time, if one is given.
    Nothing(Option<SystemTime>),
    /// Another workflow holds the machine: look there.
    HeldBy(WorkflowId),
}

impl Dispatcher {
    /// Returns the next instruction for `holder` on `machine`, or none if there is none in time:
    /// then the worker requests again.
    pub async fn next_in_time(
        &self,
        machine: HardwareId,
        holder: &Holder,
        running: Option<LeaseId>,
        abilities: &Abilities,
    ) -> Result<pb::NextActionResponse, Error> {
        let next =
            tokio::time::timeout(MAX_HOLD, self.next(machine, holder, running, abilities)).await;
        next.unwrap_or_else(|_| Ok(pb::NextActionResponse::default()))
    }

    /// Waits for the next instruction for `holder` on `machine`: an action, a reboot, or neither, to request again. May be dropped at any time: a repeated request gets the same
    /// assignment.
    ///
    /// The first lookup reads the machine's holder from the store, and reports the request to the lifecycle, which detects
    /// restarts by it. Later lookups do neither: by then the machine may have rebooted, and an old boot must not count as new.
    pub async fn next(
        &self,
        machine: HardwareId,
        holder: &Holder,
        running: Option<LeaseId>,
        abilities: &Abilities,
    ) -> Result<pb::NextActionResponse, Error> {
        let mut subscription = self.queues.subscribe(machine);
        self.queues.ready().await;
        let active = self.workflows.holder_id(machine).await?;
        let mut first = active.or_else(|| self.queues.first(machine));
        let holder = holder.clone();
        let mut event =
            Event::RequestAction { holder: holder.clone(), running, new_lease: new_lease() };
        loop {
            let look = self.look_up(machine, &holder, first.take(), &event, abilities);
            let next_look = match look.await? {
                Lookup::Found(response) => return Ok(*response),
                Lookup::HeldBy(id) => {
                    first = Some(id);
                    continue;
                }
                Lookup::Nothing(next_look) => next_look,
            };
            event = Event::RetryRequest { holder: holder.clone(), new_lease: new_lease() };
            tokio::select! {
                () = subscription.changed() => {}
                () = sleep_until(next_look, &self.clock) => {}
            }
            subscription.mark_unchanged(); // before the lookup, so that a change during it wakes at once
            first = self.queues.first(machine);
        }
    }

    async fn look_up(
        &self,
        machine: HardwareId,
        holder: &Holder,
        first: Option<WorkflowId>,
        event: &Event,
        abilities: &Abilities,
    ) -> Result<Lookup, Error> {
        let Some(id) = first else {
            return match self.idle_boot(machine, holder).await? {
                IdleBoot::Wait => Ok(Lookup::Nothing(None)),
                IdleBoot::Reboot | IdleBoot::Unexpected(_)
                    if self.is_suspended(machine).await? =>
                {
                    Ok(Lookup::Nothing(self.next_poll()))
                }
                IdleBoot::Reboot => Ok(found(None, true)),
                IdleBoot::Unexpected(last) => self.unexpected_boot(last, holder, event).await,
            };
        };
        if self.is_suspended(machine).await? || self.is_unable(id, abilities).await? {
            return self.look_up_while_suspended(id, holder, event).await;
        }
        match self.workflows.apply_call(id, event).await {
            Ok(record) => Ok(match assignment(&record, holder) {
                Some(assignment) => found(Some(assignment), false),
                None if waits_for_boot(&record, holder) => self.after_boot(&record, event),
                None => Lookup::Nothing(not_before(&record)),
            }),
            Err(Error::MachineHeld(by)) => Ok(Lookup::HeldBy(by)),
            // It was deleted meanwhile: its machine's queue changes, which wakes this request.
            Err(Error::Records(records::Error::Missing { .. })) => Ok(Lookup::Nothing(None)),
            Err(error) => Err(error),
        }
    }

    /// True if a worker with these abilities cannot run the next action of the workflow `id`, whose warning
    /// says so then.
    async fn is_unable(&self, id: WorkflowId, abilities: &Abilities) -> Result<bool, Error> {
        if abilities.are_complete() {
            return Ok(false);
        }
        let record = match self.workflows.get(id).await {
            Err(Error::Records(records::Error::Missing { .. })) => return Ok(false),
            record => record?,
        };
        let next = record.actions.iter().find(|action| !action.is_terminal());
        let Some(warning) = next.and_then(|action| abilities.missing_for(action)) else {
            return Ok(false);
        };
        if record.warning != warning {
            self.workflows.edit(id, |new| new.warning.clone_from(&warning)).await?;
        }
        Ok(true)
    }

    /// Returns the instruction for a boot on a machine whose queue is empty. Reads the machine's workflows from the store, once.
    async fn idle_boot(&self, machine: HardwareId, holder: &Holder) -> Result<IdleBoot, Error> {
        if let Some(known) = self.queues.idle_boot(machine, &holder.boot) {
            return Ok(known);
        }
        let add = |workflow: &pb::Workflow| self.queues.add_ended(machine, workflow);
        Box::pin(self.workflows.visit_all_of(machine, add)).await?;
        self.queues.set_history_complete(machine);
        Ok(self.queues.idle_boot(machine, &holder.boot).unwrap_or(IdleBoot::Wait))
    }

    /// Returns the action that `holder` has already. No other is leased while steps on the machine wait.
    async fn look_up_while_suspended(
        &self,
        id: WorkflowId,
        holder: &Holder,
        event: &Event,
    ) -> Result<Lookup, Error> {
        let Event::RequestAction { running, .. } = event else {
            return Ok(Lookup::Nothing(self.next_poll()));
        };
        let (holder, running) = (holder.clone(), running.clone());
        let request = Event::RequestWhileSuspended { holder: holder.clone(), running };
        match self.workflows.apply_call(id, &request).await {
            Ok(record) => Ok(match assignment(&record, &holder) {
                Some(assignment) => found(Some(assignment), false),
                None => Lookup::Nothing(self.next_poll()),
            }),
            Err(Error::Records(records::Error::Missing { .. })) => Ok(Lookup::Nothing(None)),
            Err(error) => Err(error),
        }
    }

    /// The result for a boot that waits for the end of the one before it: at that time it has to request again.
    fn after_boot(&self, record: &pb::Workflow, event: &Event) -> Lookup {
        let current = record.boots.as_ref().and_then(|boots| boots.current.as_ref());
        let called = current.and_then(|boot| SystemTime::try_from(boot.time?).ok());
        let over = called.and_then(|called| called.checked_add(BOOT_SILENCE));
        let is_new = matches!(event, Event::RequestAction { .. });
        match is_new || over.is_some_and(|over| self.clock.wall() < over) {
            true => Lookup::Nothing(over),
            false => found(None, false),
        }
    }

    /// True if no step may be taken on the machine now.
    async fn is_suspended(&self, machine: HardwareId) -> Result<bool, Error> {
        let permission = self.gate.permission(&machine.to_string()).await;
        Ok(permission.map_err(Error::hardware)? != Permission::Granted)
    }

    /// The time at which a machine on which steps wait is read again.
    fn next_poll(&self) -> Option<SystemTime> {
        self.clock.wall().checked_add(machine_gate::POLL_INTERVAL)
    }

    /// Returns the instruction for a boot with no action to run after the workflow `last`. A new boot is counted only when its
    /// request has just arrived; a held request of a new boot has to be repeated, as the boot may be over.
    async fn unexpected_boot(
        &self,
        last: WorkflowId,
        holder: &Holder,
        event: &Event,
    ) -> Result<Lookup, Error> {
        let record = match self.workflows.get(last).await {
            Err(Error::Records(records::Error::Missing { .. })) => {
                return Ok(Lookup::Nothing(None));
            }
            record => record?,
        };
        let given = unexpected_boots::instruction(&record, &holder.boot);
        let instruction = match (given, event) {
            (Some(instruction), _) => instruction,
            (None, Event::RequestAction { .. }) => self.count_boot(last, holder).await?,
            (None, _) => return Ok(found(None, false)),
        };
        Ok(match instruction {
            UnexpectedBoot::Reboot => found(None, true),
            UnexpectedBoot::Wait => Lookup::Nothing(None),
        })
    }

    async fn count_boot(&self, last: WorkflowId, holder: &Holder) -> Result<UnexpectedBoot, Error> {
        let count = |last: &mut pb::Workflow| unexpected_boots::count(last, &holder.boot);
        let last = self.workflows.edit(last, count).await?;
        let instruction = unexpected_boots::instruction(&last, &holder.boot);
        let (machine, boots) = (&last.hardware_id, last.unexpected_boot_ids.len());
        match instruction {
            Some(UnexpectedBoot::Reboot) => {
                tracing::warn!(hardware.id = machine, boots, "unexpected boot: told to reboot");
            }
            Some(UnexpectedBoot::Wait) | None => {
                tracing::warn!(hardware.id = machine, boots, "unexpected boot: left waiting");
            }
        }
        Ok(instruction.unwrap_or(UnexpectedBoot::Wait))
    }
}

/// The instruction to run `assignment`, to reboot so that the disk is booted, or to request again.
fn found(assignment: Option<pb::Assignment>, reboot: bool) -> Lookup {
    Lookup::Found(Box::new(pb::NextActionResponse { assignment, reboot }))
}

/// A unique lease id.
fn new_lease() -> LeaseId {
    LeaseId(Uuid::new_v4().to_string())
}

/// The assignment that `holder` has in this workflow.
fn assignment(record: &pb::Workflow, holder: &Holder) -> Option<pb::Assignment> {
    let held = |action: &&pb::Action| {
        let leased = matches!(action.state(), pb::ActionState::Leased | pb::ActionState::Running);
        let by_holder = |lease: &pb::Lease| {
            lease.boot_id == holder.boot.0 && lease.process_id == holder.process.0
        };
        leased && action.lease.as_ref().is_some_and(by_holder)
    };
    let action = record.actions.iter().find(held)?;
    Some(pb::Assignment {
        lease_id: action.lease.as_ref()?.id.clone(),
        workflow_id: record.id.clone(),
        action: Some(action.clone()),
        instance_id: record.instance_id.clone(),
    })
}

/// True if the boot of `holder` waits for the end of another one.
fn waits_for_boot(record: &pb::Workflow, holder: &Holder) -> bool {
    let current = record.boots.as_ref().and_then(|boots| boots.current.as_ref());
    current.is_some_and(|current| current.id != holder.boot.0)
}

/// The end of the backoff after a bad attempt.
fn not_before(record: &pb::Workflow) -> Option<SystemTime> {
    let action = record.actions.iter().find(|action| action.not_before.is_some())?;
    action.not_before.and_then(|at| at.try_into().ok())
}

/// Sleeps until the wall clock shows `time`; for ever if there is none.
pub(crate) async fn sleep_until(time: Option<SystemTime>, clock: &Clock) {
    match time {
        Some(time) => clock.sleep_until(time).await,
        None => std::future::pending().await,
    }
}
