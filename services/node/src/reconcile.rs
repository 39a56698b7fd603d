//! Assigns stacks to nodes, carries out rollouts, sends desired stacks, and reports those that run.
//!
//! ```text
//! a machine or its instance changed ─▶ its node:  the instance's stack becomes the desired one
//! a node changed                    ─▶ the node:  what it shall have is sent; if it runs, an instance that waits for that is told so;
//!                                      its stack: the rollout's next step
//! a stack changed                   ─▶ the stack: the rollout's next step; the nodes whose instances name it
//! ```
//!
//! Each step reads again what it needs. Several processes do the same at a time: the commit of a step expects what it read, and each step of
//! a rollout changes the stack's record, so two of them are never both committed.

use std::time::Duration;

use nouns::Noun as _;
use prost::Message as _;
use runtime::retry::Backoff;
use runtime::work_queue::{Outcome, WorkQueue};
use store::mirror::Mirror;
use store::records::{self, Change};
use tinwright::instance::v1::ReportStackRunningRequest;
use tinwright::node::v1::{Node, RolloutState, Stack};
use tinwright::watch::WatchEvent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::desired::Desired;
use crate::directory::{Directory, Occupancy, Occupant};
use crate::error::Error;
use crate::node_state::{self, Assignment, Machine};
use crate::nodes::{NodeKind, Nodes};
use crate::peers::OtherServices;
use crate::rollout::{self, Member};
use crate::stacks::{StackKind, Stacks};
use crate::streams::Streams;
use crate::versions;

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// The nodes and stacks that are worked on at a time.
const MAX_TASKS: usize = 16;
/// The nodes that get a version in one commit: each has an event in it.
const MAX_BATCH: usize = 8;
/// The bytes of these nodes; with the stack's record, they fit one commit.
const MAX_BATCH_BYTES: usize = 256 * 1024;

/// A record to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Node(String),
    Stack(String),
}

/// What a step needs.
#[derive(Clone, Debug)]
pub(crate) struct Reconciler {
    nodes: Nodes,
    stacks: Stacks,
    directory: Directory,
    peers: OtherServices,
    desired: Desired,
    streams: Streams,
}

/// Logs an assignment before it is stored.
fn log(id: &str, assignment: &Assignment) {
    let Assignment { stack_id, version, reason, .. } = assignment;
    if stack_id.is_empty() {
        let reason = Some(reason.as_str()).filter(|reason| !reason.is_empty());
        tracing::info!(node.id = id, reason, "no stack assigned");
    } else {
        tracing::info!(node.id = id, stack = stack_id, version, "stack assigned");
    }
}

impl Reconciler {
    /// Assigns `stacks` to `nodes` as `directory` says, and reports to `peers`.
    pub(crate) fn new(
        nodes: Nodes,
        stacks: Stacks,
        directory: Directory,
        peers: OtherServices,
        desired: Desired,
        streams: Streams,
    ) -> Self {
        Self { nodes, stacks, directory, peers, desired, streams }
    }

