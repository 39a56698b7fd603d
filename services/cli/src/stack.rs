//! Commands on stacks.

mod progress;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::node::v1 as pb;

use crate::connect::{Io, View, call};
use crate::files::Object;
use crate::input;
use crate::output::Row;
use crate::resource::{
    self, FileOptions, FromFiles, NoOptions, Resource, ResourceCommand, from_files, required,
};

/// Commands on stacks.
#[derive(Debug, clap::Subcommand)]
pub enum StackCommand {
    /// Create the stacks in files, or bring their containers to the nodes as a new version, a few nodes at a time
    Apply(ApplyOptions),
    /// Bring an earlier version to the nodes that have a newer one
    #[command(alias = "roll-back")]
    Rollback(RollBackOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Stack>),
}

/// The way in which a version is brought to nodes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RolloutOptions {
    /// Let at most so many nodes apply the version at a time [default: a tenth of them]
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(i32).range(1..))]
    max_concurrent: Option<i32>,
    /// Stop when more nodes than this have failed
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    max_failures: i32,
    /// Return at once, and let the server go on
    #[arg(long)]
    no_wait: bool,
}

/// Options of `stack apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyOptions {
    /// The files.
    #[command(flatten)]
    files: FileOptions,
    /// Bring the version only to nodes with this label; may be repeated [default: all nodes of the stack]
    #[arg(long, value_name = "KEY=VALUE", value_parser = input::pair)]
    nodes: Vec<(String, String)>,
    /// The rollout.
    #[command(flatten)]
    rollout: RolloutOptions,
}

/// Options of `stack rollback`.
#[derive(Debug, clap::Args)]
pub struct RollBackOptions {
    /// The stack
    #[arg(value_name = "NAME|ID")]
    name: String,
    /// Roll back to this version [default: the one before]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    version: Option<i64>,
    /// The rollout.
    #[command(flatten)]
    rollout: RolloutOptions,
}

impl RolloutOptions {
    fn settings(self, nodes: Vec<(String, String)>) -> pb::RolloutSettings {
        pb::RolloutSettings {
            node_labels: nodes.into_iter().collect(),
            max_concurrent: self.max_concurrent.unwrap_or(0),
            max_failures: self.max_failures,
        }
    }
}

/// Runs `command`.
pub async fn run(command: StackCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        StackCommand::Apply(options) => apply(options, io).await,
        StackCommand::Rollback(RollBackOptions { name, version, rollout }) => {
            let stack = pb::Stack::find(io.channel, &name, View::Basic).await?;
            let request = pb::RollBackStackRequest {
                id: stack.id,
                version: version.unwrap_or(0),
                rollout: Some(rollout.settings(Vec::new())),
                revision: 0,
            };
            let stack = required(io.call(request).await?.stack)?;
            wait(&stack, rollout, io).await
        }
        StackCommand::Resource(command) => resource::run(command, io).await,
    }
}

/// Applies the stacks in files one after another. One that fails does not prevent the others.
async fn apply(
    ApplyOptions { files: FileOptions { files, output }, nodes, rollout }: ApplyOptions,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let mut applied = Vec::new();
    let each = async |stack: pb::Stack, object: &Object, io: &mut Io<'_>| {
        let stack = apply_one(stack, rollout.settings(nodes.clone()), io.channel).await;
        let stack = stack.with_context(|| object.position.clone())?;
        applied.push(stack.clone());
        match output.is_for_people() {
            true => wait(&stack, rollout, io).await,
            false => Ok(()),
        }
    };
    let result = from_files::for_each(&files, each, io).await;
    if !output.is_for_people() && !applied.is_empty() {
        resource::print(&applied, output, io).await?;
    }
    result
}

/// Creates `stack`, or begins the rollout of its containers.
async fn apply_one(
    stack: pb::Stack,
    settings: pb::RolloutSettings,
    channel: &Channel,
) -> anyhow::Result<pb::Stack> {
    let Some(stored) = stack.stored(channel, View::Basic).await? else {
        return stack.create(channel).await;
    };
    let (stack, rollout) = (Some(stack.with_id(stored.id)), Some(settings));
    let request = pb::UpdateStackRequest { stack, update_mask: None, rollout };
    required(call(channel, request).await?.stack)
}

/// Prints the progress of the rollout of `stack` until its end, unless it is not to be waited for.
async fn wait(stack: &pb::Stack, options: RolloutOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    let rollout = stack.rollout.clone().unwrap_or_default();
    io.print(&format!("stack {} version {}", stack.name, rollout.version))?;
    if options.no_wait || rollout.state() != pb::RolloutState::Running {
        return Ok(());
    }
    progress::follow(stack, rollout.number, io).await
}

/// Returns the error of a rollout that did not reach its nodes.
fn stopped(stack: &pb::Stack, reason: &str) -> anyhow::Error {
    anyhow::anyhow!("the rollout of stack {} stopped: {reason}", stack.name)
}

impl Row for pb::Stack {
    const COLUMNS: &'static str = "ID:id,NAME:name,VERSION,ROLLOUT:rollout.version,\
        STATE:rollout.state,NODES:rollout.counts.nodes,RUNNING:rollout.counts.running,\
        FAILED:rollout.counts.failed,AGE:create_time,REASON:rollout.state_reason";

    /// Returns the newest version.
    fn cell(&self, _: &str) -> String {
        self.versions.last().map_or(0, |version| version.number).to_string()
    }
}

impl Resource for pb::Stack {
    type Filter = NoOptions;
    const FIRST: &'static str = "create one with `tinwright stack apply -f FILE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_label(channel, name, view).await
    }
}

impl FromFiles for pb::Stack {}
