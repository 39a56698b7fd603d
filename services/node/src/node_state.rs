//! Changes of a node's record as values; no I/O.

use std::time::SystemTime;

use tinwright::node::v1::{AgentHello, Node, NodeConnection, NodeObservation, NodeState, Stack};

/// The boots that a record remembers as replaced.
const MAX_REPLACED_BOOTS: usize = 8;
/// The containers of an observation.
const MAX_CONTAINERS: usize = 256;
/// The bytes of a failure, a name or another text of an agent.
const MAX_TEXT_BYTES: usize = 512;

/// A machine as its hardware record has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name; may be empty.
    pub name: String,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
}

/// A hello that is refused: another boot of the machine connected before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedHello {
    /// Its identity is of an earlier boot epoch.
    #[error("the identity is of an earlier boot epoch than one that connected before")]
    Epoch,
    /// Its identity is of the boot epoch of another boot: each boot of a node begins one.
    #[error("another boot of the machine connected with an identity of this boot epoch")]
    SameEpoch,
    /// Its boot was replaced.
    #[error("a later boot of the machine replaced this one")]
    Boot,
}

/// What a node shall have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The instance on the machine; empty if it has none with a stack.
    pub instance_id: String,
    /// The stack; empty for none.
    pub stack_id: String,
    /// Its version; 0 for none.
    pub version: i64,
    /// The rollout that assigns it; 0 if none does.
    pub rollout_number: i64,
    /// The reason for which there is no stack; empty if there is one, or none is desired.
    pub reason: String,
}

impl Assignment {
    /// A version of `stack` for the machine of the instance `instance_id`, by no rollout.
    pub fn new(instance_id: &str, stack: &Stack, version: i64) -> Self {
        Self {
            instance_id: instance_id.to_owned(),
            stack_id: stack.id.clone(),
            version,
            ..Self::default()
        }
    }
}

/// Returns the record of a machine without one.
pub fn new_node(id: &str, machine: &Machine, now: SystemTime) -> Node {
    let mut node = Node {
        id: id.to_owned(),
        create_time: Some(now.into()),
        update_time: Some(now.into()),
        ..Node::default()
    };
    node.set_state(NodeState::Unassigned);
    with_machine(node, machine)
}

/// Returns `node` with the name and the labels of `machine`.
pub fn with_machine(mut node: Node, machine: &Machine) -> Node {
    node.name.clone_from(&machine.name);
    node.labels.clone_from(&machine.labels);
    node
}

/// Returns `node` after the hello of its agent to the process `server`. Another boot than before replaces that: its streams and what it
/// observed no longer count.
pub fn connected(
    mut node: Node,
    hello: &AgentHello,
    boot_epoch: u64,
    server: &str,
    now: SystemTime,
) -> Result<Node, RefusedHello> {
    if boot_epoch < node.boot_epoch {
        return Err(RefusedHello::Epoch);
    }
    if node.replaced_boot_ids.contains(&hello.boot_id) {
        return Err(RefusedHello::Boot);
    }
    if node.boot_id != hello.boot_id {
        if !node.boot_id.is_empty() && boot_epoch == node.boot_epoch {
            return Err(RefusedHello::SameEpoch);
        }
        let replaced = std::mem::replace(&mut node.boot_id, hello.boot_id.clone());
        if !replaced.is_empty() {
            node.replaced_boot_ids.push(replaced);
        }
        let surplus = node.replaced_boot_ids.len().saturating_sub(MAX_REPLACED_BOOTS);
        node.replaced_boot_ids.drain(..surplus);
        node.connections.clear();
        node.observation = None;
        node.progress_time = Some(now.into());
        node.boot_time = Some(now.into());
    }
    node.boot_epoch = boot_epoch;
    node.process_id = shortened(&hello.process_id);
    node.agent_version = shortened(&hello.agent_version);
    Ok(with_state(reconnected(node, server, now)))
}

/// Returns `node` with a connection to the process `server`, in place of an earlier one.
pub fn reconnected(mut node: Node, server: &str, now: SystemTime) -> Node {
    node.connections.retain(|connection| connection.server != server);
    node.connections
        .push(NodeConnection { server: server.to_owned(), connect_time: Some(now.into()) });
    (node.connected, node.last_seen_time) = (true, Some(now.into()));
    node
}

/// Returns `node` after its last stream to the process `server` ended.
pub fn disconnected(mut node: Node, server: &str, now: SystemTime) -> Node {
    let before = node.connections.len();
    node.connections.retain(|connection| connection.server != server);
    if node.connections.len() != before {
        node.connected = !node.connections.is_empty();
        node.last_seen_time = Some(now.into());
    }
    node
}

/// Returns `node` after its agent sent `observation`.
pub fn observed(mut node: Node, observation: NodeObservation, now: SystemTime) -> Node {
    let observation = bounded(observation);
    if node.observation.as_ref() == Some(&observation) {
        return node;
    }
    if observation.assignment == node.assignment {
        node.progress_time = Some(now.into());
    }
    (node.observation, node.last_seen_time) = (Some(observation), Some(now.into()));
    with_state(node)
}

/// Returns `node` with `assignment`, if it is another one; `again` assigns the same one anew.
pub fn assigned(mut node: Node, assignment: Assignment, again: bool, now: SystemTime) -> Node {
    let Assignment { instance_id, stack_id, version, rollout_number, reason } = assignment;
    let is_same = (&node.instance_id, &node.stack_id, node.stack_version)
        == (&instance_id, &stack_id, version);
    let never_had_one = node.assignment == 0 && stack_id.is_empty();
    if !is_same && !never_had_one || again {
        node.assignment += 1;
        node.progress_time = Some(now.into());
    }
    (node.instance_id, node.stack_id, node.stack_version) = (instance_id, stack_id, version);
    node.rollout_number = rollout_number;
    if node.stack_id.is_empty() {
        node.state_reason = reason;
    }
    with_state(node)
}

/// Sets the state, from the assignment and the latest observation.
fn with_state(mut node: Node) -> Node {
    if node.stack_id.is_empty() {
        node.set_state(NodeState::Unassigned);
        return node;
    }
    let current = node.observation.as_ref().filter(|it| it.assignment == node.assignment);
    let (state, reason) = match current.map(|it| (it.state(), it.failure.clone())) {
        Some((NodeState::Running, _)) => (NodeState::Running, String::new()),
        Some((NodeState::Failed, failure)) => (NodeState::Failed, failure),
        // The cause of an attempt before, if there was one.
        Some((_, failure)) => (NodeState::Applying, failure),
        None => (NodeState::Applying, String::new()),
    };
    node.set_state(state);
    node.state_reason = reason;
    node
}

/// Returns `observation` within the limits of a record: an agent is a program on a machine, which may send anything.
fn bounded(mut observation: NodeObservation) -> NodeObservation {
    observation.failure = shortened(&observation.failure).replace(char::is_control, " ");
    observation.stack_id = shortened(&observation.stack_id);
    observation.containers.truncate(MAX_CONTAINERS);
    for container in &mut observation.containers {
        container.name = shortened(&container.name);
    }
    observation
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests;
