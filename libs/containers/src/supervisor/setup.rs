//! The supervisor's work before the container's first process exists.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shared_child::SharedChild;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};

use super::control::Clients;
use super::event_loop::Supervisor;
use super::handshake::{Assignment, Handshake};
use super::{INIT, finish, own_program};
use crate::cgroup::Cgroup;
use crate::command::split_command;
use crate::log::Log;
use crate::log::output::Output;
use crate::process::ProcessIdentity;
use crate::program::check_program;
use crate::record::{Fault, InStep, Phase, Record, RunDirectory};
use crate::spec::Spec;

/// `CLONE_NEWTIME` (clone(2)), which nix does not name.
const NEW_TIME_NAMESPACE: CloneFlags = CloneFlags::from_bits_retain(0x80);

/// Runs the container in the run directory `path` to its end.
///
/// # Errors
/// The directory has no specification, or belongs to another supervisor or to a run that is over.
pub(super) fn run(subcommand: &[OsString], path: PathBuf, report: UnixStream) -> io::Result<()> {
    let directory = RunDirectory { path };
    let lock = directory.try_lock()?.ok_or(io::ErrorKind::ResourceBusy)?;
    if directory.record()?.is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let spec = directory.spec()?.ok_or(io::ErrorKind::NotFound)?;
    let cgroup = Cgroup::find(&spec.cgroup)?;
    let record = RunDirectory::new_record(cgroup.directories().to_vec(), Phase::Starting)?;
    directory.write_record(&record)?;
    let log = Log::new(spec.container, &spec.log);
    let start =
        Start { subcommand, directory: &directory, spec: &spec, log: &log, record: &record };
    match start.perform(cgroup) {
        Ok(Parts { image, cgroup, clients, terminate, init, handshake, output }) => {
            let (handshake, report) = (Some(handshake), Some(report));
            let (stop, fault) = Default::default();
            let supervisor = Supervisor {
                spec,
                directory,
                lock,
                record,
                image,
                cgroup,
                init,
                handshake,
                report,
                output,
                clients,
                terminate,
                stop,
                fault,
            };
            supervisor.run()
        }
        Err(fault) => finish::not_started(&log, &directory, record, &report, fault),
    }
}

/// A start and what it needs.
struct Start<'a> {
    subcommand: &'a [OsString],
    directory: &'a RunDirectory,
    spec: &'a Spec,
    log: &'a Log,
    record: &'a Record,
}

/// What a successful start made.
struct Parts {
    image: File,
    cgroup: Cgroup,
    clients: Clients,
    terminate: UnixStream,
    init: InitProcess,
    handshake: Handshake,
    output: Output,
}

/// The container's first process.
pub(super) struct InitProcess {
    pub(super) child: SharedChild,
    /// Readable once the process has ended.
    pub(super) descriptor: OwnedFd,
    pub(super) identity: ProcessIdentity,
}

impl Start<'_> {
    fn perform(&self, mut cgroup: Cgroup) -> Result<Parts, Fault> {
        self.step("starting container");
        self.step("validating image");
        let image = open_image(self.spec).in_step("image")?;
        self.step("validating init");
        let words = split_command(&self.spec.command, self.spec.quotes).map_err(invalid)?;
        check_program(&image, words.first().map_or("", |program| program)).map_err(invalid)?;
        let clients = Clients::bind(self.directory).in_step("control socket")?;
        let terminate = handle_signals().in_step("signal handlers")?;
        let created = cgroup.create(&self.spec.limits).in_step("control group");
        match created.and_then(|()| self.start_init(&cgroup)) {
            Ok((init, handshake, output)) => {
                Ok(Parts { image, cgroup, clients, terminate, init, handshake, output })
            }
            Err(fault) => {
                Cgroup::from_directories(self.record.cgroup.clone()).destroy();
                Err(fault)
            }
        }
    }

    fn step(&self, text: &str) {
        // A log that cannot be written does not keep a container from running.
        let _written = self.log.line(SystemTime::now(), text);
    }

    /// Starts the container's first process and gives it its specification.
    fn start_init(&self, cgroup: &Cgroup) -> Result<(InitProcess, Handshake, Output), Fault> {
        let (reader, writer) = io::pipe().in_step("output pipe")?;
        rustix::io::ioctl_fionbio(&reader, true).in_step("output pipe")?;
        let output = Output::new(self.log.clone(), reader, &self.spec.log, Instant::now());
        let (channel, child_channel) = UnixStream::pair().in_step("channel")?;
        let mut command = own_program(self.subcommand, child_channel.into());
        command.arg(INIT).stdout(writer.try_clone().in_step("output pipe")?).stderr(writer);
        let init = self.spawn(&mut command).in_step("container process")?;
        drop(command);
        let assignment =
            Assignment { spec: self.spec.clone(), cgroup: cgroup.directories().to_vec() };
        match Handshake::start(channel, &assignment).in_step("channel") {
            Ok(handshake) => Ok((init, handshake, output)),
            Err(fault) => {
                init.identity.kill();
                init.child.wait().in_step("container process")?;
                Err(fault)
            }
        }
    }

    /// Starts `command` as PID 1 of a new PID namespace. The other namespaces are made by that process, so that this one
    /// stays in the host's.
    fn spawn(&self, command: &mut Command) -> io::Result<InitProcess> {
        let mut flags = CloneFlags::CLONE_NEWPID;
        if self.spec.namespaces.time {
            flags |= NEW_TIME_NAMESPACE;
        }
        unshare(flags)?;
        let child = SharedChild::spawn(command)?;
        let pid = child.id().cast_signed();
        let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let descriptor = pidfd_open(process, PidfdFlags::empty())?;
        Ok(InitProcess { child, descriptor, identity: ProcessIdentity::of(pid)? })
    }
}

fn invalid(error: impl std::fmt::Display) -> Fault {
    Fault { invalid: true, ..Fault::new("command", error) }
}

/// Opens the image for the check of its program and for the flush at the end.
fn open_image(spec: &Spec) -> io::Result<File> {
    let image = File::open(&spec.image)?;
    if image.metadata()?.is_dir() { Ok(image) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Turns SIGTERM into a byte on the returned socket, and ignores the signals of terminals and closed sockets.
fn handle_signals() -> io::Result<UnixStream> {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGPIPE] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let (receiver, sender) = UnixStream::pair()?;
    receiver.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGTERM, sender)?;
    Ok(receiver)
}
