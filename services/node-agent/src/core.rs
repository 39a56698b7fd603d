//! State shared by all operations of a node: objects, journal, kernel, settings and time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use runtime::clock::Clock;
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::CallError;
use crate::journal::{Change, Journal};
use crate::kernel::Kernel;
use crate::objects::{Event, NodeObject, Registry};
use crate::options::NodeOptions;
use crate::results::Results;

/// State shared by all operations.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: NodeOptions,
    pub(crate) kernel: Kernel,
    pub(crate) clock: Clock,
    /// The name of the journal, with which marks begin.
    pub(crate) name: String,
    pub(crate) results: Mutex<Results>,
    /// Wakes the collector.
    pub(crate) collect: Notify,
    /// All tasks of the node.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    journal: Journal,
    registry: Mutex<Registry>,
    changes: watch::Sender<u64>,
}

impl Core {
    pub(crate) fn new(
        parts: (NodeOptions, Kernel, Clock),
        (journal, name): (Journal, String),
        registry: Registry,
        results: Results,
    ) -> Self {
        let (options, kernel, clock) = parts;
        Self {
            options,
            kernel,
            clock,
            name,
            results: Mutex::new(results),
            collect: Notify::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            journal,
            registry: Mutex::new(registry),
            changes: watch::Sender::new(0),
        }
    }

    /// Returns what `read` finds in the objects.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        read(&self.registry())
    }

    /// Changes the objects, and notifies observers.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let result = change(&mut self.registry());
        self.changes.send_modify(|number| *number += 1);
        result
    }

    /// Changes the object `id`, if it is there.
    pub(crate) fn update_object<T>(
        &self,
        id: i64,
        change: impl FnOnce(&mut NodeObject) -> T,
    ) -> Option<T> {
        self.update(|registry| registry.get_mut(id).map(change))
    }

    /// Applies `event` to the object `id`. An impossible event is a defect of this program: it changes nothing and is logged.
    pub(crate) fn apply(&self, id: i64, event: Event) {
        if let Some(Err(error)) = self.update_object(id, |object| object.apply(event)) {
            tracing::error!(object.id = id, %error, "a transition was refused");
        }
    }

    /// Returns a copy of the object `id`.
    pub(crate) fn object(&self, id: i64) -> Result<NodeObject, CallError> {
        let gone = || CallError::not_found(format!("object {id}"));
        self.read(|registry| registry.get(id).cloned()).ok_or_else(gone)
    }

    /// Waits for the lock of the object `id`. The object may be gone, or different, afterwards.
    pub(crate) async fn lock(&self, id: i64) -> Result<OwnedMutexGuard<()>, CallError> {
        let lock = self.object(id)?.lock;
        Ok(lock.lock_owned().await)
    }

    /// Waits until `condition` holds for the objects.
    pub(crate) async fn wait_until(&self, mut condition: impl FnMut(&Registry) -> bool) {
        let mut changes = self.changes.subscribe();
        while !self.read(&mut condition) {
            // The sender lives as long as `self`.
            let _changed = changes.changed().await;
        }
    }

    /// Returns a receiver that sees each change of an object.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Writes `changes` to the journal. They are durable when this returns.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<(), CallError> {
        self.journal.append(changes).await.map_err(|error| {
            tracing::error!(%error, "journal");
            CallError::internal(error.to_string())
        })
    }

    /// Starts a task of the node.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Returns the deadline of a step that no call waits for.
    pub(crate) fn step_deadline(&self) -> Instant {
        self.now() + self.options.call_timeout
    }

    /// Returns the monotonic time. It is tokio's, also beside a manual clock: that sets the wall time only.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_std(Clock::system().monotonic())
    }

    /// Returns the wall time in seconds since 1970.
    pub(crate) fn unix_seconds(&self) -> u64 {
        let since = self.clock.wall().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs()
    }

    pub(crate) fn lock_results(&self) -> MutexGuard<'_, Results> {
        // A panic while it was locked leaves it whole: each change is one call.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // As above.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time before the attempt that follows `attempts` failed ones: 1, 2, 4, … 60 s.
pub(crate) fn backoff(attempts: u32) -> Duration {
    const MAX_BACKOFF: Duration = Duration::from_secs(60);
    let exponent = attempts.saturating_sub(1).min(6);
    Duration::from_secs(1 << exponent).min(MAX_BACKOFF)
}
