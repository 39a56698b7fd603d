//! The progress of a rollout, node by node, until its end.

use std::collections::BTreeMap;
use tinwright::node::v1 as pb;
use tinwright::node::v1::{RolloutCounts, RolloutState};
use tinwright::watch::WatchEvent;

use super::stopped;
use crate::connect::{Io, View};
use crate::follow::{Watchable as _, next_event, while_unavailable};
use crate::resource::{Resource as _, list_all};

/// The nodes of a rollout, with the line that was printed for each.
#[derive(Debug)]
struct Progress {
    stack_id: String,
    number: i64,
    printed: BTreeMap<String, String>,
}

impl Progress {
    /// Returns the line for `node`, if it is of the rollout and the line is new.
    fn line(&mut self, node: &pb::Node) -> Option<String> {
        if node.stack_id != self.stack_id || node.rollout_number != self.number {
            return None;
        }
        let reason = match node.state_reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let line = format!("{} {}{reason}", node.title(), node.state().word());
        let before = self.printed.insert(node.id.clone(), line.clone());
        (before.as_ref() != Some(&line)).then_some(line)
    }

    fn print(&mut self, node: &pb::Node, io: &mut Io<'_>) -> anyhow::Result<()> {
        self.line(node).map_or(Ok(()), |line| io.print(&line))
    }
}

/// Returns the end of the rollout `number` in `stack`; none while it runs.
fn end(stack: &pb::Stack, number: i64) -> Option<anyhow::Result<String>> {
    let rollout = stack.rollout.clone().unwrap_or_default();
    if rollout.number != number {
        return Some(Err(stopped(stack, "another rollout took its place")));
    }
    let counts = rollout.counts.unwrap_or_default();
    match rollout.state() {
        RolloutState::Done => {
            let failed = match counts.failed {
                0 => String::new(),
                failed => format!(", {failed} failed: {}", rollout.state_reason),
            };
            Some(Ok(format!("done: {} of {} nodes{failed}", counts.running, counts.nodes)))
        }
        RolloutState::Stopped => {
            let RolloutCounts { pending, nodes, .. } = counts;
            let left =
                format!("{}; {pending} of {nodes} nodes were left out", rollout.state_reason);
            Some(Err(stopped(stack, &left)))
        }
        RolloutState::Unspecified | RolloutState::Running => None,
    }
}

/// Prints a line whenever the state of a node changes, until the rollout `number` of `stack` ends. An error if it did not reach its nodes.
pub(super) async fn follow(stack: &pb::Stack, number: i64, io: &mut Io<'_>) -> anyhow::Result<()> {
    let mut progress = Progress { stack_id: stack.id.clone(), number, printed: BTreeMap::new() };
    let ended = while_unavailable(true, async |failures| watch(&mut progress, failures, io).await);
    let ended = ended.await?;
    // Reports of nodes from before the end may come by their watch after it.
    let select = |request: &mut pb::ListNodesRequest| request.stack_id.clone_from(&stack.id);
    for node in list_all::<pb::Node>(io.channel, select).await? {
        progress.print(&node, io)?;
    }
    match end(&ended, number) {
        Some(Ok(text)) => io.print(&text),
        Some(Err(error)) => Err(error),
        None => Ok(()),
    }
}

/// Prints lines until the rollout ends. Returns the stack as it is then.
async fn watch(
    progress: &mut Progress,
    failures: &mut u32,
    io: &mut Io<'_>,
) -> anyhow::Result<pb::Stack> {
    let mut stacks = pb::Stack::watch(io.channel, progress.stack_id.clone(), View::Basic).await?;
    let mut nodes = pb::Node::watch(io.channel, String::new(), View::Basic).await?;
    loop {
        tokio::select! {
            event = next_event::<pb::Stack>(&mut stacks) => match event? {
                Some(WatchEvent::Put(stack)) if end(&stack, progress.number).is_some() => {
                    return Ok(stack);
                }
                Some(WatchEvent::Deleted(id)) => anyhow::bail!("stack {id} was deleted"),
                Some(WatchEvent::Put(_) | WatchEvent::Synced) | None => *failures = 0,
            },
            event = next_event::<pb::Node>(&mut nodes) => {
                if let Some(WatchEvent::Put(node)) = event? {
                    progress.print(&node, io)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(state: RolloutState) -> pb::Stack {
        let counts = RolloutCounts { nodes: 20, pending: 14, running: 5, failed: 1, applying: 0 };
        let rollout = pb::Rollout {
            number: 2,
            state: state.into(),
            state_reason: "1 failed, 0 may: n7: no image".into(),
            counts: Some(counts),
            ..pb::Rollout::default()
        };
        pb::Stack { name: "web".into(), rollout: Some(rollout), ..pb::Stack::default() }
    }

    #[test]
    fn a_rollout_ends_when_it_is_done_stopped_or_replaced() {
        assert!(end(&stack(RolloutState::Running), 2).is_none());
        let done = end(&stack(RolloutState::Done), 2).unwrap().unwrap();
        assert_eq!(done, "done: 5 of 20 nodes, 1 failed: 1 failed, 0 may: n7: no image");
        let stopped = end(&stack(RolloutState::Stopped), 2).unwrap().unwrap_err().to_string();
        let expected = "the rollout of stack web stopped: 1 failed, 0 may: n7: no image; 14 of 20 nodes were left out";
        assert_eq!(stopped, expected);
        let replaced = end(&stack(RolloutState::Running), 1).unwrap().unwrap_err().to_string();
        assert!(replaced.ends_with("another rollout took its place"), "{replaced}");
    }

    #[test]
    fn a_node_has_a_line_for_each_state_and_only_in_its_rollout() {
        let mut progress = Progress { stack_id: "s".into(), number: 2, printed: BTreeMap::new() };
        let mut node = pb::Node {
            id: "i".into(),
            name: "n7".into(),
            stack_id: "s".into(),
            rollout_number: 1,
            ..pb::Node::default()
        };
        node.set_state(pb::NodeState::Applying);
        assert_eq!(progress.line(&node), None);
        node.rollout_number = 2;
        assert_eq!(progress.line(&node).unwrap(), "n7 applying");
        assert_eq!(progress.line(&node), None);
        node.set_state(pb::NodeState::Failed);
        node.state_reason = "no image".into();
        assert_eq!(progress.line(&node).unwrap(), "n7 failed: no image");
    }
}
