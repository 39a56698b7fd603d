//! The client commands of `tinwright`.
//!
//! - [`connect`]: finding the server, and the identity of the caller; [`context`]: several sites.
//! - [`resource`]: commands that every resource has; [`follow`]: watching objects.
//! - [`hardware`], [`instance`], [`template`], [`workflow`], [`power`], [`tenant`]: the calls of each resource, and its own commands.
//! - [`enrol`]: machines that are known by their BMC only.
//! - [`location`], [`model`]: where machines stand, and which are alike.
//! - [`node`], [`stack`]: nodes, and what they attach, mount and run.
//! - [`subnet`], [`range`], [`address`]: networks, and the grants of their addresses.
//! - [`identity`]: client certificates and credentials.
//! - [`boot`]: explanations, timelines and syslog of network boots.
//! - [`events`]: what changed, when, and who asked for it.
//! - [`metadata`]: explanations of the metadata service.
//! - [`input`]: objects from YAML and JSON files; [`tinkerbell`]: hardware in Tinkerbell's JSON.
//! - [`output`]: tables, JSON, YAML; [`failure`]: errors in one line, with a hint.
//! - [`store`]: backups of a server's store.
//! - [`osie`]: building the installation environment; with `context` the only commands without a server.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
mod bmc_address;
pub mod boot;
pub mod connect;
pub mod context;
mod csv;
pub mod enrol;
pub mod events;
pub mod failure;
pub mod follow;
pub mod hardware;
pub mod identity;
pub mod input;
pub mod instance;
pub mod lease;
pub mod location;
pub mod metadata;
pub mod model;
pub mod node;
pub mod osie;
pub mod output;
mod password;
pub mod power;
pub mod range;
pub mod resource;
pub mod stack;
pub mod store;
pub mod subnet;
pub mod template;
pub mod tenant;
pub mod tinkerbell;
pub mod workflow;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
pub use clap_complete::Shell;
use connect::Connection;

/// The client commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Manage the site's machines
    #[command(visible_alias = "hw")]
    Hardware(ServerCommand<hardware::HardwareCommand>),
    /// Manage locations, where machines stand, and their zones
    Location(ServerCommand<location::LocationCommand>),
    /// Manage models: names for machines that are alike
    Model(ServerCommand<model::ModelCommand>),
    /// Manage instances, which occupy machines
    Instance(ServerCommand<instance::InstanceCommand>),
    /// Manage templates of workflows
    Template(ServerCommand<template::TemplateCommand>),
    /// Manage workflows, which provision machines
    Workflow(ServerCommand<workflow::WorkflowCommand>),
    /// Control the power and the boot device of machines, and manage their BMCs
    Power(ServerCommand<power::PowerCommand>),
    /// List nodes: machines that attach, mount and run system images
    Node(ServerCommand<node::NodeCommand>),
    /// Manage stacks: what nodes attach, mount and run
    Stack(ServerCommand<stack::StackCommand>),
    /// Manage subnets: networks whose addresses are granted
    Subnet(ServerCommand<subnet::SubnetCommand>),
    /// Manage ranges of subnets
    Range(ServerCommand<range::RangeCommand>),
    /// Grant and release addresses, and blocks of them
    Address(ServerCommand<address::AddressCommand>),
    /// List and delete leases of pool addresses
    Lease(ServerCommand<lease::LeaseCommand>),
    /// Manage tenants, whose callers see their own objects only
    Tenant(ServerCommand<tenant::TenantCommand>),
    /// Issue and revoke client certificates, and manage credentials
    Identity(ServerCommand<identity::IdentityCommand>),
    /// Print what changed, when, and who asked for it
    Events(EventsArguments),
    /// Explain and list network boots of machines
    Boot(ServerCommand<boot::BootCommand>),
    /// Explain responses of the metadata service
    Metadata(ServerCommand<metadata::MetadataCommand>),
    /// Manage contexts: the sites that commands can be sent to
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Build the installation environment
    #[command(subcommand)]
    Osie(osie::OsieCommand),
}

/// A command that is sent to a server.
#[derive(Debug, clap::Args)]
pub struct ServerCommand<C: clap::Subcommand> {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: C,
}

/// The command `events`, which has no subcommands.
#[derive(Debug, clap::Args)]
pub struct EventsArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    command: events::EventsCommand,
}

/// Runs `command`, and prints an error as one line on standard error.
pub fn run(command: Command) -> ExitCode {
    finish(run_command(command, &mut std::io::stdout()))
}

/// Writes a backup of the store of the server at `connection` to `file`, or to standard output for `-`.
pub fn backup(connection: &Connection, file: &Path) -> ExitCode {
    finish(async { store::backup(&connection.open().await?, file).await })
}

/// Runs `work`, and prints an error as one line on standard error.
fn finish(work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.context("starting").and_then(|runtime| runtime.block_on(work)) {
        Err(error) if !error.is::<output::Closed>() => {
            eprintln!("tinwright: {}", failure::line(&error));
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

async fn run_command(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    // The largest ones are boxed: each caller's future has room for the largest.
    match command {
        Command::Hardware(it) => {
            Box::pin(hardware::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Location(it) => {
            Box::pin(location::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Model(it) => {
            Box::pin(model::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Instance(it) => {
            Box::pin(instance::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Template(it) => template::run(it.command, &it.connection.open().await?, out).await,
        Command::Workflow(it) => {
            Box::pin(workflow::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Power(it) => power::run(it.command, &it.connection.open().await?, out).await,
        Command::Node(it) => node::run(it.command, &it.connection.open().await?, out).await,
        Command::Stack(it) => {
            Box::pin(stack::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Subnet(it) => {
            Box::pin(subnet::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Range(it) => {
            Box::pin(range::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Address(it) => {
            Box::pin(address::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Lease(it) => lease::run(it.command, &it.connection.open().await?, out).await,
        Command::Tenant(it) => tenant::run(it.command, &it.connection.open().await?, out).await,
        Command::Identity(it) => identity::run(it.command, &it.connection.open().await?, out).await,
        Command::Boot(it) => boot::run(it.command, &it.connection.open().await?, out).await,
        Command::Events(it) => {
            Box::pin(events::run(it.command, &it.connection.open().await?, out)).await
        }
        Command::Metadata(it) => metadata::run(it.command, &it.connection.open().await?, out).await,
        Command::Context(command) => context::run(command, out),
        Command::Osie(command) => osie::run(command),
    }
}

/// Prints the completion script of `program` for `shell`.
pub fn completions(shell: Shell, program: &mut clap::Command) {
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "tinwright", &mut script);
    // An error means that the shell reads no further.
    drop(output::print_bytes(&mut std::io::stdout(), &script));
}

/// Returns the default data directory, the same for a server and for clients on its host.
pub fn data() -> anyhow::Result<PathBuf> {
    base_directory("/var/lib", "XDG_STATE_HOME", ".local/state", "--data")
}

/// Returns the directory `tinwright` in `system` for root. For other users, in the directory that the environment `variable`
/// names, else in `home` below the home directory. The error recommends `option`.
fn base_directory(
    system: &str,
    variable: &str,
    home: &str,
    option: &str,
) -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(system).join("tinwright"));
    }
    let in_home = || std::env::var_os("HOME").map(|directory| PathBuf::from(directory).join(home));
    let base = std::env::var_os(variable).map(PathBuf::from).or_else(in_home);
    let base =
        base.with_context(|| format!("neither {variable} nor HOME is set: give {option}"))?;
    Ok(base.join("tinwright"))
}

#[cfg(test)]
mod tests;
