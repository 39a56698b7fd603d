//! The processes that the daemon's own executable is started as, by a hidden subcommand.
//!
//! | arguments after the subcommand | process |
//! |---|---|
//! | `launch <run directory>` | starts the supervisor and exits, so that it is no child of the daemon |
//! | `run <run directory>` | the supervisor |
//! | `init` | the container's PID 1, until it executes the image's program |
//!
//! All three need a process without other threads and without open files: call [`main`] before a runtime is started.

mod control;
mod event_loop;
mod finish;
pub(crate) mod handshake;
mod setup;
mod stop;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use nix::sys::signal::SigSet;

use crate::{descriptors, init};

pub(crate) const LAUNCH: &str = "launch";
const RUN: &str = "run";
const INIT: &str = "init";
/// The executable of this process, also after its file was replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Runs the process that `arguments` name: the program's arguments without its own name, beginning with the hidden
/// subcommand. Returns the exit status for the process.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let result = unblock_signals().and_then(|()| run_stage(&arguments));
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Unblocks all signals. A mask that the daemon got from its parent would reach the image's program, and would keep SIGTERM from
/// the supervisor.
fn unblock_signals() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

fn run_stage(arguments: &[OsString]) -> io::Result<()> {
    match arguments {
        [subcommand @ .., stage, directory] if stage == LAUNCH => launch(subcommand, directory),
        [subcommand @ .., stage, directory] if stage == RUN => {
            supervise(subcommand, Path::new(directory))
        }
        [.., stage] if stage == INIT => init::main(),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// This executable again, with `subcommand`, an empty environment and `stdin`.
fn own_program(subcommand: &[OsString], stdin: OwnedFd) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.args(subcommand).env_clear().stdin(stdin).current_dir("/");
    command
}

/// Starts the supervisor, which gets this process's standard input: the socket for its report to the daemon.
fn launch(subcommand: &[OsString], directory: &OsStr) -> io::Result<()> {
    descriptors::close_inherited()?;
    let report = descriptors::take_stdin()?;
    let mut command = own_program(subcommand, report.into());
    command.arg(RUN).arg(directory).stdout(Stdio::null()).stderr(Stdio::null());
    // Not waited for: this process exits, and the supervisor becomes a child of the host's init.
    let _supervisor = command.spawn()?;
    Ok(())
}

/// Runs the container of `directory` until no process of it is left.
fn supervise(subcommand: &[OsString], directory: &Path) -> io::Result<()> {
    descriptors::close_inherited()?;
    let report = descriptors::take_stdin()?;
    rustix::process::setsid()?;
    setup::run(subcommand, PathBuf::from(directory), report)
}
