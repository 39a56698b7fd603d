//! The client commands of `tinwright`.
//!
//! - [`connect`]: finding the server and proving who we are.
//! - [`noun`]: what can be done with every noun's objects; [`follow`]: watching them.
//! - [`hardware`], [`instance`], [`template`], [`workflow`], [`power`]: each noun's calls, and what only it has.
//! - [`boot`]: what machines boot and why, what they booted, and what they said.
//! - [`input`]: objects from YAML and JSON files; [`tinkerbell`]: hardware as Tinkerbell's users push it.
//! - [`output`]: tables, JSON, YAML; [`failure`]: one line that says what to do.
//! - [`metadata`]: whom the metadata service takes an address for.
//! - [`osie`]: making what machines boot into; the one command that asks no server.

pub mod boot;
pub mod connect;
pub mod failure;
pub mod follow;
pub mod hardware;
pub mod input;
pub mod instance;
pub mod metadata;
pub mod noun;
pub mod osie;
pub mod output;
pub mod power;
pub mod template;
pub mod tinkerbell;
pub mod workflow;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
pub use clap_complete::Shell;

/// Commands that speak to a server.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Machines the site owns
    #[command(subcommand, visible_alias = "hw")]
    Hardware(hardware::Command),
    /// What machines are occupied by
    #[command(subcommand)]
    Instance(instance::Command),
    /// Work that can be done on machines
    #[command(subcommand)]
    Template(template::Command),
    /// Work on machines
    #[command(subcommand)]
    Workflow(workflow::Command),
    /// Machines' power, what they boot, and their BMCs
    #[command(subcommand)]
    Power(power::Command),
    /// What machines boot from the network, and why
    #[command(subcommand)]
    Boot(boot::Command),
    /// What machines are told about themselves
    #[command(subcommand)]
    Metadata(metadata::Command),
    /// The environment machines are provisioned from
    #[command(subcommand)]
    Osie(osie::Command),
}

/// Carries out `command`; tells what went wrong in one line on standard error.
pub fn run(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime
        .context("starting")
        .and_then(|runtime| runtime.block_on(carry_out(command, &mut std::io::stdout())));
    match done {
        Err(error) if !error.is::<output::Closed>() => {
            eprintln!("tinwright: {}", failure::line(&error));
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

async fn carry_out(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Hardware(command) => hardware::run(command, out).await,
        Command::Instance(command) => instance::run(command, out).await,
        Command::Template(command) => template::run(command, out).await,
        Command::Workflow(command) => workflow::run(command, out).await,
        Command::Power(command) => power::run(command, out).await,
        Command::Boot(command) => boot::run(command, out).await,
        Command::Metadata(command) => metadata::run(command, out).await,
        Command::Osie(command) => osie::run(command),
    }
}

/// Prints what makes `shell` complete the commands of `program`.
pub fn completions(shell: Shell, program: &mut clap::Command) {
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "tinwright", &mut script);
    // A shell that reads no further has all it wants.
    drop(output::raw(&mut std::io::stdout(), &script));
}

/// Where a server keeps its data if nobody says: the same for the server and for the client beside it.
pub fn data() -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/tinwright"));
    }
    let own = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = own.or_else(home).context("neither XDG_STATE_HOME nor HOME is set: give --data")?;
    Ok(state.join("tinwright"))
}

#[cfg(test)]
mod tests;
