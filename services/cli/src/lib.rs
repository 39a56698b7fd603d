//! The client commands of `tinwright`.
//!
//! - [`connect`]: finding the server and proving who we are.
//! - [`hardware`]: commands on machines; one module a noun.
//! - [`input`]: objects from YAML and JSON files; [`tinkerbell`]: hardware as Tinkerbell's users push it.
//! - [`output`]: tables, JSON, YAML; [`failure`]: one line that says what to do.

pub mod connect;
pub mod failure;
pub mod hardware;
pub mod input;
pub mod output;
pub mod tinkerbell;

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
}

/// Carries out `command`; tells what went wrong in one line on standard error.
pub fn run(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("starting").and_then(|runtime| {
        runtime.block_on(async {
            match command {
                Command::Hardware(command) => hardware::run(command).await,
            }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tinwright: {}", failure::line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Prints what makes `shell` complete the commands of `program`.
pub fn completions(shell: Shell, program: &mut clap::Command) {
    clap_complete::generate(shell, program, "tinwright", &mut std::io::stdout());
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
