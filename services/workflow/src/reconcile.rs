//! What workflows need besides their workers: turns, preparation, clean-up, deadlines, and an end of being kept.
//!
//! One loop follows the records, keeps the queues in memory, and starts a step for each workflow that needs one; never
//! two for the same. A step reads the workflow again and does what its state asks for, so it may be repeated and
//! forgotten at any point: what a step that was killed leaves undone, the next one finds.

mod bmc;
mod prepare;
mod retire;
mod undo;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::mirror::{Mirror, TooSlow};
use store::records;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::Instrument as _;

use self::bmc::Bmcs;
use crate::assigning::until;
use crate::ids::WorkflowId;
use crate::lifecycle::{self, Event, State};
use crate::logs::Logs;
use crate::progress::Pulses;
use crate::queue::{Standing, Turn};
use crate::queues::Queues;
use crate::record;
use crate::workflows::{Error, WorkflowKind, Workflows};

/// The pause before a step that failed is tried again; doubled up to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(10);
/// How often the clock is looked at though nothing is due: it may have been set.
const LOOK: Duration = Duration::from_secs(60);

/// Brings workflows on.
#[derive(Clone, Debug)]
pub struct Reconciler {
    workflows: Workflows,
    logs: Logs,
    mirror: Mirror<WorkflowKind>,
    queues: Arc<Queues>,
    pulses: Arc<Pulses>,
    bmcs: Bmcs,
}

/// What a workflow asks for.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Happens(Event),
    Prepare,
    Undo,
}

/// The steps that are under way.
#[derive(Debug, Default)]
struct Steps {
    tasks: JoinSet<()>,
    /// Of which workflow a task is.
    of: HashMap<Id, WorkflowId>,
    busy: HashSet<WorkflowId>,
    /// To be looked at again when the present step is over.
    again: HashSet<WorkflowId>,
}

impl Reconciler {
    /// A reconciler of `workflows`, whose `logs` go with them, and which `mirror` follows; it keeps `queues`, and asks for
    /// power jobs over `power`.
    pub fn new(
        workflows: Workflows,
        logs: Logs,
        mirror: Mirror<WorkflowKind>,
        queues: Arc<Queues>,
        pulses: Arc<Pulses>,
        power: Channel,
    ) -> Self {
        Self { workflows, logs, mirror, queues, pulses, bmcs: Bmcs::new(power) }
    }

    /// Works until `stop`. Steps under way are dropped then: whoever runs next finds what they left.
    pub async fn run(self, stop: CancellationToken) {
        let mut steps = Steps::default();
        let work = async { tokio::join!(self.follow(&mut steps), self.retire()) };
        stop.run_until_cancelled(work).await;
        steps.tasks.shutdown().await;
    }

    async fn follow(&self, steps: &mut Steps) {
        let mut watcher = self.mirror.watch();
        loop {
            let due = self.queues.next_deadline();
            let ids = tokio::select! {
                told = watcher.next() => match told {
                    Ok(event) => self.note(event),
                    Err(TooSlow) => {
                        watcher = self.mirror.watch();
                        Vec::new()
                    }
                },
                () = until(due) => self.queues.take_due(SystemTime::now()),
                () = tokio::time::sleep(LOOK) => Vec::new(),
                Some(ended) = steps.tasks.join_next_with_id() => steps.ended(ended),
            };
            ids.into_iter().for_each(|id| steps.begin(self, id));
        }
    }

    /// Keeps the queues. Answers who has to be looked at.
    fn note(&self, event: WatchEvent<pb::Workflow>) -> Vec<WorkflowId> {
        match event {
            WatchEvent::Put(record) => {
                if record::standing(&record) == Standing::Over {
                    self.pulses.forget(&record.id);
                }
                self.queues.put(&record)
            }
            WatchEvent::Deleted(id) => self.queues.delete(&id),
            WatchEvent::Synced => {
                self.queues.set_synced();
                Vec::new()
            }
        }
    }

    /// One step of one workflow, until it is done.
    async fn work(self, id: WorkflowId) {
        // Turns are known when everything is.
        self.queues.ready().await;
        let mut pause = PAUSE;
        while let Err(error) = self.step(&id).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a step failed; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    async fn step(&self, id: &WorkflowId) -> Result<(), Error> {
        let record = match self.workflows.get(&id.0).await {
            Err(Error::Records(records::Error::Missing { .. })) => return Ok(()),
            found => found?,
        };
        let workflow = record::read(&record)?;
        let turn = self.queues.turn(id) == Some(Turn::Now);
        let event = match next(&workflow, turn, SystemTime::now()) {
            Step::Nothing => return Ok(()),
            Step::Happens(event) => event,
            Step::Prepare => self.in_time(&workflow, prepare::prepare(self, &record)).await,
            Step::Undo => self.in_time(&workflow, undo::undo(&self.bmcs, &record)).await,
        };
        tracing::info!(?event, "workflow");
        match self.workflows.apply(&id.0, &event, |_| {}).await {
            // Whatever came between, the change that did it is looked at on its own.
            Ok(_) | Err(Error::Held(_) | Error::Refused(_)) => Ok(()),
            Err(Error::Records(records::Error::Missing { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What `doing` brings about, or time does.
    async fn in_time(
        &self,
        workflow: &lifecycle::Workflow,
        doing: impl Future<Output = Event>,
    ) -> Event {
        tokio::select! {
            event = doing => event,
            () = until(workflow.deadline()) => Event::Tick,
        }
    }
}

impl Steps {
    fn begin(&mut self, reconciler: &Reconciler, id: WorkflowId) {
        if !self.busy.insert(id.clone()) {
            self.again.insert(id);
            return;
        }
        let span = tracing::info_span!("reconcile", workflow.id = %id);
        let task = self.tasks.spawn(reconciler.clone().work(id.clone()).instrument(span));
        self.of.insert(task.id(), id);
    }

    /// Answers who has to be looked at again.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) -> Vec<WorkflowId> {
        let task = match ended {
            Ok((task, ())) => task,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a step broke off");
                error.id()
            }
        };
        let Some(id) = self.of.remove(&task) else { return Vec::new() };
        self.busy.remove(&id);
        self.again.take(&id).into_iter().collect()
    }
}

/// What `workflow` asks for now, where `turn` says whether it may have its machine.
fn next(workflow: &lifecycle::Workflow, turn: bool, now: SystemTime) -> Step {
    if workflow.deadline().is_some_and(|deadline| deadline <= now) {
        return Step::Happens(Event::Tick);
    }
    match workflow.state {
        State::Pending { prepared: false } if turn => Step::Happens(Event::Turn),
        State::Preparing { .. } => Step::Prepare,
        State::Post { .. } => Step::Undo,
        State::Pending { .. } | State::Running { .. } | State::Ended { .. } => Step::Nothing,
    }
}
