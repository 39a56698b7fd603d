//! One call that changes something: its deadline, its id and its result.
//!
//! ```text
//! Open ──claim──▶ Claimed: the operation writes its result, and the caller waits for it
//!   ╰───expire──▶ Expired: the caller is answered with an error, and the operation undoes its work
//! ```
//!
//! Operations run in tasks of their own: a caller that goes away, or whose time is over, does not stop them half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tinwright::node::v1::ImageResult;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument as _;

use crate::core::Core;
use crate::error::CallError;
use crate::journal::{CallRecord, Change};
use crate::results::Begun;

const OPEN: u8 = 0;
const CLAIMED: u8 = 1;
const EXPIRED: u8 = 2;

/// The longest wait for the result of a call that was claimed before its deadline.
const CLAIMED_TIMEOUT: Duration = Duration::from_secs(2);

/// A call that changes something.
#[derive(Debug)]
pub(crate) struct Call {
    id: Option<String>,
    /// The end of the call's time.
    pub(crate) deadline: Instant,
    state: AtomicU8,
}

impl Call {
    /// Returns the call's id, if it has one.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Takes the right to decide the result. False if the call has expired.
    pub(crate) fn claim(&self) -> bool {
        self.take(CLAIMED)
    }

    /// Writes `changes` together with the result of the call, unless the call has expired: then its result is another one.
    pub(crate) async fn conclude(
        &self,
        core: &Core,
        mut changes: Vec<Change>,
        result: &ImageResult,
    ) -> Result<(), CallError> {
        if let Some(call_id) = self.id().filter(|_| self.claim()) {
            changes.extend(result_changes(core, call_id, result));
        }
        match changes.is_empty() {
            true => Ok(()),
            false => core.commit(changes).await,
        }
    }

    fn expire(&self) -> bool {
        self.take(EXPIRED)
    }

    fn take(&self, state: u8) -> bool {
        let order = Ordering::SeqCst;
        match self.state.compare_exchange(OPEN, state, order, order) {
            Ok(_) => true,
            Err(taken) => taken == state,
        }
    }

    /// Reports that the time is over.
    pub(crate) fn check_time(&self) -> Result<(), CallError> {
        match self.state.load(Ordering::SeqCst) {
            EXPIRED => Err(expired()),
            _ => Ok(()),
        }
    }
}

/// The error of a call whose time is over.
pub(crate) fn expired() -> CallError {
    CallError::failed("the time of the call is over; its work is undone")
}

/// Runs `operation` as the call `call_id`, or returns the result that this call has already.
pub(crate) async fn run<F>(
    core: &Arc<Core>,
    call_id: Option<&str>,
    operation: impl FnOnce(Arc<Core>, Arc<Call>) -> F + Send + 'static,
) -> ImageResult
where
    F: Future<Output = Result<ImageResult, CallError>> + Send + 'static,
{
    let call_id = call_id.filter(|id| !id.is_empty());
    let sender = match call_id.map(|id| core.lock_results().begin(id)) {
        Some(Begun::Ended(result)) => return result,
        Some(Begun::Running(receiver)) => return received(receiver).await,
        Some(Begun::New(sender)) => sender,
        None => watch::channel(None).0,
    };
    let receiver = sender.subscribe();
    let call = Arc::new(Call {
        id: call_id.map(str::to_owned),
        deadline: core.step_deadline(),
        state: AtomicU8::new(OPEN),
    });
    let sender = Arc::new(sender);
    let operation = operation(core.clone(), call.clone());
    core.spawn(perform(core.clone(), call.clone(), operation, sender.clone()).in_current_span());
    // The caller may go away: the time of the call ends nevertheless.
    core.spawn(limit(core.clone(), call, sender).in_current_span());
    received(receiver).await
}

/// Returns the changes of the journal that add a result and drop old ones.
fn result_changes(core: &Core, call_id: &str, result: &ImageResult) -> Vec<Change> {
    let ended = core.unix_seconds();
    let evicted = core.lock_results().evict(ended);
    let record = CallRecord { call_id: call_id.to_owned(), result: Some(result.clone()), ended };
    evicted.into_iter().map(Change::RemoveResult).chain([Change::PutResult(record)]).collect()
}

/// Runs an operation to its end, and publishes its result.
async fn perform(
    core: Arc<Core>,
    call: Arc<Call>,
    operation: impl Future<Output = Result<ImageResult, CallError>> + Send + 'static,
    sender: Arc<watch::Sender<Option<ImageResult>>>,
) {
    // A task of its own, so that a panic is an error of this call.
    let result = match core.tasks.spawn(operation.in_current_span()).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => refused(&core, &call, error).await,
        Err(error) => refused(&core, &call, CallError::internal(error.to_string())).await,
    };
    publish(&core, &call, &sender, result);
}

/// Writes the result of a call that failed.
async fn refused(core: &Core, call: &Call, error: CallError) -> ImageResult {
    tracing::info!(%error, "call refused");
    let result = ImageResult::from(error);
    // If the journal cannot be written, that was logged, and the caller gets the error nevertheless.
    let _logged = call.conclude(core, Vec::new(), &result).await;
    result
}

/// Ends the time of a call.
async fn limit(core: Arc<Core>, call: Arc<Call>, sender: Arc<watch::Sender<Option<ImageResult>>>) {
    let mut published = sender.subscribe();
    let ended = |result: &Option<ImageResult>| result.is_some();
    if timeout_at(call.deadline, published.wait_for(ended)).await.is_ok() {
        return;
    }
    if call.expire() {
        tracing::warn!(timeout = ?core.options.call_timeout, "call expired");
        let result = ImageResult::from(expired());
        publish(&core, &call, &sender, result.clone());
        if let Some(call_id) = call.id() {
            let _logged = core.commit(result_changes(&core, call_id, &result)).await;
        }
    } else if timeout(CLAIMED_TIMEOUT, published.wait_for(ended)).await.is_err() {
        let error = CallError::internal("the result of the call could not be written in time");
        publish(&core, &call, &sender, error.into());
    }
}

/// Publishes the result of `call`, unless it has one.
fn publish(
    core: &Core,
    call: &Call,
    sender: &watch::Sender<Option<ImageResult>>,
    result: ImageResult,
) {
    sender.send_if_modified(|published| {
        if published.is_some() {
            return false;
        }
        if let Some(call_id) = call.id() {
            core.lock_results().end(call_id, &result, core.unix_seconds());
        }
        *published = Some(result);
        true
    });
}

/// Waits for the result of a call under way.
async fn received(mut receiver: watch::Receiver<Option<ImageResult>>) -> ImageResult {
    let result = receiver.wait_for(Option::is_some).await.map(|result| result.clone());
    let stopped = || CallError::internal("the node stops").into();
    result.ok().flatten().unwrap_or_else(stopped)
}
