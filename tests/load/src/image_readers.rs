//! Many machines that download one file: connections in one thread, whose bytes are discarded in the kernel.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketType, bind, connect, recv, socket};

use crate::http::request;
use crate::http_load::{Target, response_size};
use crate::process::Measured;

/// Number of readers.
pub const READERS: usize = 100;
/// Duration of a measurement.
const DURATION: Duration = Duration::from_secs(3);
/// Longest wait for a byte of any reader.
const STALL: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// The most bytes that are discarded at a time.
const DISCARD_BYTES: usize = 1 << 20;
/// The longest head of a response.
const MAX_HEAD_BYTES: usize = 4096;

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes of files.
    pub bytes: u64,
    /// Elapsed time.
    pub elapsed: Duration,
    /// The server's processor time.
    pub cpu: Duration,
}

/// Downloads `target` by all readers from `server`, again and again. `target.client` is the address of the first reader.
pub fn measure(server: Measured<'_>, target: &Target) -> anyhow::Result<Received> {
    server.network.enter()?;
    let mut readers = Vec::new();
    for number in 0..READERS {
        readers.push(Reader::start(number, target)?);
    }
    let mut scratch = vec![0; DISCARD_BYTES];
    let (before, start) = (server.process.cpu_time()?, Instant::now());
    let mut bytes = 0;
    while start.elapsed() < DURATION {
        for number in ready(&readers)? {
            let reader = readers.get_mut(number).context("no such reader")?;
            bytes += reader.discard(&mut scratch)?;
        }
    }
    let elapsed = start.elapsed();
    Ok(Received { bytes, elapsed, cpu: server.process.cpu_time()? - before })
}

/// Waits for bytes. Returns the numbers of the readers that have some.
fn ready(readers: &[Reader]) -> anyhow::Result<Vec<usize>> {
    let mut waiting: Vec<_> =
        readers.iter().map(|reader| PollFd::new(&reader.stream, PollFlags::IN)).collect();
    let count = poll(&mut waiting, Some(&STALL))?;
    anyhow::ensure!(count > 0, "no byte within {} s", STALL.tv_sec);
    let is_ready = |(_, waiting): &(usize, &PollFd<'_>)| !waiting.revents().is_empty();
    Ok(waiting.iter().enumerate().filter(is_ready).map(|(number, _)| number).collect())
}

/// A machine that downloads the file.
struct Reader {
    stream: TcpStream,
    request: Vec<u8>,
    /// Bytes of the response that are not received yet.
    left: u64,
}

impl Reader {
    /// Connects from an address of its own, and sends the first request.
    fn start(number: usize, target: &Target) -> anyhow::Result<Self> {
        let client = target.client.to_bits() + u32::try_from(number)?;
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(client.into(), 0))?;
        connect(&socket, &target.server)?;
        let request = request(target.server, &target.path, true).into_bytes();
        let mut reader = Self { stream: TcpStream::from(socket), request, left: 0 };
        reader.ask()?;
        Ok(reader)
    }

    /// Sends the request, and reads the head of the response.
    fn ask(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.request)?;
        let mut head = Vec::new();
        // Byte by byte, so that none of the file is read.
        let whole = loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).context("reading the head of a response")?;
            head.push(byte[0]);
            if let Some(whole) = response_size(&head)? {
                break whole;
            }
            anyhow::ensure!(head.len() < MAX_HEAD_BYTES, "the head of a response is too long");
        };
        self.left = u64::try_from(whole - head.len())?;
        Ok(())
    }

    /// Discards what has arrived. Returns the number of bytes.
    fn discard(&mut self, scratch: &mut [u8]) -> anyhow::Result<u64> {
        let most = scratch.len().min(usize::try_from(self.left)?);
        let part = scratch.get_mut(..most).unwrap_or_default();
        // TCP discards the bytes in place of copying them (tcp(7), MSG_TRUNC).
        let (count, _) = recv(&self.stream, part, RecvFlags::TRUNC)?;
        anyhow::ensure!(count > 0, "a response ended early");
        let count = u64::try_from(count)?;
        self.left -= count;
        if self.left == 0 {
            self.ask()?;
        }
        Ok(count)
    }
}
