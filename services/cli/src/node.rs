//! Commands on nodes.

use std::collections::HashMap;
use std::io::Write;
use std::time::SystemTime;

use runtime::Channel;
use tinwright::node::v1 as pb;

use crate::connect::{View, call};
use crate::output::{self, Row};
use crate::resource::{self, NoOptions, PAGE_SIZE, Page, Query, Resource, ResourceCommand};

/// Commands on nodes.
#[derive(Debug, clap::Subcommand)]
pub enum NodeCommand {
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Node>),
}

/// Options of a list, besides labels.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct NodeFilter {
    /// List only nodes with this desired stack
    #[arg(long, value_name = pb::Stack::NAMES)]
    stack: Option<String>,
    /// List only nodes whose stack is in this state
    #[arg(long)]
    state: Option<StackState>,
}

/// States of a node's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StackState {
    /// No stack is desired
    Unassigned = pb::NodeState::Unassigned as isize,
    /// A stack is desired, and neither runs nor failed yet
    Applying = pb::NodeState::Applying as isize,
    /// All containers of the stack run
    Running = pb::NodeState::Running as isize,
    /// The stack could not be applied, or a container ended
    Failed = pb::NodeState::Failed as isize,
}

/// Runs `command`.
pub async fn run(
    NodeCommand::Resource(command): NodeCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    resource::run(command, channel, out).await
}

/// Returns the name of `node` for people: its id if it has none.
pub(crate) fn display_name(node: &pb::Node) -> &str {
    if node.name.is_empty() { &node.id } else { &node.name }
}

impl Row for pb::Node {
    const COLUMNS: &'static [&'static str] =
        &["ID", "NAME", "CONNECTED", "STACK", "VERSION", "STATE", "CONTAINERS", "SEEN", "REASON"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let connected = if self.connected { "yes" } else { "no" };
        let containers = self.observation.iter().flat_map(|it| &it.containers);
        let running = containers.filter(|it| it.state() == pb::container::State::Running).count();
        let version = match self.stack_version {
            0 => String::new(),
            version => version.to_string(),
        };
        vec![
            self.id.clone(),
            self.name.clone(),
            connected.to_owned(),
            self.stack_id.clone(),
            version,
            self.state().word(),
            running.to_string(),
            output::age(self.last_seen_time, now),
            self.state_reason.clone(),
        ]
    }
}

impl Resource for pb::Node {
    type Filter = NodeFilter;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "node";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str =
        "a machine is one after its instance with an image_stack has booted";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }

    fn title(&self) -> String {
        display_name(self).to_owned()
    }

    async fn names(channel: &Channel, _: &[Self]) -> HashMap<String, String> {
        resource::all_names::<pb::Stack>(channel).await
    }

    async fn select(
        channel: &Channel,
        request: &mut Self::List,
        query: &Query<Self>,
    ) -> anyhow::Result<()> {
        let NodeFilter { stack, state } = &query.filter;
        request.stack_id = pb::Stack::find_optional_id(channel, stack.as_deref()).await?;
        request.state = state.map_or(0, |state| state as i32);
        Ok(())
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        resource::delete_by_id(self, channel).await
    }
}

/// Returns the nodes with the desired stack `stack_id`.
pub(crate) async fn of_stack(channel: &Channel, stack_id: &str) -> anyhow::Result<Vec<pb::Node>> {
    resource::pages(async |page_token| {
        let stack_id = stack_id.to_owned();
        list(channel, pb::ListNodesRequest { page_token, stack_id, ..Default::default() }).await
    })
    .await
}

async fn list(channel: &Channel, request: pb::ListNodesRequest) -> Page<pb::Node> {
    let request = pb::ListNodesRequest { page_size: PAGE_SIZE, ..request };
    let page = call(channel, request).await?;
    Ok((page.nodes, page.next_page_token))
}
