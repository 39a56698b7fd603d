//! The progress of workflows apart from their workers: turns, preparation, post, deadlines, and garbage collection.
//!
//! One loop follows the records, feeds the queues in memory, and starts a task for each workflow that needs one, never two
//! for the same workflow. A task reads the workflow again and does what its state requires, so it may be repeated, and
//! aborted at any point: the next one continues from the stored state.
//!
//! While a machine is in maintenance, its workflows wait: no turn begins, no power job is created, and the time limits of
//! preparing, of post and of an awaited worker are extended.

mod bmc;
mod garbage_collect;
mod post;
mod prepare;

use std::sync::Arc;
use std::time::Duration;

use runtime::clock::Clock;
use runtime::retry::Backoff;
use runtime::work_queue::{Outcome, WorkQueue};
use store::mirror::{Mirror, TooSlow};
use store::records;
use tinwright::WorkflowId;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use self::bmc::BmcClient;
use crate::dispatch::sleep_until;
use crate::lifecycle::{self, Event, State};
use crate::logs::Logs;
use crate::machine_gate::{self, MachineGate, Permission};
use crate::power_off;
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
    /// The workflows in the store.
    pub workflows: Workflows,
    /// Their logs.
    pub logs: Logs,
    /// The workflows to follow.
    pub mirror: Mirror<WorkflowKind>,
    /// The machines' queues, which follow the mirror.
    pub queues: Arc<MachineQueues>,
    /// The latest progress.
    pub progress: Arc<ProgressCache>,
    /// Runs power jobs.
    pub bmcs: BmcClient,
    /// The machines on which steps wait.
    pub gate: MachineGate,
    /// The time.
    pub clock: Clock,
}

/// Logs an event before it is applied. Some return again and again.
fn log(event: &Event) {
    let text: &'static str = event.into();
    if *event == Event::Tick {
        tracing::debug!("{text}");
    } else if *event != Event::Suspend {
        tracing::info!(reason = event.failure(), "{text}");
    }
}

impl Reconciler {
    /// Runs until `stop`. Running tasks are aborted then: the next start continues from the stored state.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = WorkQueue::new(RETRY_BACKOFF, MAX_TASKS);
        let work =
            async { tokio::join!(self.follow(&mut tasks), Box::pin(self.collect_garbage())) };
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
                        self.queues.begin_again();
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
            WatchEvent::Synced => self.queues.set_synced(),
        }
    }

    async fn reconcile(self, id: WorkflowId) -> Outcome {
        // Turns are known only when the queues are complete.
        self.queues.ready().await;
        let machine = tracing::field::Empty;
        let span = tracing::info_span!("reconcile", workflow.id = %id, hardware.id = machine);
        match self.step(id).instrument(span.clone()).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                span.in_scope(|| tracing::warn!(error, "reconciliation failed"));
                Outcome::Failed
            }
        }
    }

    async fn step(&self, id: WorkflowId) -> Result<Outcome, Error> {
        let record = match self.workflows.get(id).await {
            Err(Error::Records(records::Error::Missing { .. })) => return Ok(Outcome::Done),
            found => found?,
        };
        tracing::Span::current().record("hardware.id", &record.hardware_id);
        let workflow = self.workflows.lifecycle(&record)?;
        let Some(event) = self.next_event(id, &record, &workflow).await? else {
            let is_polled = power_off::is_awaited(&record);
            return Ok(if is_polled {
                Outcome::After(power_off::POLL_INTERVAL)
            } else {
                Outcome::Done
            });
        };
        log(&event);
        match self.workflows.apply(id, &event).await {
            Ok(_) if event == Event::Suspend => Ok(Outcome::After(machine_gate::POLL_INTERVAL)),
            // The change that came first is reconciled on its own.
            Ok(_) | Err(Error::MachineHeld(_) | Error::Refused(_)) => Ok(Outcome::Done),
            Err(Error::Records(records::Error::Missing { .. })) => Ok(Outcome::Done),
            Err(error) => Err(error),
        }
    }

    /// Does what the state of a workflow requires, and returns the event that follows; none if there is nothing to do.
    async fn next_event(
        &self,
        id: WorkflowId,
        record: &pb::Workflow,
        workflow: &lifecycle::Workflow,
    ) -> Result<Option<Event>, Error> {
        let now = self.clock.wall();
        let begins = matches!(workflow.state, State::Pending { prepared: None })
            && self.queues.turn(id) == Some(Turn::Now);
        let touches_machine =
            begins || matches!(workflow.state, State::Preparing { .. } | State::Post { .. });
        if touches_machine || workflow.is_worker_overdue(now) {
            match self.gate.permission(&record.hardware_id).await.map_err(Error::hardware)? {
                Permission::Suspended(_) => return Ok(Some(Event::Suspend)),
                Permission::Gone if begins => return Ok(Some(Event::Cancel)),
                Permission::Granted | Permission::Gone => {}
            }
        }
        let is_due = workflow.deadline().is_some_and(|deadline| deadline <= now);
        Ok(match workflow.state {
            _ if is_due => Some(Event::Tick),
            State::Preparing { .. } => {
                let prepared = prepare::prepare(self, record, workflow.preparations);
                Some(self.until_deadline(workflow, prepared).await?)
            }
            State::Post { .. } => {
                let post = async { Ok(post::post(&self.bmcs, record).await) };
                Some(self.until_deadline(workflow, post).await?)
            }
            State::Running { .. } if power_off::is_awaited(record) => {
                self.bmcs.is_off(&record.hardware_id).await.then_some(Event::Booted)
            }
            State::HeldBack { .. }
            | State::Pending { .. }
            | State::Running { .. }
            | State::Ended { .. } => begins.then_some(Event::BeginTurn),
        })
    }

    /// Waits for the event of `step`, until the workflow's deadline.
    async fn until_deadline(
        &self,
        workflow: &lifecycle::Workflow,
        step: impl Future<Output = Result<Event, Error>>,
    ) -> Result<Event, Error> {
        tokio::select! {
            event = step => event,
            () = sleep_until(workflow.deadline(), &self.clock) => Ok(Event::Tick),
        }
    }
}
