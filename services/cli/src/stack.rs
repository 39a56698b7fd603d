//! Commands on stacks.

mod progress;

use std::io::Write;
use std::time::SystemTime;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::node::v1 as pb;

use crate::connect::{View, call};
use crate::files::Object;
use crate::input;
use crate::output::{self, Row, print_line};
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
pub async fn run(
    command: StackCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        StackCommand::Apply(options) => apply(options, channel, out).await,
        StackCommand::Rollback(options) => roll_back(options, channel, out).await,
        StackCommand::Resource(command) => resource::run(command, channel, out).await,
    }
}

/// Applies the stacks in files one after another. One that fails does not prevent the others.
async fn apply(
    ApplyOptions { files: FileOptions { files, output }, nodes, rollout }: ApplyOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut applied = Vec::new();
    let each = async |stack: pb::Stack, object: &Object, out: &mut dyn Write| {
        let settings = rollout.settings(nodes.clone());
        let stack = apply_one(stack, settings, channel).await;
        let stack = stack.with_context(|| object.position.clone())?;
        applied.push(stack.clone());
        match output.is_for_people() {
            true => wait(&stack, rollout, channel, out).await,
            false => Ok(()),
        }
    };
    let result = from_files::for_each(&files, each, out).await;
    if !output.is_for_people() && !applied.is_empty() {
        resource::print(&applied, output, channel, out).await?;
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

async fn roll_back(
    RollBackOptions { name, version, rollout }: RollBackOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let stack = pb::Stack::find(channel, &name, View::Basic).await?;
    let request = pb::RollBackStackRequest {
        id: stack.id,
        version: version.unwrap_or(0),
        rollout: Some(rollout.settings(Vec::new())),
        revision: 0,
    };
    let stack = call(channel, request).await?.stack;
    wait(&required(stack)?, rollout, channel, out).await
}

/// Prints the progress of the rollout of `stack` until its end, unless it is not to be waited for.
async fn wait(
    stack: &pb::Stack,
    options: RolloutOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let rollout = stack.rollout.clone().unwrap_or_default();
    print_line(out, &format!("stack {} version {}", stack.name, rollout.version))?;
    if options.no_wait || rollout.state() != pb::RolloutState::Running {
        return Ok(());
    }
    progress::follow(stack, rollout.number, channel, out).await
}

/// Returns the error of a rollout that did not reach its nodes.
fn stopped(stack: &pb::Stack, reason: &str) -> anyhow::Error {
    anyhow::anyhow!("the rollout of stack {} stopped: {reason}", stack.name)
}

impl Row for pb::Stack {
    const COLUMNS: &'static [&'static str] = &[
        "ID", "NAME", "VERSION", "ROLLOUT", "STATE", "NODES", "RUNNING", "FAILED", "AGE", "REASON",
    ];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let rollout = self.rollout.clone().unwrap_or_default();
        let counts = rollout.counts.unwrap_or_default();
        let newest = self.versions.last().map_or(0, |version| version.number);
        vec![
            self.id.clone(),
            self.name.clone(),
            newest.to_string(),
            rollout.version.to_string(),
            rollout.state().word(),
            counts.nodes.to_string(),
            counts.running.to_string(),
            counts.failed.to_string(),
            output::age(self.create_time, now),
            rollout.state_reason,
        ]
    }
}

impl Resource for pb::Stack {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "stack";
    const NAMES: &'static str = "NAME|ID";
    const FIRST: &'static str = "create one with `tinwright stack apply -f FILE`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        resource::by_label(channel, name, view).await
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        resource::delete_by_id(self, channel).await
    }
}

impl FromFiles for pb::Stack {}