    /// Follows records and `changed` machines until `stop`.
    pub(crate) async fn run(
        self,
        (nodes, stacks): (Mirror<NodeKind>, Mirror<StackKind>),
        mut changed: mpsc::UnboundedReceiver<String>,
        stop: CancellationToken,
    ) {
        let mut queue = WorkQueue::new(BACKOFF, MAX_TASKS);
        let (mut node_events, mut stack_events) = (nodes.watch(), stacks.watch());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(machine) = changed.recv() => {
                    if self.is_node(&machine, &nodes) {
                        queue.add(Key::Node(machine));
                    }
                }
                event = node_events.next() => match event {
                    Ok(event) => self.add_node(event, &mut queue),
                    Err(_) => node_events = nodes.watch(),
                },
                event = stack_events.next() => match event {
                    Ok(event) => self.add_stack(event, &mut queue),
                    Err(_) => stack_events = stacks.watch(),
                },
                () = queue.drive(|key| self.clone().work(key)) => {}
            }
        }
        // The next start begins with all records.
        queue.abort().await;
    }

    /// True if the machine `id` is a node, or has an instance with a stack. Most machines are neither:
    /// no record is read because of them. A node whose record is not in `nodes` yet is an event later.
    fn is_node(&self, id: &str, nodes: &Mirror<NodeKind>) -> bool {
        self.directory.last_occupant(id).is_some() || nodes.get(id).is_some()
    }

    fn add_node(&self, event: WatchEvent<Node>, queue: &mut WorkQueue<Key>) {
        match event {
            WatchEvent::Put(node) => {
                if !node.stack_id.is_empty() {
                    queue.add(Key::Stack(node.stack_id));
                }
                queue.add(Key::Node(node.id));
            }
            WatchEvent::Deleted(id) => queue.add(Key::Node(id)),
            WatchEvent::Synced => {}
        }
    }

    fn add_stack(&self, event: WatchEvent<Stack>, queue: &mut WorkQueue<Key>) {
        match event {
            WatchEvent::Put(stack) => {
                for machine in self.directory.with_stack(&stack.id, &stack.name) {
                    queue.add(Key::Node(machine));
                }
                queue.add(Key::Stack(stack.id));
            }
            // None of its nodes has it, and instances that name it stay without.
            WatchEvent::Deleted(_) | WatchEvent::Synced => {}
        }
    }

    async fn work(self, key: Key) -> Outcome {
        let (noun, id) = match &key {
            Key::Node(id) => ("node", id),
            Key::Stack(id) => ("stack", id),
        };
        let outcome = match &key {
            Key::Node(id) => self.node(id).await,
            Key::Stack(id) => self.stack(id).await,
        };
        outcome.unwrap_or_else(|error| {
            if matches!(error, Error::Records(records::Error::Changed { .. })) {
                return Outcome::Again;
            }
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, noun, id, "step failed; it is repeated");
            Outcome::Failed
        })
    }

    /// Makes the record of the node `id` follow its machine and the instance there.
    async fn node(&self, id: &str) -> Result<Outcome, Error> {
        let node = self.nodes.records.get(id).await?;
        let (node, occupant) = match (self.directory.view(id), node) {
            (None, node) => (node, None),
            (Some(Occupancy { machine: Some(machine), occupant }), node) => {
                (self.follow(id, &machine, occupant.clone(), node).await?, occupant)
            }
            (Some(Occupancy { machine: None, .. }), node) => {
                (self.without_machine(id, node).await?, None)
            }
        };
        let Some(node) = node else { return Ok(Outcome::Done) };
        self.desired.send(&node).await?;
        if let Some(occupant) = occupant.filter(|occupant| occupant.waits_for(&node)) {
            let report = ReportStackRunningRequest {
                hardware_id: node.id,
                instance_id: occupant.instance_id,
                generation: occupant.generation,
                boot_time: node.boot_time,
            };
            self.peers.report_stack_running(report).await?;
        }
        Ok(Outcome::Done)
    }

    async fn follow(
        &self,
        id: &str,
        machine: &Machine,
        occupant: Option<Occupant>,
        node: Option<Node>,
    ) -> Result<Option<Node>, Error> {
        let Some(assignment) = self.wanted(id, machine, occupant, node.as_ref()).await? else {
            if node.as_ref().is_some_and(|it| node_state::with_machine(it.clone(), machine) != *it)
            {
                self.nodes.follow_machine(id, machine).await?;
                return Ok(self.nodes.records.get(id).await?);
            }
            return Ok(node);
        };
        log(id, &assignment);
        self.nodes.assign(id, machine, &assignment).await.map(Some)
    }

    /// Returns what the node is to be assigned; none if it has that already.
    async fn wanted(
        &self,
        id: &str,
        machine: &Machine,
        occupant: Option<Occupant>,
        node: Option<&Node>,
    ) -> Result<Option<Assignment>, Error> {
        let new = node_state::new_node(id, machine, self.nodes.clock.wall());
        let present = node.unwrap_or(&new);
        let Some(occupant) = occupant else {
            let has_none = present.stack_id.is_empty()
                && present.instance_id.is_empty()
                && present.state_reason.is_empty();
            return Ok((!has_none).then(Assignment::default));
        };
        let Some(stack) = self.stacks.find(&occupant.stack).await? else {
            let reason = format!("there is no stack {}", occupant.stack);
            let is_said = present.stack_id.is_empty()
                && present.instance_id == occupant.instance_id
                && present.state_reason == reason;
            let instance_id = occupant.instance_id;
            let assignment = Assignment { instance_id, reason, ..Assignment::default() };
            return Ok((!is_said || node.is_none()).then_some(assignment));
        };
        let has_it = present.instance_id == occupant.instance_id
            && present.stack_id == stack.id
            && versions::containers(&stack, present.stack_version).is_some();
        let present = node_state::with_machine(present.clone(), machine);
        let version = versions::version_for(&stack, &present);
        Ok((!has_it).then(|| Assignment::new(&occupant.instance_id, &stack, version)))
    }

    /// Removes the node of a machine without a record. The feed may be behind, so the hardware service is asked.
    async fn without_machine(&self, id: &str, node: Option<Node>) -> Result<Option<Node>, Error> {
        let Some(node) = node else { return Ok(None) };
        let machine = id.parse().map(|id| self.directory.machine(id));
        if let Ok(machine) = machine
            && machine.await?.is_some()
        {
            return Ok(Some(node));
        }
        self.streams.end_all(id);
        if !node.connected {
            self.nodes.records.commit(self.nodes.records.to_delete(&node)).await?;
        }
        Ok(None)
    }

    /// Makes the next step of the rollout of the stack `id`.
    async fn stack(&self, id: &str) -> Result<Outcome, Error> {
        let Some(stack) = self.stacks.records().get(id).await? else { return Ok(Outcome::Done) };
        let running = |it: &&_| tinwright::node::v1::Rollout::state(it) == RolloutState::Running;
        let Some(rollout) = stack.rollout.as_ref().filter(running) else {
            return Ok(Outcome::Done);
        };
        // After the stack: what is decided by older nodes is not committed.
        let nodes = self.nodes.all(|node| node.stack_id == id).await?;
        let members: Vec<_> = nodes.iter().filter_map(|it| Member::new(rollout, it)).collect();
        let now = self.nodes.clock.wall();
        let step = rollout::step(rollout, &members, now);
        let (mut change, mut assigned, mut bytes) = (Change::default(), 0, 0);
        for node in step.assign.iter().filter_map(|id| nodes.iter().find(|node| node.id == *id)) {
            bytes += node.encoded_len();
            if assigned == MAX_BATCH || assigned > 0 && bytes > MAX_BATCH_BYTES {
                break;
            }
            assigned += 1;
            let new = Assignment {
                rollout_number: rollout.number,
                ..Assignment::new(&node.instance_id, &stack, rollout.version)
            };
            let new = node_state::assigned(node.clone(), new, true, now);
            change = change.and(self.nodes.records.to_replace(node, &new));
        }
        let new = versions::after_step(&stack, &step, assigned, now);
        let wait = step.due.map(|due| due.duration_since(now).unwrap_or_default());
        let is_changed = new != stack;
        self.stacks.records().replace_with(&stack, new, change).await?;
        Ok(match wait {
            _ if is_changed => Outcome::Again,
            Some(wait) => Outcome::After(wait),
            None => Outcome::Done,
        })
    }
}
