//! The control socket: stop requests of the daemon, and connections that tell it the end by closing.
//!
//! A request is a line: `watch`, or `stop <milliseconds>`. The answer to both is `ok`, once the request is recorded. All
//! connections stay open until the container has ended and its record is written.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::descriptors::path_in;
use crate::record::{CONTROL, RunDirectory};

/// Connections at the same time; a daemon that finds its connection closed connects again.
const MAX_CLIENTS: usize = 64;
/// The longest request, in bytes.
const MAX_REQUEST_BYTES: usize = 64;
/// The longest grace that a request may ask for.
const MAX_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The socket and its connections.
pub(super) struct Clients {
    listener: UnixListener,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    unanswered: usize,
}

impl Clients {
    /// Binds the control socket of `directory`.
    pub(super) fn bind(directory: &RunDirectory) -> io::Result<Self> {
        let opened = File::open(&directory.path)?;
        let listener = UnixListener::bind(path_in(&opened, CONTROL))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new() })
    }

    /// The descriptors to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd())
            .chain(self.clients.iter().map(|client| client.stream.as_fd()))
    }

    /// Accepts connections and reads requests. Returns the grace of each stop request.
    pub(super) fn read(&mut self) -> Vec<Duration> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() < MAX_CLIENTS && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, received: Vec::new(), unanswered: 0 });
            }
        }
        let mut stops = Vec::new();
        self.clients.retain_mut(|client| client.read(&mut stops));
        stops
    }

    /// Answers the requests that were read.
    pub(super) fn acknowledge(&mut self) {
        self.clients.retain_mut(|client| {
            let answer = "ok\n".repeat(std::mem::take(&mut client.unanswered));
            client.stream.write_all(answer.as_bytes()).is_ok()
        });
    }
}

impl Client {
    /// Reads what has arrived. False if the connection is closed or sends something else than requests.
    fn read(&mut self, stops: &mut Vec<Duration>) -> bool {
        let mut buffer = [0; MAX_REQUEST_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                match parse(&line) {
                    Some(stop) => stops.extend(stop),
                    None => return false,
                }
                self.unanswered += 1;
            }
            if self.received.len() > MAX_REQUEST_BYTES {
                return false;
            }
        }
    }
}

/// The grace of the stop request in `line`, if it is one; nothing if it is no request at all.
fn parse(line: &[u8]) -> Option<Option<Duration>> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    if line == "watch" {
        return Some(None);
    }
    let milliseconds = line.strip_prefix("stop ")?.parse().ok()?;
    Some(Some(Duration::from_millis(milliseconds).min(MAX_GRACE)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn requests_are_lines_and_anything_else_closes_the_connection() {
        assert_eq!(parse(b"watch\n"), Some(None));
        assert_eq!(parse(b"stop 1500\n"), Some(Some(Duration::from_millis(1500))));
        assert_eq!(parse(b"stop 18446744073709551615\n"), Some(Some(MAX_GRACE)));
        for line in [&b"stop\n"[..], b"stop -1\n", b"start\n", b"\xff\n", b"\n"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn each_request_is_answered_once_and_a_malformed_client_is_cut() {
        let parent = tempfile::tempdir().unwrap();
        let directory = RunDirectory { path: parent.path().to_owned() };
        let mut clients = Clients::bind(&directory).unwrap();
        let mut good = UnixStream::connect(parent.path().join(CONTROL)).unwrap();
        let mut bad = UnixStream::connect(parent.path().join(CONTROL)).unwrap();
        good.write_all(b"watch\nstop 5\nsto").unwrap();
        bad.write_all(&[b'a'; 200]).unwrap();
        assert_eq!(clients.read(), [Duration::from_millis(5)]);
        clients.acknowledge();
        assert_eq!(io::Read::read(&mut bad, &mut [0; 1]).unwrap_or(0), 0);
        good.write_all(b"p 7\n").unwrap();
        assert_eq!(clients.read(), [Duration::from_millis(7)]);
        clients.acknowledge();
        drop(clients);
        let answers: Vec<String> = BufReader::new(good).lines().map(|line| line.unwrap()).collect();
        assert_eq!(answers, ["ok"; 3]);
    }
}
