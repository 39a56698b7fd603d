//! TFTP: packets, file names, option negotiation and whole transfers.
//!
//! An input is a sequence of packets, each after its length in two bytes: a request, and the client's next packets.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use netboot::tftp::admission::{Admission, Limits};
use netboot::tftp::file_reader::FileReader;
use netboot::tftp::{OpenFile, RequestedFile};
use tftp::negotiation::{MAX_BLOCK_BYTES, MAX_WINDOW_BLOCKS};
use tftp::packet::FileRequest;
use tftp::{
    Burst, ClientPacket, ErrorCode, Event, NextStep, Transfer, TransferMode, TransferOptions,
    error_packet,
};

use crate::Target;

/// The longest packet that is parsed.
const MAX_PACKET_BYTES: usize = 1024;
/// Maximum number of bursts to a silent client: more than its retries of a window need, with one block in a burst.
const MAX_BURSTS: usize = 1000;
/// Bytes before the data of a DATA packet.
const HEADER_BYTES: usize = 4;

/// A file, and the rate limits of requests. Each input advances the time.
#[derive(Debug)]
pub struct Tftp {
    file: Bytes,
    admission: Admission,
    now: Instant,
}

impl Default for Tftp {
    fn default() -> Self {
        Self::new()
    }
}

impl Tftp {
    /// Creates the target with one file of many lines.
    pub fn new() -> Self {
        let file = Bytes::from("a line\r\nand another\n".repeat(5000));
        Self { file, admission: Admission::new(Limits::default()), now: Instant::now() }
    }

    /// Transfers the file of `request` to a client that sends `packets` and is silent after them.
    fn serve(&mut self, request: &FileRequest, packets: &[ClientPacket]) -> anyhow::Result<()> {
        let Some(mode) = TransferMode::of(request) else { return Ok(()) };
        let Some(file) = requested_file(request)? else { return Ok(()) };
        let length = file_length(&file).min(self.file.len());
        let size = (mode == TransferMode::Octet).then_some(length as u64);
        let options = TransferOptions::negotiate(&request.options, size);
        let block_bytes = options.block_bytes;
        anyhow::ensure!((8..=MAX_BLOCK_BYTES).contains(&block_bytes), "{block_bytes} bytes");
        let max_burst_bytes = usize::from(MAX_BLOCK_BYTES) * usize::from(MAX_WINDOW_BLOCKS);
        let mut session = TestSession {
            file: FileReader::new(OpenFile::Memory(self.file.slice(..length)), mode),
            transfer: Transfer::new(options, self.now),
            max_burst_bytes,
        };
        let mut next = NextStep::Send;
        for packet in packets {
            next = session.step(next, &event(packet, request), self.now)?;
        }
        for _ in 0..MAX_BURSTS {
            if let NextStep::End(_) = next {
                break;
            }
            self.now = self.now.max(session.transfer.deadline);
            next = session.step(next, &Event::DeadlinePassed, self.now)?;
        }
        anyhow::ensure!(
            matches!(next, NextStep::End(_)),
            "a transfer to a silent client does not end"
        );
        let acknowledged = session.transfer.acknowledged_bytes();
        // The last block may be counted as full. Netascii encodes some bytes as two.
        let max = 2 * length as u64 + u64::from(MAX_BLOCK_BYTES);
        anyhow::ensure!(acknowledged <= max, "{acknowledged} bytes of {length} acknowledged");
        Ok(())
    }
}

