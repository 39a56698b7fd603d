//! The desired stack of a node: brings its containers to the node, and keeps them running.
//!
//! ```text
//! DesiredStack ─▶ plan: the next step, from record and states ─▶ Node::call ─▶ record ─▶ plan …
//!                  │ nothing left to do: RUNNING                  │ error: FAILED, and again after a delay
//!                  ▼                                              ▼
//!            observation: to the control plane, whenever it changes
//! ```
//!
//! - `plan`: the next step as a value; no I/O. `record`: what was made of a stack, in a file of the agent.
//!
//! The record has the digests of the containers' definitions, so that a new version replaces only what it changed. It is written before a
//! container is created, with the id of the call: after a crash, the node's own journal says what came of that call. Without a control plane
//! the containers stay, and those that end are started again.

mod plan;
mod record;
#[cfg(test)]
mod tests;

use std::time::Duration;

use machine::journal::{self, Journal};
use runtime::retry::Backoff;
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{Call, DeleteContainer, SetContainerState};
use tinwright::node::v1::image_result::Result as CallResult;
use tinwright::node::v1::{
    Container, ContainerStatus, DesiredStack, ImageCall, ImageResult, NodeObservation, NodeState,
};
use tokio::sync::watch;
use uuid::Uuid;

use self::plan::{StackStep, next_step};
use self::record::{STACK, StackContainer, StackRecord, digest};
use crate::Node;

/// The delays after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));
/// The most containers in an observation.
const MAX_OBSERVED: usize = 256;
/// The longest text of a failure, in bytes.
const MAX_FAILURE_BYTES: usize = 512;

/// Brings the desired stack to a node.
#[derive(Debug)]
pub struct StackKeeper {
    node: Node,
    journal: Journal,
    record: StackRecord,
    desired: watch::Receiver<Option<DesiredStack>>,
    observed: watch::Sender<NodeObservation>,
    backoff: Backoff,
}

/// The ends of a [`StackKeeper`] for the streams of the control plane.
#[derive(Clone, Debug)]
pub struct StackPort {
    desired: watch::Sender<Option<DesiredStack>>,
    observed: watch::Receiver<NodeObservation>,
}

impl StackPort {
    /// Sets the desired stack, unless a later assignment was set before.
    pub fn set_desired(&self, stack: DesiredStack) {
        self.desired.send_if_modified(|current| {
            let is_newer = current.as_ref().is_none_or(|it| it.assignment < stack.assignment);
            if is_newer {
                *current = Some(stack);
            }
            is_newer
        });
    }

    /// Returns the observations of the node. The present one counts as new.
    pub fn observations(&self) -> watch::Receiver<NodeObservation> {
        let mut observed = self.observed.clone();
        observed.mark_changed();
        observed
    }
}

/// A step failed. The text is for people, and has no secret.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Record(#[from] journal::Error),
}

