//! Descriptors of the processes that the program's own executable is started as.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::dup2_stdin;

/// Closes every descriptor above 2. Call this first in `main`: what the process opens afterwards is its own, and is closed
/// by `execve`, as the standard library opens everything with `O_CLOEXEC`.
///
/// # Errors
/// `/proc` cannot be read.
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

/// Takes the socket that this process was given as standard input; standard input becomes `/dev/null`.
///
/// # Errors
/// The descriptor cannot be duplicated, or `/dev/null` not opened.
pub(crate) fn take_stdin() -> io::Result<UnixStream> {
    let socket = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    null_stdin()?;
    Ok(UnixStream::from(socket))
}

/// Makes `/dev/null` standard input.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn null_stdin() -> io::Result<()> {
    let null = File::open("/dev/null")?;
    dup2_stdin(&null)?;
    Ok(())
}

/// The path of `name` in the open directory `directory`, short enough for a socket's address.
pub(crate) fn path_in(directory: &File, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}
