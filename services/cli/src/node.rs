//! Nodes: how commands find, list and print them.

use std::collections::HashMap;

use runtime::Channel;
use tinwright::node::v1 as pb;

use crate::connect::View;
use crate::output::Row;
use crate::resource::{self, Query, Resource};

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

impl Row for pb::Node {
    const COLUMNS: &'static str = "ID:id,NAME:name,CONNECTED:connected,STACK:stack_id,VERSION,\
        STATE:state,CONTAINERS,SEEN:last_seen_time,REASON:state_reason";

    fn cell(&self, column: &str) -> String {
        match column {
            "VERSION" if self.stack_version == 0 => String::new(),
            "VERSION" => self.stack_version.to_string(),
            _ => {
                let containers = self.observation.iter().flat_map(|it| &it.containers);
                let is_running =
                    |it: &&pb::ContainerStatus| it.state() == pb::container::State::Running;
                containers.filter(is_running).count().to_string()
            }
        }
    }
}

impl Resource for pb::Node {
    type Filter = NodeFilter;
    const FIRST: &'static str =
        "a machine is one after its instance with an image_stack has booted";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_name(channel, name, view).await
    }

    async fn names(channel: &Channel, _: &[Self]) -> HashMap<String, String> {
        resource::all_names::<pb::Stack>(channel).await
    }

    async fn select(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let NodeFilter { stack, state } = &query.filter;
        let stack_id = pb::Stack::find_optional_id(channel, stack.as_deref()).await?;
        let state = state.map_or(0, |state| state as i32);
        Ok(pb::ListNodesRequest { stack_id, state, ..Default::default() })
    }
}
