//! Desired stacks on their way to agents.

use nouns::Noun as _;
use tinwright::node::v1::{DesiredStack, Node};

use crate::directory::Directory;
use crate::error::Error;
use crate::stacks::Stacks;
use crate::streams::Streams;
use crate::versions;

/// Sends desired stacks down the streams of this process.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    stacks: Stacks,
    streams: Streams,
    directory: Directory,
}

impl Desired {
    /// Sends versions of `stacks` down `streams`, to boots that are for the instances in `directory`.
    pub(crate) fn new(stacks: Stacks, streams: Streams, directory: Directory) -> Self {
        Self { stacks, streams, directory }
    }

    /// Sends what `node` shall have down those of its streams that were not sent it. Nothing before the first assignment: what a node has
    /// from before, such as by a control plane whose store was lost, stays. No stack to a boot that began before the machine was booted for the
    /// instance, as far as that is known: that boot may be one of the instance before. A removal is sent to each.
    pub(crate) async fn send(&self, node: &Node) -> Result<(), Error> {
        self.streams.end_others(&node.id, &node.boot_id);
        if node.assignment == 0 || !self.streams.wants(&node.id, node.assignment) {
            return Ok(());
        }
        let mut desired = DesiredStack { assignment: node.assignment, ..DesiredStack::default() };
        if !node.stack_id.is_empty() {
            let occupant = self.directory.last_occupant(&node.id);
            if !occupant.is_some_and(|occupant| occupant.is_booted_on(node)) {
                return Ok(());
            }
            let stack = self.stacks.records().get(&node.stack_id).await?;
            let containers =
                stack.as_ref().and_then(|stack| versions::containers(stack, node.stack_version));
            // A version that is gone is replaced by another assignment.
            let (Some(stack), Some(containers)) = (&stack, containers) else { return Ok(()) };
            desired.stack_id.clone_from(&node.stack_id);
            desired.stack_name.clone_from(&stack.name);
            desired.stack_version = node.stack_version;
            desired.containers = containers.to_vec();
        }
        self.streams.send_desired(node, &desired);
        Ok(())
    }
}
