//! The loop that decides when each instance is reconciled.

use std::collections::HashMap;
use std::time::Duration;

use runtime::retry::Backoff;
use runtime::work_queue::WorkQueue;
use store::mirror::{Mirror, Watcher};
use tinwright::instance::v1::Instance;
use tinwright::watch::WatchEvent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Reconciler;
use crate::instances::InstanceKind;
use crate::state::State;

/// Instances that are reconciled at the same time.
const MAX_TASKS: usize = 32;
/// The delays after failed steps.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// The loop's state.
pub(super) struct Controller {
    reconciler: Reconciler,
    queue: WorkQueue<String>,
    /// The workflow that each instance waits for, by the instance's id.
    awaited: HashMap<String, String>,
    watcher: Watcher<InstanceKind>,
    mirror: Mirror<InstanceKind>,
    /// The ids of workflows that ended or were deleted; none if any may have.
    ended: mpsc::UnboundedReceiver<Option<String>>,
}

impl Controller {
    /// Follows the instances in `mirror` and the workflows in `ended`.
    pub(super) fn new(
        reconciler: Reconciler,
        mirror: Mirror<InstanceKind>,
        ended: mpsc::UnboundedReceiver<Option<String>>,
    ) -> Self {
        let queue = WorkQueue::new(BACKOFF, MAX_TASKS);
        let (watcher, awaited) = (mirror.watch(), HashMap::new());
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
                Some(ended) = self.ended.recv() => self.handle_ended(ended),
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

    /// Adds the instances that wait for the workflow `ended`, or for any.
    fn handle_ended(&mut self, ended: Option<String>) {
        for (id, workflow) in &self.awaited {
            if ended.as_ref().is_none_or(|ended| ended == workflow) {
                self.queue.add(id.clone());
            }
        }
    }
}
