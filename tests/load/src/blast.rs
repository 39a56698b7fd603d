//! HTTP requests as fast as the server answers: a closed loop over some connections, by one thread.
//!
//! All connections are asked, then all are read: while the bench reads the first, the server is at work on the last. So it
//! always has something to do, and the bench needs no more than two calls of the system for a request.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::http;
use crate::process::Measured;

/// How many connections there are.
const CONNECTIONS: usize = 32;
/// How long they ask.
const LENGTH: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer, in bytes.
const LONGEST: usize = 16 * 1024;

/// Whether a connection is for one request or for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// For all.
    Kept,
    /// Each for one.
    Fresh,
}

/// Who asks for what.
#[derive(Clone, Debug)]
pub struct Question {
    /// From where.
    pub own: Ipv4Addr,
    /// Whom.
    pub server: SocketAddrV4,
    /// For what.
    pub path: String,
}

/// What came of it: every request was answered with 200.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Requests.
    pub requests: usize,
    /// For how long.
    pub took: Duration,
    /// The server's processor time.
    pub processor: Duration,
}

/// Asks `server` the `questions` in turns.
pub fn blast(
    server: Measured<'_>,
    questions: &[Question],
    connections: Connections,
) -> anyhow::Result<Answered> {
    server.network.enter()?;
    let mut turn = questions.iter().cycle();
    let mut next = || turn.next().context("no questions");
    let kept = connections == Connections::Kept;
    let mut open = Vec::new();
    let (before, start) = (server.process.processor()?, Instant::now());
    let mut requests = 0;
    while start.elapsed() < LENGTH {
        if open.is_empty() {
            open = (0..CONNECTIONS).map(|_| Open::new(next()?, kept)).collect::<Result<_, _>>()?;
        }
        for connection in &mut open {
            connection.stream.write_all(&connection.request)?;
        }
        for connection in &mut open {
            connection.answered()?;
        }
        requests += open.len();
        if !kept {
            open.clear();
        }
    }
    let took = start.elapsed();
    Ok(Answered { requests, took, processor: server.process.processor()? - before })
}

/// A connection.
struct Open {
    stream: TcpStream,
    request: Vec<u8>,
}

impl Open {
    fn new(question: &Question, kept: bool) -> anyhow::Result<Self> {
        // The standard library's own binds to no address before it connects.
        let own = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&own, &SocketAddrV4::new(question.own, 0))?;
        connect(&own, &question.server).with_context(|| format!("reaching {}", question.server))?;
        let stream = TcpStream::from(own);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = http::request(question.server, &question.path, kept).into_bytes();
        Ok(Self { stream, request })
    }

    /// Reads one answer, which has to be a good one, to its end.
    fn answered(&mut self) -> anyhow::Result<()> {
        let (mut buffer, mut length) = ([0; LONGEST], 0);
        loop {
            let free = buffer.get_mut(length..).unwrap_or_default();
            let more = self.stream.read(free)?;
            anyhow::ensure!(more > 0, "an answer is cut off, or too long");
            length += more;
            let so_far = buffer.get(..length).unwrap_or_default();
            if let Some(whole) = size(so_far)?
                && length >= whole
            {
                return Ok(());
            }
        }
    }
}

/// How long an answer is that begins like this, once that can be told. Fails unless it is a 200 that tells its length.
fn size(answer: &[u8]) -> anyhow::Result<Option<usize>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = answer.windows(END.len()).position(|window| window == END) else {
        return Ok(None);
    };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "answered {head:?}");
    let named = |line: &&str| line.len() > 15 && line[..15].eq_ignore_ascii_case("content-length:");
    let line = head.lines().find(named).with_context(|| format!("no length in {head:?}"))?;
    let (_, body) = line.split_once(':').context("no length")?;
    Ok(Some(end + END.len() + body.trim().parse::<usize>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_it_says() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel";
        assert_eq!(size(text.as_bytes()).unwrap(), Some(text.len() + 2));
        assert_eq!(size(b"HTTP/1.1 200 OK\r\nContent-").unwrap(), None);
    }

    #[test]
    fn a_refusal_and_an_answer_of_unknown_length_are_no_answers() {
        assert!(size(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(size(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
