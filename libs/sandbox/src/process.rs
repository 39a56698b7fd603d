//! Starts this program again as the next process of a sandbox, and takes over in it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::stdio::{dup2_stdin, dup2_stdout};

use crate::link::{End, Order, send};

/// First argument of a process of a sandbox; the second names the process.
pub(crate) const MARKER: &str = "--sandbox-process";
/// Search path of a job, its only variable.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Name in process lists.
const PROCESS_NAME: &str = "sandbox";

/// A process of a sandbox, and the socket to it.
pub(crate) struct Process {
    child: Child,
    /// Readable once the process has ended.
    pub(crate) descriptor: OwnedFd,
    /// Socket to the process. Shutting it down stops the job.
    pub(crate) link: UnixStream,
}

impl Process {
    /// Starts `program` as the process `name` with the output of this process, and sends `order`.
    pub(crate) fn start(program: &OsStr, name: &str, order: &Order) -> io::Result<Self> {
        let (link, child_link) = UnixStream::pair()?;
        let mut command = command(program, name);
        let child = command.stdin(OwnedFd::from(child_link)).spawn()?;
        drop(command);
        let descriptor = pidfd_open(process_id(&child)?, PidfdFlags::empty())?;
        let process = Self { child, descriptor, link };
        // A process that ended early is reported by its descriptor, with its exit status.
        let _sent = send(&process.link, order);
        Ok(process)
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        // ESRCH: it ended by itself.
        let _sent = pidfd_send_signal(&self.descriptor, Signal::KILL);
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> io::Result<End> {
        Ok(end(self.child.wait()?))
    }
}

fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or_default()),
    }
}

fn process_id(child: &Child) -> io::Result<Pid> {
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the command that runs `program` as the process `name`.
pub(crate) fn command(program: &OsStr, name: &str) -> Command {
    let mut command = Command::new(program);
    command.arg0(PROCESS_NAME).args([MARKER, name]);
    command.env_clear().env("PATH", SEARCH_PATH).current_dir("/");
    command
}

/// Closes every descriptor above 2. `/proc` is needed.
pub(crate) fn close_inherited() -> io::Result<()> {
    let number =
        |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok();
    let descriptors: Vec<RawFd> = fs::read_dir("/proc/self/fd")?.filter_map(number).collect();
    for descriptor in descriptors.into_iter().filter(|descriptor| *descriptor > 2) {
        // EBADF: the directory that was just read.
        let _closed = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// Takes the socket that this process was given as standard input, which becomes `/dev/null`.
pub(crate) fn take_link() -> io::Result<UnixStream> {
    let socket = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}

/// Takes standard output, which becomes a second standard error.
pub(crate) fn take_output() -> io::Result<File> {
    let output = fcntl_dupfd_cloexec(io::stdout(), 3)?;
    dup2_stdout(io::stderr())?;
    Ok(File::from(output))
}
