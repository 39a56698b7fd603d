//! PID 1 of a container, from its creation to the execution of the image's program.
//!
//! The process is single and has nothing open but its output and a socket to the supervisor, which `execve` closes. It is
//! killed when the supervisor dies. A program with other privileges than its starter's, or one that asks for it, loses that
//! setting (prctl(2), `PR_SET_PDEATHSIG`); the daemon ends what is left of such a container when it finds it.

mod devices;
mod mounts;
mod root;

use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::Mode;
use rustix::process::{Signal, set_parent_process_death_signal, setsid, umask};

use crate::cgroup::Cgroup;
use crate::command::split_command;
use crate::descriptors;
use crate::log::format_line;
use crate::record::{Fault, InStep};
use crate::spec::Spec;
use crate::supervisor::handshake::{Assignment, MAPPED, Message, send};

/// The greatest signal number of Linux.
const MAX_SIGNAL: i32 = 64;
/// systemd reads from this variable that it runs in a container (systemd's CONTAINER_INTERFACE); other values than the
/// names of container managers mean "another one".
const CONTAINER_VARIABLE: &str = "container=other";

/// Sets up the container, and executes the image's program.
///
/// # Errors
/// A step failed. The supervisor was told which.
pub(crate) fn main() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    descriptors::close_inherited()?;
    setsid()?;
    let supervisor = descriptors::take_stdin()?;
    // The end of the socket: the supervisor died before its death could be noticed.
    let assignment = read_assignment(&supervisor)?;
    let Err(fault) = run(&assignment, &supervisor);
    step(&format!("failed: {fault}"));
    send(&supervisor, &Message::Failed(fault))?;
    Err(io::ErrorKind::Other.into())
}

fn read_assignment(supervisor: &UnixStream) -> io::Result<Assignment> {
    let mut line = String::new();
    // Nothing follows the line before an answer to this process, so that the reader takes no more than the line.
    BufReader::new(supervisor).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes a line to the log.
fn step(text: &str) {
    // The supervisor is the only reader; without it this process is about to be killed.
    let _written = io::stdout().write_all(format_line(SystemTime::now(), "init", text).as_bytes());
}

fn run(
    assignment: &Assignment,
    supervisor: &UnixStream,
) -> Result<std::convert::Infallible, Fault> {
    let Assignment { spec, cgroup } = assignment;
    step("entering the control group");
    Cgroup::from_directories(cgroup.clone()).enter(&spec.limits).in_step("control group")?;
    step("creating namespaces");
    unshare(namespaces(spec)).in_step("namespaces")?;
    step("entering the image");
    root::enter(&spec.image)?;
    let previous = umask(Mode::empty());
    step("mounting file systems");
    mounts::mount_all(spec.systemd)?;
    step("creating devices");
    devices::create_all()?;
    umask(previous);
    if spec.namespaces.user {
        step("entering the user namespace");
        enter_user_namespace(supervisor).in_step("user namespace")?;
    }
    step("executing the program");
    execute(spec, supervisor)
}

fn namespaces(spec: &Spec) -> CloneFlags {
    let optional = [
        (spec.namespaces.net, CloneFlags::CLONE_NEWNET),
        (spec.namespaces.cgroup, CloneFlags::CLONE_NEWCGROUP),
    ];
    let always = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    optional.into_iter().filter(|(wanted, _)| *wanted).fold(always, |flags, (_, flag)| flags | flag)
}

/// Enters a user namespace, with a copy of the mounts that belongs to it. This comes last: there are no device nodes and no
/// new instances of most file systems in it.
fn enter_user_namespace(mut supervisor: &UnixStream) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    send(supervisor, &Message::MapIds)?;
    let mut answer = [0];
    supervisor.read_exact(&mut answer)?;
    if answer == [MAPPED] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Executes the image's program. `execve` itself, as `execvp` would give a file of unknown format to a shell.
fn execute(spec: &Spec, supervisor: &UnixStream) -> Result<std::convert::Infallible, Fault> {
    let words = split_command(&spec.command, spec.quotes).in_step("command")?;
    let words: Vec<CString> =
        words.into_iter().map(CString::new).collect::<Result<_, _>>().in_step("command")?;
    let program = words.first().ok_or("empty").in_step("command")?;
    let environment: Vec<CString> = if spec.systemd {
        vec![CString::new(CONTAINER_VARIABLE).in_step("environment")?]
    } else {
        Vec::new()
    };
    descriptors::null_stdin().in_step("standard input")?;
    reset_signals().in_step("signals")?;
    // Again, as a change of credentials clears it. If the supervisor died meanwhile, the message fails.
    set_parent_process_death_signal(Some(Signal::KILL)).in_step("parent death signal")?;
    send(supervisor, &Message::Executing).in_step("channel")?;
    nix::unistd::execve(program, &words, &environment).in_step("execve")
}

/// Gives each signal its default action in the image's program: `execve` resets a signal that has a handler, and keeps an
/// ignored one ignored.
fn reset_signals() -> io::Result<()> {
    // The C library keeps the first two real-time signals for itself and refuses them.
    let reserved = 32..=33;
    let usable = |signal: &i32| {
        !signal_hook::consts::FORBIDDEN.contains(signal) && !reserved.contains(signal)
    };
    for signal in (1..=MAX_SIGNAL).filter(usable) {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}
