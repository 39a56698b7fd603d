//! The next step towards a stack.

use tinwright::node::v1::container::State;
use tinwright::node::v1::{Container, DesiredStack, NodeState};

use super::record::{StackContainer, StackRecord, digest};

/// A step. After each one the next is planned anew.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StackStep<'a> {
    /// The assignment is new.
    Begin(&'a DesiredStack),
    /// The container is gone: somebody deleted it.
    Forget(String),
    /// A container that is not desired any more runs.
    Stop(i64),
    /// It has ended.
    Delete { name: String, id: i64 },
    /// A desired container is missing.
    Create(&'a Container),
    /// A desired container ended.
    Start { name: String, id: i64, ended: State },
    /// Nothing is left to do, or the node has to change first.
    Rest(NodeState),
}

/// Returns the next step, for containers in the states that `state_of` returns by their ids; none if the node has no such container.
///
/// Without a desired stack, since no server was reached yet, what was made before is kept. What is not desired is removed before anything is
/// created, because a new container may have the name or the devices of an old one.
pub(super) fn next_step<'a>(
    record: &StackRecord,
    desired: Option<&'a DesiredStack>,
    state_of: impl Fn(i64) -> Option<State>,
) -> StackStep<'a> {
    if let Some(stack) = desired.filter(|stack| stack.assignment > record.assignment) {
        return StackStep::Begin(stack);
    }
    // A server that does not know the latest assignment yet.
    let desired = desired.filter(|stack| stack.assignment == record.assignment);
    let definition = |made: &StackContainer| {
        desired?.containers.iter().find(|it| it.name == made.name && digest(it) == made.digest)
    };
    let mut waits = false;
    for made in &record.containers {
        let is_kept = desired.is_none() || definition(made).is_some();
        match (made.id.and_then(|id| Some((id, state_of(id)?))), is_kept) {
            (None, _) => return StackStep::Forget(made.name.clone()),
            (Some((id, State::Running)), false) => return StackStep::Stop(id),
            (Some((_, State::Stopping)), _) => waits = true,
            (Some((id, _)), false) => return StackStep::Delete { name: made.name.clone(), id },
            (Some(_), true) => {}
        }
    }
    if waits {
        return StackStep::Rest(NodeState::Applying);
    }
    let is_made =
        |container: &&Container| record.containers.iter().any(|made| made.name == container.name);
    let mut containers = desired.into_iter().flat_map(|stack| &stack.containers);
    if let Some(missing) = containers.find(|container| !is_made(container)) {
        return StackStep::Create(missing);
    }
    let states = record.containers.iter().filter_map(|made| Some((made, made.id?)));
    for (made, id) in states {
        match state_of(id) {
            Some(State::Running) => {}
            Some(ended @ (State::Created | State::Exited | State::Dead)) => {
                return StackStep::Start { name: made.name.clone(), id, ended };
            }
            Some(State::Unspecified | State::Stopping | State::Paused) | None => {
                return StackStep::Rest(NodeState::Applying);
            }
        }
    }
    let is_assigned = !record.stack_id.is_empty() || !record.containers.is_empty();
    StackStep::Rest(if is_assigned { NodeState::Running } else { NodeState::Unassigned })
}
