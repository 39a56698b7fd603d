//! The conversation between the supervisor and its child until that executes the image's program.
//!
//! The socket is closed by `execve`: its end after [`Message::Executing`] means that the program runs.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::record::Fault;
use crate::spec::Spec;

/// The supervisor's answer to [`Message::MapIds`].
pub(crate) const MAPPED: u8 = b'm';
/// The longest message, in bytes; causes are texts of our own and of the kernel.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The first line for the child, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) spec: Spec,
    /// The directories of the control group that the child enters.
    pub(crate) cgroup: Vec<PathBuf>,
}

/// A line of the child, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// It is in its user namespace, and needs its id maps.
    MapIds,
    /// `execve` is next.
    Executing,
    /// A step failed; the process ends.
    Failed(Fault),
}

/// Writes `value` as a line.
///
/// # Errors
/// The other side is gone.
pub(crate) fn send(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// News of the child.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartProgress {
    /// Nothing new.
    Pending,
    /// It waits for its id maps.
    MapIds,
    /// The image's program executes.
    Executed,
    /// It cannot be executed.
    Failed(Fault),
}

/// The supervisor's side.
pub(super) struct Handshake {
    stream: UnixStream,
    received: Vec<u8>,
    executing: bool,
}

impl Handshake {
    /// Sends `assignment` to the child at the other end of `stream`.
    pub(super) fn start(stream: UnixStream, assignment: &Assignment) -> io::Result<Self> {
        send(&stream, assignment)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), executing: false })
    }

    /// The descriptor to wait for.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Tells the child that its ids are mapped.
    pub(super) fn confirm_maps(&mut self) -> io::Result<()> {
        self.stream.write_all(&[MAPPED])
    }

    /// Reads what has arrived.
    pub(super) fn advance(&mut self) -> StartProgress {
        let mut buffer = [0; 1024];
        let closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
            if self.received.len() > MAX_MESSAGE_BYTES {
                return StartProgress::Failed(fault("message too long"));
            }
        };
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Message::MapIds) => return StartProgress::MapIds,
                Ok(Message::Executing) => self.executing = true,
                Ok(Message::Failed(fault)) => return StartProgress::Failed(fault),
                Err(error) => return StartProgress::Failed(fault(&error.to_string())),
            }
        }
        match (closed, self.executing) {
            (false, _) => StartProgress::Pending,
            (true, true) => StartProgress::Executed,
            (true, false) => StartProgress::Failed(fault("ended before the program was executed")),
        }
    }
}

fn fault(cause: &str) -> Fault {
    Fault::new("container process", cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Handshake, UnixStream) {
        let (supervisor, child) = UnixStream::pair().unwrap();
        supervisor.set_nonblocking(true).unwrap();
        (Handshake { stream: supervisor, received: Vec::new(), executing: false }, child)
    }

    #[test]
    fn the_end_of_the_socket_after_executing_means_that_the_program_runs() {
        let (mut handshake, child) = pair();
        assert_eq!(handshake.advance(), StartProgress::Pending);
        send(&child, &Message::MapIds).unwrap();
        assert_eq!(handshake.advance(), StartProgress::MapIds);
        send(&child, &Message::Executing).unwrap();
        assert_eq!(handshake.advance(), StartProgress::Pending);
        drop(child);
        assert_eq!(handshake.advance(), StartProgress::Executed);
    }

    #[test]
    fn a_failure_and_an_early_end_are_failures() {
        let (mut handshake, child) = pair();
        let cause =
            Fault { invalid: false, step: "execve".into(), cause: "exec format error".into() };
        send(&child, &Message::Executing).unwrap();
        send(&child, &Message::Failed(cause.clone())).unwrap();
        drop(child);
        assert_eq!(handshake.advance(), StartProgress::Failed(cause));
        let (mut handshake, child) = pair();
        drop(child);
        assert!(matches!(handshake.advance(), StartProgress::Failed(_)));
    }
}
