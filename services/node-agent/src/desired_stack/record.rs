//! What was made of a stack, in a file of the agent. It has no definitions, and so no secrets.

use machine::journal::Page;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tinwright::node::v1::{Container, DesiredStack};

/// The record in the journal.
pub(super) const STACK: Page = Page::new("stack.json");

/// What was made of a stack. The default: nothing was ever desired.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct StackRecord {
    /// The latest assignment that was begun.
    pub(super) assignment: i64,
    /// Its stack. Empty: none.
    pub(super) stack_id: String,
    /// For the log.
    pub(super) stack_name: String,
    pub(super) stack_version: i64,
    /// The containers of this stack, and those of earlier ones that are not removed yet.
    pub(super) containers: Vec<StackContainer>,
}

/// A container of a stack.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct StackContainer {
    pub(super) name: String,
    /// SHA-256 of its definition, in hexadecimal.
    pub(super) digest: String,
    /// The id of the call that creates it.
    pub(super) call_id: String,
    /// Its id on the node. None until the call has a result.
    pub(super) id: Option<i64>,
}

impl StackRecord {
    /// Adds the ids of containers whose creation was interrupted: `created` returns the container of a call. Those that were not created are
    /// dropped.
    pub(super) fn complete(&mut self, created: impl Fn(&str) -> Option<Container>) {
        for made in &mut self.containers {
            made.id = made.id.or_else(|| created(&made.call_id).map(|container| container.id));
        }
        self.containers.retain(|made| made.id.is_some());
    }

    /// Begins to apply `stack`. Its containers are made in further steps.
    pub(super) fn begin(&mut self, stack: &DesiredStack) {
        self.assignment = stack.assignment;
        self.stack_id.clone_from(&stack.stack_id);
        self.stack_name.clone_from(&stack.stack_name);
        self.stack_version = stack.stack_version;
    }
}

/// Returns the digest of the definition of a container.
pub(super) fn digest(container: &Container) -> String {
    let digest = Sha256::digest(container.encode_to_vec());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