impl StackKeeper {
    /// Reads what was made of a stack before from `journal`.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub async fn open(node: Node, journal: Journal) -> Result<(Self, StackPort), journal::Error> {
        let mut record = journal.read::<StackRecord>(STACK).await?.unwrap_or_default();
        record.complete(|call_id| created(node.result(call_id)?).ok().flatten());
        let (set_desired, desired) = watch::channel(None);
        let (observed, observations) = watch::channel(NodeObservation::default());
        let port = StackPort { desired: set_desired, observed: observations };
        Ok((Self { node, journal, record, desired, observed, backoff: BACKOFF }, port))
    }

    /// Brings each desired stack to the node, until the future is dropped.
    pub async fn run(mut self) {
        let mut changes = self.node.changes();
        loop {
            changes.mark_unchanged();
            let desired = self.desired.borrow_and_update().clone();
            let delay = match self.advance(desired.as_ref()).await {
                Ok(state) => {
                    if state == NodeState::Running {
                        self.backoff.reset();
                    }
                    self.observe(state, String::new());
                    None
                }
                Err(error) => {
                    let failure = cut(&error.to_string());
                    tracing::warn!(stack = self.record.stack_name, failure, "stack not applied");
                    self.observe(NodeState::Failed, failure);
                    Some(self.backoff.next_delay())
                }
            };
            let retry = async {
                match delay {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok(()) = self.desired.changed() => self.backoff.reset(),
                // What a failure left behind changes too: only the delay ends it.
                _ = changes.changed(), if delay.is_none() => {}
                () = retry => {}
            }
        }
    }

    /// Makes steps until none is left, or one has to wait for the node. Returns the state of the stack.
    async fn advance(&mut self, desired: Option<&DesiredStack>) -> Result<NodeState, StepError> {
        loop {
            let states = self.states();
            match next_step(&self.record, desired, |id| {
                states.iter().find(|(it, _)| *it == id).map(|(_, state)| *state)
            }) {
                StackStep::Rest(state) => return Ok(state),
                StackStep::Begin(stack) => {
                    tracing::info!(
                        stack = stack.stack_name,
                        version = stack.stack_version,
                        assignment = stack.assignment,
                        "applying stack"
                    );
                    self.record.begin(stack);
                    self.store().await?;
                    self.observe(NodeState::Applying, String::new());
                }
                StackStep::Forget(name) => {
                    self.record.containers.retain(|it| it.name != name);
                    self.store().await?;
                }
                StackStep::Stop(id) => self.set_state(id, State::Exited).await?,
                StackStep::Delete { name, id } => self.delete(&name, id).await?,
                StackStep::Start { name, id, ended } => self.start_again(&name, id, ended).await?,
                StackStep::Create(container) => {
                    let call_id = format!("stack-{}", Uuid::new_v4());
                    let (name, digest) = (container.name.clone(), digest(container));
                    let made = StackContainer { name, digest, call_id: call_id.clone(), id: None };
                    self.record.containers.push(made);
                    self.store().await?;
                    self.create(container, &call_id).await?;
                }
            }
        }
    }

    /// Creates and starts a container of the record.
    async fn create(&mut self, container: &Container, call_id: &str) -> Result<(), StepError> {
        let name = container.name.clone();
        let request = Container { state: State::Running.into(), ..container.clone() };
        let created = self.call(Some(call_id), Call::CreateContainer(request)).await;
        match created {
            Ok(Some(created)) => {
                let of_record = self.record.containers.iter_mut().find(|it| it.name == name);
                if let Some(of_record) = of_record {
                    of_record.id = Some(created.id);
                }
                self.store().await
            }
            Ok(None) => Err(StepError::Failed(format!("{name}: the node created nothing"))),
            Err(cause) => {
                self.record.containers.retain(|it| it.name != name);
                self.store().await?;
                Err(StepError::Failed(format!("{name}: {cause}")))
            }
        }
    }

    /// Starts a container that ended by itself. The failure is reported first.
    async fn start_again(&mut self, name: &str, id: i64, ended: State) -> Result<(), StepError> {
        if self.backoff.failures() == 0 {
            let state = ended.as_str_name().trim_start_matches("STATE_").to_lowercase();
            return Err(StepError::Failed(format!("{name}: it is {state}, and is started again")));
        }
        self.set_state(id, State::Running).await
    }

    async fn set_state(&mut self, id: i64, state: State) -> Result<(), StepError> {
        let set = SetContainerState { id: Some(id), name: None, state: state.into() };
        let result = self.call(None, Call::SetContainerState(set)).await;
        result.map(drop).map_err(|cause| StepError::Failed(format!("container {id}: {cause}")))
    }

    async fn delete(&mut self, name: &str, id: i64) -> Result<(), StepError> {
        let delete = DeleteContainer { id: Some(id), name: None, force: true };
        let result = self.call(None, Call::DeleteContainer(delete)).await;
        result.map_err(|cause| StepError::Failed(format!("{name}: {cause}")))?;
        self.record.containers.retain(|it| it.name != name);
        self.store().await
    }

    /// Makes a call. Returns its container, or the text of its error.
    async fn call(&self, call_id: Option<&str>, call: Call) -> Result<Option<Container>, String> {
        created(self.node.call(call_id, ImageCall { call: Some(call) }).await)
    }

    async fn store(&self) -> Result<(), StepError> {
        Ok(self.journal.write(STACK, &self.record).await?)
    }

    fn states(&self) -> Vec<(i64, State)> {
        let containers = self.node.snapshot().containers;
        containers.iter().map(|container| (container.id, container.state())).collect()
    }

    /// Publishes the state of the stack, and the containers of the node, if they changed.
    fn observe(&self, state: NodeState, failure: String) {
        let record = &self.record;
        let of_stack = |id| record.containers.iter().any(|it| it.id == Some(id));
        let status = |container: Container| ContainerStatus {
            id: container.id,
            state: container.state,
            of_stack: of_stack(container.id),
            name: container.name,
        };
        let containers = self.node.snapshot().containers;
        let observation = NodeObservation {
            assignment: record.assignment,
            stack_id: record.stack_id.clone(),
            stack_version: record.stack_version,
            state: state.into(),
            failure,
            containers: containers.into_iter().take(MAX_OBSERVED).map(status).collect(),
        };
        self.observed.send_if_modified(|current| {
            let is_new = *current != observation;
            if is_new {
                *current = observation;
            }
            is_new
        });
    }
}

/// Returns the container in `result`, or the text of its error.
fn created(result: ImageResult) -> Result<Option<Container>, String> {
    match result.result {
        Some(CallResult::Container(container)) => Ok(Some(container)),
        Some(CallResult::Error(error)) => Err(error.message),
        Some(
            CallResult::Attachments(_)
            | CallResult::Attachment(_)
            | CallResult::Mounts(_)
            | CallResult::Mount(_)
            | CallResult::Containers(_),
        )
        | None => Ok(None),
    }
}

/// Returns the first line of `text`, cut to [`MAX_FAILURE_BYTES`].
fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line[..line.floor_char_boundary(MAX_FAILURE_BYTES)].to_owned()
}
