//! The client commands of `tinwright`.
//!
//! - [`connect`]: finding the server, and the identity of the caller; [`context`]: several sites.
//!   [`connected_command`]: commands that connect, beside others that do not.
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
//! - [`apply`]: objects of all kinds from files.
//! - [`files`]: objects from YAML and JSON files; [`tinkerbell`]: objects of Tinkerbell; [`input`]: texts, and values of options.
//! - [`selector`]: selectors of labels. `confirm`: questions before data is lost.
//! - [`output`]: tables, JSON, YAML; [`failure`]: errors in one line, with a hint.
//! - [`store`]: backups of a server's store, and the end of what waits after a restore. [`site`]: a site's images, objects and files in one archive,
//!   for a site without networks.
//! - `http_requests`: requests of plain HTTP. `minisign`: signatures by that program.
//! - [`osie`]: building the installation environment; [`image`]: images of the server, and images that are fetched or built without one. With
//!   `context` these are the only commands without a server.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
pub mod apply;
mod bmc_address;
pub mod boot;
mod bundle;
mod confirm;
pub mod connect;
pub mod connected_command;
pub mod context;
mod csv;
pub mod enrol;
pub mod events;
pub mod failure;
pub mod files;
pub mod follow;
pub mod hardware;
mod http_requests;
pub mod identity;
pub mod image;
pub mod input;
pub mod instance;
pub mod lease;
pub mod location;
pub mod metadata;
mod minisign;
pub mod model;
pub mod node;
pub mod osie;
pub mod output;
mod password;
pub mod power;
pub mod range;
pub mod resource;
pub mod selector;
pub mod site;
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
use connect::{Connection, Io};
use image::{ImageCommand, server as image_server};
use resource::ResourceCommand;
use tinwright::node::v1::Node;

/// The client commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create or change the objects in files, of all kinds
    Apply(ServerArguments<resource::ApplyOptions>),
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
    Node(ServerCommand<ResourceCommand<Node>>),
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
    Events(ServerArguments<events::EventsCommand>),
    /// Explain and list network boots of machines
    Boot(ServerCommand<boot::BootCommand>),
    /// Explain responses of the metadata service
    Metadata(ServerCommand<metadata::MetadataCommand>),
    /// Take images, templates, objects and files from one site to another by a file
    Site(ServerCommand<site::SiteCommand>),
    /// Manage contexts: the sites that commands can be sent to
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Build the installation environment
    #[command(subcommand)]
    Osie(osie::OsieCommand),
    /// Fetch or build disk images, and manage those of a server
    #[command(subcommand)]
    Image(ImageCommand),
}

/// A command that is sent to a server.
#[derive(Debug, clap::Args)]
pub struct ServerCommand<C: clap::Subcommand> {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: C,
}

/// A command without subcommands that is sent to a server.
#[derive(Debug, clap::Args)]
pub struct ServerArguments<A: clap::Args> {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    command: A,
}

/// Runs `command`, and prints an error as one line on standard error.
pub fn run(command: Command) -> ExitCode {
    finish(run_command(command, &mut std::io::stdout()))
}

/// Writes a backup of the store of the server at `connection` to `file`, or to standard output for `-`.
pub fn backup(connection: &Connection, file: &Path) -> ExitCode {
    let backup = async |io: &mut Io<'_>| store::backup(io.channel, file).await;
    finish(connected(connection, &mut std::io::stdout(), backup))
}

/// Lets content of images be collected again by the server at `connection`, after a restore of its store.
pub fn resume(connection: &Connection) -> ExitCode {
    let resume = async |io: &mut Io<'_>| store::resume(io).await;
    finish(connected(connection, &mut std::io::stdout(), resume))
}

/// Runs `work`, and prints an error as one line on standard error.
fn finish(work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.context("starting").and_then(|runtime| runtime.block_on(work)) {
        Err(error) if !error.is::<output::Closed>() => {
            for line in failure::lines(&error) {
                eprintln!("tinwright: {line}");
            }
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Runs `command`, and prints to `out`. [`failure::lines`] renders its error.
pub async fn run_command(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    /// Runs the command of a module on a connection to its server.
    macro_rules! connected {
        ($it:ident, $module:ident $(, $argument:expr)?) => {{
            let run =
                async |io: &mut Io<'_>| $module::run($it.command, $($argument,)? io).await;
            connected(&$it.connection, out, run).await
        }};
    }
    match command {
        Command::Apply(it) => connected!(it, apply),
        Command::Hardware(it) => connected!(it, hardware),
        Command::Location(it) => connected!(it, location),
        Command::Model(it) => connected!(it, model),
        Command::Instance(it) => connected!(it, instance),
        Command::Template(it) => connected!(it, template),
        Command::Workflow(it) => connected!(it, workflow),
        Command::Power(it) => connected!(it, power),
        Command::Node(it) => connected!(it, resource),
        Command::Stack(it) => connected!(it, stack),
        Command::Subnet(it) => connected!(it, subnet),
        Command::Range(it) => connected!(it, range),
        Command::Address(it) => connected!(it, address),
        Command::Lease(it) => connected!(it, lease),
        Command::Tenant(it) => connected!(it, tenant),
        Command::Identity(it) => connected!(it, identity, it.connection.servers()?),
        Command::Boot(it) => connected!(it, boot),
        Command::Events(it) => connected!(it, events),
        Command::Metadata(it) => connected!(it, metadata),
        Command::Site(it) => connected!(it, site),
        Command::Context(command) => context::run(command, out),
        Command::Osie(command) => osie::run(command),
        Command::Image(ImageCommand::Server(it)) => {
            let it = *it;
            connected!(it, image_server)
        }
        Command::Image(ImageCommand::Fetch(fetch)) => fetch.run(out).await,
        Command::Image(ImageCommand::Local(command)) => image::run(command, out).await,
    }
}

/// Runs `command` on a connection. If the connection breaks, the error is the cause of that.
async fn connected(
    connection: &Connection,
    out: &mut dyn Write,
    command: impl AsyncFnOnce(&mut Io<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let channel = &connection.open().await?;
    // Each caller's future has room for the largest command.
    match Box::pin(command(&mut Io { channel, out })).await {
        Err(error) => Err(connection.explain(error).await),
        Ok(()) => Ok(()),
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
    let base = user_directory(variable, home);
    let base =
        base.with_context(|| format!("neither {variable} nor HOME is set: give {option}"))?;
    Ok(base.join("tinwright"))
}

/// Returns the directory in the environment `variable`, or else the directory `home` in the user's home. An empty variable is as one that is not set
/// (XDG Base Directory Specification).
fn user_directory(variable: &str, home: &str) -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    of(variable).map(PathBuf::from).or_else(|| Some(PathBuf::from(of("HOME")?).join(home)))
}

#[cfg(test)]
mod tests;
