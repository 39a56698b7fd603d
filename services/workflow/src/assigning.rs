//! What a machine's worker is to do next: handed out at once, or as soon as there is something.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tinwright::workflow::v1 as pb;
use uuid::Uuid;

use crate::ids::{HardwareId, LeaseId, WorkflowId};
use crate::lifecycle::{Event, Holder};
use crate::queues::{Idle, Queues};
use crate::stray::{self, Verdict};
use crate::workflows::{Error, Workflows};
use store::records;

/// How long a call is held while there is nothing to do.
pub const HELD: Duration = Duration::from_secs(50);

/// What a worker is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Run this.
    Run(Box<pb::Assignment>),
    /// The disk's turn: leave this boot.
    Reboot,
    /// Nothing; whoever asks again may be told more.
    Nothing,
}

/// Hands out actions.
#[derive(Clone, Debug)]
pub struct Assigning {
    /// What there is to do.
    pub workflows: Workflows,
    /// Whose turn it is.
    pub queues: Arc<Queues>,
}

/// What one look at the queue brought.
enum Look {
    Told(Told),
    /// Nothing; something by itself at this time, if one is given.
    Nothing(Option<SystemTime>),
    /// Another workflow has the machine: it is the one to ask.
    Other(WorkflowId),
}

impl Assigning {
    /// What `holder`, on `machine`, is to do, as soon as there is something. It may be given up at any time: asking
    /// again gives the same.
    ///
    /// Only the first look tells the lifecycle who asks, and only that one looks for the machine's holder in the store:
    /// a call that is held may be a boot older than what it finds, and must not be mistaken for news.
    pub async fn next(
        &self,
        machine: &HardwareId,
        holder: &Holder,
        running: Option<LeaseId>,
    ) -> Result<Told, Error> {
        let mut waiter = self.queues.wait(machine);
        self.queues.ready().await;
        let holding = self.workflows.holder(&machine.0).await?;
        let mut first = holding.map(|it| WorkflowId(it.id)).or_else(|| self.queues.first(machine));
        let (machine, holder) = (machine.clone(), holder.clone());
        let mut event = Event::Ask {
            machine: machine.clone(),
            holder: holder.clone(),
            running,
            offer: offer(),
        };
        loop {
            let again = match self.look(&machine, &holder, first.take(), &event).await? {
                Look::Told(told) => return Ok(told),
                Look::Other(id) => {
                    first = Some(id);
                    continue;
                }
                Look::Nothing(again) => again,
            };
            event =
                Event::Waiting { machine: machine.clone(), holder: holder.clone(), offer: offer() };
            tokio::select! {
                () = waiter.changed() => {}
                () = until(again) => {}
            }
            waiter.seen(); // before looking: what comes in between wakes at once
            first = self.queues.first(&machine);
        }
    }

    async fn look(
        &self,
        machine: &HardwareId,
        holder: &Holder,
        first: Option<WorkflowId>,
        event: &Event,
    ) -> Result<Look, Error> {
        let Some(id) = first else {
            return match self.queues.idle(machine, &holder.boot) {
                Idle::Stays => Ok(Look::Nothing(None)),
                Idle::Leaves => Ok(Look::Told(Told::Reboot)),
                Idle::Strays(last) => self.strays(&last, holder, event).await,
            };
        };
        match self.workflows.apply(&id.0, event, |_| {}).await {
            Ok(record) => Ok(match assignment(&record, holder) {
                Some(assignment) => Look::Told(Told::Run(Box::new(assignment))),
                None => Look::Nothing(not_before(&record)),
            }),
            Err(Error::Held(by)) => Ok(Look::Other(WorkflowId(by))),
            // Deleted meanwhile: its machine's queue changes, and that wakes.
            Err(Error::Records(records::Error::Missing { .. })) => Ok(Look::Nothing(None)),
            Err(error) => Err(error),
        }
    }

    /// What a boot is told that came up with nothing to do after the workflow `last`. Only one that is surely alive, as it
    /// has just asked, is counted; another that is new is let go, to ask again if it lives.
    async fn strays(
        &self,
        last: &WorkflowId,
        holder: &Holder,
        event: &Event,
    ) -> Result<Look, Error> {
        let seen = match self.workflows.get(&last.0).await {
            Err(Error::Records(records::Error::Missing { .. })) => return Ok(Look::Nothing(None)),
            seen => seen?,
        };
        let verdict = match (stray::known(&seen, &holder.boot), event) {
            (Some(verdict), _) => verdict,
            (None, Event::Ask { .. }) => self.counted(&seen, holder).await?,
            (None, _) => return Ok(Look::Told(Told::Nothing)),
        };
        Ok(match verdict {
            Verdict::Reboot => Look::Told(Told::Reboot),
            Verdict::Idle => Look::Nothing(None),
        })
    }

    async fn counted(&self, last: &pb::Workflow, holder: &Holder) -> Result<Verdict, Error> {
        let count = |last: &mut pb::Workflow| stray::count(last, &holder.boot);
        let last = self.workflows.note(&last.id, count).await?;
        let verdict = stray::known(&last, &holder.boot).unwrap_or(Verdict::Idle);
        let (machine, boots) = (&last.hardware_id, last.stray_boot_ids.len());
        match verdict {
            Verdict::Reboot => {
                tracing::warn!(hardware.id = machine, boots, "rebooting what did not boot its disk")
            }
            Verdict::Idle => {
                tracing::warn!(hardware.id = machine, boots, "does not boot its disk: left idle")
            }
        }
        Ok(verdict)
    }
}

/// A fence no other has.
fn offer() -> LeaseId {
    LeaseId(Uuid::new_v4().to_string())
}

/// What `holder` has of this workflow.
fn assignment(record: &pb::Workflow, holder: &Holder) -> Option<pb::Assignment> {
    let held = |action: &&pb::Action| {
        let out = matches!(action.state(), pb::ActionState::Leased | pb::ActionState::Running);
        let his = |lease: &pb::Lease| {
            lease.boot_id == holder.boot.0 && lease.process_id == holder.process.0
        };
        out && action.lease.as_ref().is_some_and(his)
    };
    let action = record.actions.iter().find(held)?;
    Some(pb::Assignment {
        lease_id: action.lease.as_ref()?.id.clone(),
        workflow_id: record.id.clone(),
        action: Some(action.clone()),
        instance_id: record.instance_id.clone(),
    })
}

/// When the pause after a bad try is over.
fn not_before(record: &pb::Workflow) -> Option<SystemTime> {
    let waits = record.actions.iter().find(|action| action.not_before.is_some())?;
    waits.not_before.and_then(|at| at.try_into().ok())
}

/// Resolves at `time` by the clock; never if there is none.
pub(crate) async fn until(time: Option<SystemTime>) {
    match time {
        Some(time) => {
            tokio::time::sleep(time.duration_since(SystemTime::now()).unwrap_or_default()).await;
        }
        None => std::future::pending().await,
    }
}
