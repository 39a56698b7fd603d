//! The loop that decides when each instance is reconciled, and when workflows are compared with their instances.

use std::collections::HashMap;
use std::time::Duration;

use runtime::feed::FeedEvent;
use runtime::retry::Backoff;
use runtime::work_queue::WorkQueue;
use store::mirror::{Mirror, Watcher};
use tinwright::instance::v1::Instance;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1::Workflow;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Reconciler;
use super::orphans::{CreatedObject, Sweep};
use crate::instances::InstanceKind;
use crate::state::State;

/// Instances that are reconciled at the same time.
const MAX_TASKS: usize = 32;
/// Suspected orphans that are compared with their instances at the same time.
const MAX_SWEEP_TASKS: usize = 4;
/// The interval between two rounds of the sweep; longer than a step.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// The delays after failed steps.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// A change in the workflows.
#[derive(Debug)]
pub(super) enum WorkflowChange {
    /// The running workflows that steps created. Every other one may have ended.
    Snapshot(Vec<CreatedObject>),
    /// A workflow that has not ended.
    Live {
        /// Its id.
        id: String,
        /// What it waits for, if it says so.
        reason: String,
        /// None if it is ending, or no step created it.
        created: Option<CreatedObject>,
    },
    /// The id of a workflow that ended or was deleted.
    Ended(String),
}

impl WorkflowChange {
    /// Returns the change that `event` is, if any.
    pub(super) fn from_event(event: FeedEvent<Workflow>) -> Option<Self> {
        Some(match event {
            FeedEvent::Snapshot(all) => {
                Self::Snapshot(all.iter().filter_map(CreatedObject::from_running).collect())
            }
            FeedEvent::Put(workflow) if workflow.is_terminal() => Self::Ended(workflow.id),
            FeedEvent::Put(workflow) => {
                let created = CreatedObject::from_running(&workflow);
                Self::Live { id: workflow.id, reason: workflow.state_reason, created }
            }
            FeedEvent::Deleted(id) => Self::Ended(id),
            FeedEvent::Disconnected => return None,
        })
    }
}

/// The loop's state.
pub(super) struct Controller {
    reconciler: Reconciler,
    queue: WorkQueue<String>,
    sweep: Sweep,
    suspects: WorkQueue<CreatedObject>,
    /// The workflow that each instance waits for, by the instance's id.
    awaited: HashMap<String, String>,
    /// What each workflow waits for that has not ended and was changed, by its id.
    reasons: HashMap<String, String>,
    watcher: Watcher<InstanceKind>,
    mirror: Mirror<InstanceKind>,
    workflows: mpsc::UnboundedReceiver<WorkflowChange>,
}

impl Controller {
    /// Follows the instances in `mirror`, and `workflows`.
    pub(super) fn new(
        reconciler: Reconciler,
        mirror: Mirror<InstanceKind>,
        workflows: mpsc::UnboundedReceiver<WorkflowChange>,
    ) -> Self {
        let queue = WorkQueue::new(BACKOFF, MAX_TASKS);
        let suspects = WorkQueue::new(BACKOFF, MAX_SWEEP_TASKS);
        let (watcher, awaited, sweep) = (mirror.watch(), HashMap::new(), Sweep::default());
        let reasons = HashMap::new();
        Self { reconciler, queue, sweep, suspects, awaited, reasons, watcher, mirror, workflows }
    }

    /// Runs until `stop`, then waits for the steps that are running.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let reconciler = self.reconciler.clone();
        let reconcile = move |id: String| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&id).await }
        };
        let sweeper = self.reconciler.clone();
        let sweep = move |workflow: CreatedObject| {
            let sweeper = sweeper.clone();
            async move { sweeper.sweep(&workflow).await }
        };
        let mut rounds = tokio::time::interval(SWEEP_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.watcher.next() => match event {
                    Ok(event) => self.handle_instance(event),
                    Err(_) => self.watcher = self.mirror.watch(),
                },
                Some(change) = self.workflows.recv() => self.handle_workflow(change),
                _ = rounds.tick() => {
                    let suspects = self.sweep.round(&self.awaited);
                    suspects.into_iter().for_each(|workflow| self.suspects.add(workflow));
                }
                () = self.queue.drive(&reconcile) => {}
                () = self.suspects.drive(&sweep) => {}
            }
        }
        tokio::join!(self.queue.drain(), self.suspects.drain());
    }

    fn handle_instance(&mut self, event: WatchEvent<Instance>) {
        match event {
            WatchEvent::Put(instance) => {
                if State::try_from(&instance).is_ok_and(State::needs_work) {
                    self.queue.add(instance.id.clone());
                }
                if instance.workflow_id.is_empty() {
                    self.awaited.remove(&instance.id);
                } else {
                    self.awaited.insert(instance.id, instance.workflow_id);
                }
            }
            WatchEvent::Deleted(id) => {
                self.awaited.remove(&id);
            }
            WatchEvent::Synced => {}
        }
    }

    fn handle_workflow(&mut self, change: WorkflowChange) {
        match change {
            WorkflowChange::Snapshot(running) => {
                self.sweep.replace(running);
                self.reasons.clear();
                self.queue_waiting(None);
            }
            WorkflowChange::Live { id, reason, created } => {
                match created {
                    Some(workflow) => self.sweep.add(workflow),
                    None => self.sweep.remove(&id),
                }
                if self.reasons.insert(id.clone(), reason.clone()) != Some(reason) {
                    self.queue_waiting(Some(&id));
                }
            }
            WorkflowChange::Ended(id) => {
                self.sweep.remove(&id);
                self.reasons.remove(&id);
                self.queue_waiting(Some(&id));
            }
        }
    }

    /// Adds the instances that wait for the workflow `ended`, or for any.
    fn queue_waiting(&mut self, ended: Option<&String>) {
        for (id, workflow) in &self.awaited {
            if ended.is_none_or(|ended| ended == workflow) {
                self.queue.add(id.clone());
            }
        }
    }
}
