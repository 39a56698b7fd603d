//! The loop that decides when each instance is reconciled.

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
use tokio_util::sync::CancellationToken;

use super::Reconciler;
use crate::instances::InstanceKind;
use crate::state::State;

/// Instances that are reconciled at the same time.
const MAX_TASKS: usize = 32;
/// The delays after failed steps.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Workflows that ended or were deleted.
#[derive(Debug)]
pub(super) enum EndedWorkflows {
    /// The workflow with this id.
    One(String),
    /// Possibly any: the feed was read from the beginning.
    Any,
}

impl EndedWorkflows {
    /// Returns what `event` says about ended workflows, if anything.
    pub(super) fn from_event(event: FeedEvent<Workflow>) -> Option<Self> {
        match event {
            FeedEvent::Snapshot(_) => Some(Self::Any),
            FeedEvent::Put(workflow) => workflow.is_terminal().then_some(Self::One(workflow.id)),
            FeedEvent::Deleted(id) => Some(Self::One(id)),
            FeedEvent::Disconnected => None,
        }
    }
}

/// The loop's state.
pub(super) struct Controller {
    reconciler: Reconciler,
    queue: WorkQueue<String>,
    awaited: AwaitedWorkflows,
    watcher: Watcher<InstanceKind>,
    mirror: Mirror<InstanceKind>,
    ended: mpsc::UnboundedReceiver<EndedWorkflows>,
}

impl Controller {
    /// Follows the instances in `mirror` and the workflows in `ended`.
    pub(super) fn new(
        reconciler: Reconciler,
        mirror: Mirror<InstanceKind>,
        ended: mpsc::UnboundedReceiver<EndedWorkflows>,
    ) -> Self {
        let queue = WorkQueue::new(BACKOFF, MAX_TASKS);
        let (watcher, awaited) = (mirror.watch(), AwaitedWorkflows::default());
        Self { reconciler, queue, awaited, watcher, mirror, ended }
    }

    /// Runs until `stop`, then waits for the steps that are running.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let reconciler = self.reconciler.clone();
        let reconcile = move |id: String| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&id).await }
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.watcher.next() => match event {
                    Ok(event) => self.handle_instance(event),
                    Err(_) => self.watcher = self.mirror.watch(),
                },
                Some(ended) = self.ended.recv() => self.handle_ended(&ended),
                () = self.queue.drive(&reconcile) => {}
            }
        }
        self.queue.drain().await;
    }

    fn handle_instance(&mut self, event: WatchEvent<Instance>) {
        match event {
            WatchEvent::Put(instance) => {
                if State::try_from(&instance).is_ok_and(State::needs_work) {
                    self.queue.add(instance.id.clone());
                }
                self.awaited.set(instance.id, instance.workflow_id);
            }
            WatchEvent::Deleted(id) => self.awaited.set(id, String::new()),
            WatchEvent::Synced => {}
        }
    }

    fn handle_ended(&mut self, ended: &EndedWorkflows) {
        match ended {
            EndedWorkflows::One(workflow) => {
                if let Some(id) = self.awaited.instances.get(workflow) {
                    self.queue.add(id.clone());
                }
            }
            EndedWorkflows::Any => {
                self.awaited.workflows.keys().for_each(|id| self.queue.add(id.clone()));
            }
        }
    }
}

/// The workflow that each instance waits for, by instance and by workflow.
#[derive(Debug, Default)]
struct AwaitedWorkflows {
    workflows: HashMap<String, String>,
    instances: HashMap<String, String>,
}

impl AwaitedWorkflows {
    /// Sets the only workflow that `instance` waits for; empty for none.
    fn set(&mut self, instance: String, workflow: String) {
        if let Some(old) = self.workflows.remove(&instance) {
            self.instances.remove(&old);
        }
        if !workflow.is_empty() {
            self.instances.insert(workflow.clone(), instance.clone());
            self.workflows.insert(instance, workflow);
        }
    }
}