impl Target for Tftp {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let read = |name: &str, mode: &str, options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| format!("{name}\0{value}\0"));
            bytes(&format!("\0\x01{name}\0{mode}\0{}", options.collect::<String>()))
        };
        let ovmf = [("tsize", "0"), ("blksize", "1468"), ("windowsize", "4")];
        let ack = |block: u16| [[0, 4], block.to_be_bytes()].concat();
        let acks = |step: usize| (0..200).step_by(step).map(ack).collect::<Vec<_>>();
        let probe = error_packet(ErrorCode::OPTIONS_REFUSED, "User aborted the transfer");
        let data = [b"\0\x03\0\x01".as_slice(), &[7; 512]].concat();
        let sessions = [
            [vec![read("snponly.efi", "octet", &ovmf)], acks(4)].concat(),
            [vec![read("undionly.kpxe", "octet", &[("blksize", "1456")])], acks(1)].concat(),
            [vec![read("52-54-00-00-00-01/auto.ipxe", "netascii", &[])], acks(1)].concat(),
            [
                vec![read("pxelinux.cfg/01-52-54-00-00-00-01", "octet", &[("timeout", "6")])],
                acks(1),
            ]
            .concat(),
            vec![read("snponly.efi", "octet", &ovmf), probe.clone()],
            vec![bytes("\0\x02x\0octet\0"), data, probe],
            vec![bytes("\0\x06blksize\x008\0")],
        ];
        sessions
            .iter()
            .map(|packets| packets.iter().flat_map(|packet| frame(packet)).collect())
            .collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let texts = [
            "blksize\0",
            "windowsize\0",
            "timeout\0",
            "tsize\0",
            "rollover\0",
            "octet\0",
            "netascii\0",
            "mail\0",
            "0\0",
            "1\0",
            "8\0",
            "65464\0",
            "65535\0",
            "65536\0",
            "18446744073709551616\0",
            "../",
            "..\\",
            "/",
            "autoexec.ipxe",
            "pxelinux.cfg/",
            "01-52-54-00-00-00-01",
            "-00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "\r\n",
        ];
        let packets = (0..=7_u16).flat_map(|code| (0..6).map(move |block: u16| (code, block)));
        let packets = packets.map(|(code, block)| {
            [0, 4].into_iter().chain(code.to_be_bytes()).chain(block.to_be_bytes()).collect()
        });
        texts.into_iter().map(bytes).chain(packets).collect()
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let frames = split_frames(input);
        let parse =
            |frame: &&[u8]| ClientPacket::parse(frame.get(..MAX_PACKET_BYTES).unwrap_or(frame));
        let packets: Vec<_> = frames.iter().filter_map(parse).collect();
        let [first, packets @ ..] = &packets[..] else { return Ok(()) };
        self.now += Duration::from_millis(input.len() as u64);
        let source = packets.len().wrapping_mul(input.len()) as u32;
        let source = Ipv4Addr::from(source.wrapping_mul(0x9e37_79b9));
        let ClientPacket::Read(request) = first else { return Ok(()) };
        if self.admission.request(source, self.now) && self.admission.start_transfer(source) {
            let served = self.serve(request, packets);
            self.admission.end_transfer(source);
            served?;
        }
        Ok(())
    }
}

struct TestSession {
    transfer: Transfer,
    file: FileReader,
    /// The most bytes of data in a burst.
    max_burst_bytes: usize,
}

impl TestSession {
    /// Performs `next`, then handles `event`. Does nothing once the transfer has ended.
    fn step(&mut self, next: NextStep, event: &Event, now: Instant) -> anyhow::Result<NextStep> {
        match next {
            NextStep::End(_) => return Ok(next),
            NextStep::Wait => {}
            NextStep::Send => {
                while self.transfer.needs_block() {
                    let block = self.file.next(self.transfer.block_bytes()).now_or_never();
                    self.transfer
                        .push_block(block.context("reading a file in memory is pending")??);
                }
                let Burst { bytes, packet_bytes } = self.transfer.next_burst(now);
                let packets = bytes.chunks(packet_bytes);
                let data = packets.map(|packet| packet.len().saturating_sub(HEADER_BYTES));
                let bytes: usize = data.sum();
                anyhow::ensure!(
                    bytes <= self.max_burst_bytes.max(MAX_PACKET_BYTES),
                    "{bytes} bytes in a burst"
                );
            }
        }
        Ok(self.transfer.handle(event, now))
    }
}

/// Returns the event of the client's `packet`.
fn event(packet: &ClientPacket, request: &FileRequest) -> Event {
    match packet {
        ClientPacket::Ack(block) => Event::Acknowledged(*block),
        ClientPacket::Error(code) => Event::ClientError(*code),
        ClientPacket::Read(repeated) if repeated == request => Event::RequestRepeated,
        ClientPacket::Read(_) | ClientPacket::Write => Event::DeadlinePassed,
    }
}

/// Parses the file name of `request`, and checks that it does not lead out of the directory.
fn requested_file(request: &FileRequest) -> anyhow::Result<Option<RequestedFile>> {
    let Ok(file) = RequestedFile::parse(&request.name) else { return Ok(None) };
    if let RequestedFile::File { path, .. } = &file {
        let leads_out = path.starts_with('/') || path.split('/').any(|part| part == "..");
        anyhow::ensure!(!leads_out, "{path:?} leads out of the directory");
    }
    Ok(Some(file))
}

/// Returns the length of `file`, which depends on the length of its path.
fn file_length(file: &RequestedFile) -> usize {
    match file {
        RequestedFile::File { path, .. } => path.len() * path.len() * 16,
        RequestedFile::Script(_) => 512,
        RequestedFile::Autoexec(_) | RequestedFile::Pxelinux(_) => 0,
    }
}

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Returns `packet` with its length in front.
fn frame(packet: &[u8]) -> Vec<u8> {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), packet].concat()
}

/// Splits `input` into packets. A length beyond the end of `input` is cut to the rest.
fn split_frames(mut input: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        frames.push(frame);
        input = rest;
    }
    frames
}
