//! The progress of workflows apart from their workers: turns, preparation, post, deadlines, and garbage collection.
//!
//! One loop follows the records, feeds the queues in memory, and starts a task for each workflow that needs one, never two
//! for the same workflow. A task reads the workflow again and does what its state requires, so it may be repeated, and
//! aborted at any point: the next one continues from the stored state.

mod bmc;
mod garbage_collect;
mod post;
mod prepare;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::clock::Clock;
use runtime::retry::Backoff;
use runtime::work_queue::{Outcome, WorkQueue};
use store::mirror::{Mirror, TooSlow};
use store::records;
use tinwright::WorkflowId;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::Instrument as _;

use self::bmc::BmcClient;
use crate::dispatch::sleep_until;
use crate::lifecycle::{self, Event, State};
use crate::logs::Logs;
use crate::progress::ProgressCache;
use crate::queue::MachineQueues;
use crate::record;
use crate::turn::{QueueState, Turn};
use crate::workflows::{Error, WorkflowKind, Workflows};

/// The pauses before a failed task is retried.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// Tasks wait for BMCs most of the time, so their number is not limited.
const MAX_TASKS: usize = usize::MAX;
/// The time after which deadlines are compared with the clock again, which may have been set.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Reconciles workflows.
#[derive(Clone, Debug)]
pub struct Reconciler {
    workflows: Workflows,
    logs: Logs,
    mirror: Mirror<WorkflowKind>,
    queues: Arc<MachineQueues>,
    progress: Arc<ProgressCache>,
    bmcs: BmcClient,
    clock: Clock,
}

/// The next step of a workflow.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    Nothing,
    Apply(Event),
    Prepare,
    Post,
}

impl Reconciler {
    /// A reconciler that follows `workflows` by `mirror`, feeds `queues`, and creates power jobs over `power`.
    pub fn new(
        workflows: Workflows,
        logs: Logs,
        mirror: Mirror<WorkflowKind>,
        queues: Arc<MachineQueues>,
        progress: Arc<ProgressCache>,
        power: Channel,
        clock: Clock,
    ) -> Self {
        Self { workflows, logs, mirror, queues, progress, bmcs: BmcClient::new(power), clock }
    }

    /// Runs until `stop`. Running tasks are aborted then: the next start continues from the stored state.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = WorkQueue::new(RETRY_BACKOFF, MAX_TASKS);
        let work = async { tokio::join!(self.follow(&mut tasks), self.collect_garbage()) };
        stop.run_until_cancelled(work).await;
        tasks.abort().await;
    }

    async fn follow(&self, tasks: &mut WorkQueue<WorkflowId>) {
        let mut watcher = self.mirror.watch();
        loop {
            let deadline = self.queues.next_deadline();
            let ids = tokio::select! {
                event = watcher.next() => match event {
                    Ok(event) => self.update_queues(event),
                    Err(TooSlow) => {
                        watcher = self.mirror.watch();
                        Vec::new()
                    }
                },
                () = sleep_until(deadline, &self.clock) => self.queues.take_due(self.clock.wall()),
                () = tokio::time::sleep(CLOCK_CHECK_INTERVAL) => Vec::new(),
                () = tasks.drive(|id| self.clone().reconcile(id)) => Vec::new(),
            };
            ids.into_iter().for_each(|id| tasks.add(id));
        }
    }

    /// Updates the queues. Returns the workflows to reconcile.
    fn update_queues(&self, event: WatchEvent<pb::Workflow>) -> Vec<WorkflowId> {
        match event {
            WatchEvent::Put(record) => {
                if record::queue_state(&record) == QueueState::Ended {
                    self.progress.remove(&record.id);
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

    async fn reconcile(self, id: WorkflowId) -> Outcome {
        // Turns are known only when the queues are complete.
        self.queues.ready().await;
        let span = tracing::info_span!("reconcile", workflow.id = %id);
        match self.step(id).instrument(span.clone()).await {
            Ok(()) => Outcome::Done,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                span.in_scope(|| tracing::warn!(error, "reconciliation failed"));
                Outcome::Failed
            }
        }
    }

    async fn step(&self, id: WorkflowId) -> Result<(), Error> {
        let record = match self.workflows.get(id).await {
            Err(Error::Records(records::Error::Missing { .. })) => return Ok(()),
            found => found?,
        };
        let workflow = record::read(&record)?;
        let turn = self.queues.turn(id) == Some(Turn::Now);
        let event = match next_step(&workflow, turn, self.clock.wall()) {
            NextStep::Nothing => return Ok(()),
            NextStep::Apply(event) => event,
            NextStep::Prepare => {
                self.until_deadline(&workflow, prepare::prepare(self, &record)).await
            }
            NextStep::Post => self.until_deadline(&workflow, post::post(&self.bmcs, &record)).await,
        };
        tracing::info!(?event, "workflow event");
        match self.workflows.apply(id, &event).await {
            // The change that came first is reconciled on its own.
            Ok(_) | Err(Error::MachineHeld(_) | Error::Refused(_)) => Ok(()),
            Err(Error::Records(records::Error::Missing { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for the event of `step`, until the workflow's deadline.
    async fn until_deadline(
        &self,
        workflow: &lifecycle::Workflow,
        step: impl Future<Output = Event>,
    ) -> Event {
        tokio::select! {
            event = step => event,
            () = sleep_until(workflow.deadline(), &self.clock) => Event::Tick,
        }
    }
}

/// Returns the next step of `workflow`. `turn` is true if it may begin on its machine.
fn next_step(workflow: &lifecycle::Workflow, turn: bool, now: SystemTime) -> NextStep {
    if workflow.deadline().is_some_and(|deadline| deadline <= now) {
        return NextStep::Apply(Event::Tick);
    }
    match workflow.state {
        State::Pending { prepared: false } if turn => NextStep::Apply(Event::BeginTurn),
        State::Preparing { .. } => NextStep::Prepare,
        State::Post { .. } => NextStep::Post,
        State::Pending { .. } | State::Running { .. } | State::Ended { .. } => NextStep::Nothing,
    }
}
