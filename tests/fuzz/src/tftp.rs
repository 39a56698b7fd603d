//! TFTP: packets, what names and options come to, and whole transfers.
//!
//! An input is several packets, each after its length in two octets: a request, and what the client says then.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use netboot::tftp::Name;
use netboot::tftp::admission::{Admission, Limits};
use netboot::tftp::blocks::Blocks;
use netboot::tftp::files::Content;
use netboot::tftp::negotiation::{Mode, Offer, Terms};
use netboot::tftp::packet::{Code, Packet, Request};
use netboot::tftp::transfer::{Event, Next, Transfer};

use crate::Target;

/// The longest packet read.
const LONGEST: usize = 1024;
/// How often a silent client is sent something, and more: a window over and over again, in as many portions as it has blocks.
const PATIENCE: usize = 1000;
/// Octets before the data of a block.
const HEAD: usize = 4;

/// What is counted, by a clock that is set forward by the inputs.
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
    /// With one file of many lines.
    pub fn new() -> Self {
        let file = Bytes::from("a line\r\nand another\n".repeat(5000));
        Self { file, admission: Admission::new(Limits::default()), now: Instant::now() }
    }

    /// What every packet has to hold, and the request where it is one.
    fn read(&self, packet: &[u8]) -> anyhow::Result<Option<Packet>> {
        let Ok(read) = Packet::parse(packet) else { return Ok(None) };
        anyhow::ensure!(Packet::parse(&read.encode()) == Ok(read.clone()), "not read as written");
        Ok(Some(read))
    }

    /// A transfer of the file, as `request` wants it, to a client that says `said` and then nothing more.
    fn serve(&mut self, request: &Request, said: &[Packet]) -> anyhow::Result<()> {
        let (Some(mode), Ok(name)) = (Mode::of(request), named(request)?) else { return Ok(()) };
        let length = name_length(&name).min(self.file.len());
        let size = (mode == Mode::Octet).then_some(length as u64);
        let offer = Offer::default();
        let terms = Terms::agree(&request.options, size, &offer);
        anyhow::ensure!(terms.block >= 8 && terms.block <= offer.block, "{} octets", terms.block);
        let most = offer.window_octets.max(terms.block.into());
        let mut sending = Sending {
            blocks: Blocks::new(Content::Shared(self.file.slice(..length)), mode),
            transfer: Transfer::new(terms, self.now),
            most,
        };
        let mut next = Next::Send;
        for packet in said {
            next = sending.step(next, &event(packet, request), self.now)?;
        }
        for _ in 0..PATIENCE {
            if let Next::End(_) = next {
                break;
            }
            self.now = self.now.max(sending.transfer.deadline());
            next = sending.step(next, &Event::Overdue, self.now)?;
        }
        anyhow::ensure!(matches!(next, Next::End(_)), "a silent client is served for ever");
        let delivered = sending.transfer.delivered();
        // A block more than there is, and netascii has two octets for some.
        let file = 2 * length as u64 + u64::from(offer.block);
        anyhow::ensure!(delivered <= file, "{delivered} octets of {length} delivered");
        Ok(())
    }
}

impl Target for Tftp {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let asks = |name: &str, mode: &str, options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
            Packet::Read(Request { name: bytes(name), mode: bytes(mode), options })
        };
        let ovmf = [("tsize", "0"), ("blksize", "1468"), ("windowsize", "4")];
        let acks = |step: usize| (0..200).step_by(step).map(Packet::Ack).collect::<Vec<_>>();
        let probe = Packet::error(Code::OPTIONS_REFUSED, "User aborted the transfer");
        let write =
            Packet::Write(Request { name: bytes("x"), mode: bytes("octet"), options: vec![] });
        let conversations = [
            [vec![asks("snponly.efi", "octet", &ovmf)], acks(4)].concat(),
            [vec![asks("undionly.kpxe", "octet", &[("blksize", "1456")])], acks(1)].concat(),
            [vec![asks("52-54-00-00-00-01/auto.ipxe", "netascii", &[])], acks(1)].concat(),
            [
                vec![asks("pxelinux.cfg/01-52-54-00-00-00-01", "octet", &[("timeout", "6")])],
                acks(1),
            ]
            .concat(),
            vec![asks("snponly.efi", "octet", &ovmf), probe.clone()],
            vec![write, Packet::Data { block: 1, data: vec![7; 512] }, probe],
            vec![Packet::OptionAck(vec![(bytes("blksize"), bytes("8"))])],
        ];
        conversations.iter().map(|packets| packets.iter().flat_map(framed).collect()).collect()
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
        let parts = unframed(input);
        let read = |part: &&[u8]| self.read(part.get(..LONGEST).unwrap_or(part)).transpose();
        let packets = parts.iter().filter_map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let [first, said @ ..] = &packets[..] else { return Ok(()) };
        self.now += Duration::from_millis(input.len() as u64);
        let source = said.len().wrapping_mul(input.len()) as u32;
        let source = Ipv4Addr::from(source.wrapping_mul(0x9e37_79b9));
        let Packet::Read(request) = first else { return Ok(()) };
        if self.admission.request(source, self.now).is_err() {
            return Ok(());
        }
        if self.admission.begin(source).is_ok() {
            self.serve(request, said)?;
            self.admission.end(source);
        }
        Ok(())
    }
}

/// A file on its way.
struct Sending {
    transfer: Transfer,
    blocks: Blocks,
    /// The most octets of data on the way at a time.
    most: usize,
}

impl Sending {
    /// Does `next`, and then takes `event`; nothing once it is over.
    fn step(&mut self, next: Next, event: &Event, now: Instant) -> anyhow::Result<Next> {
        match next {
            Next::End(_) => return Ok(next),
            Next::Wait => {}
            Next::Send => {
                while self.transfer.wants() {
                    let block = self.blocks.next(self.transfer.block()).now_or_never();
                    self.transfer.push(block.context("a file in memory that waits")??);
                }
                let packets = self.transfer.burst(now).packets();
                let data = packets.map(|packet| packet.len().saturating_sub(HEAD));
                let all: usize = data.sum();
                anyhow::ensure!(all <= self.most.max(LONGEST), "{all} octets at a time");
            }
        }
        Ok(self.transfer.on(event, now))
    }
}

/// What a packet of the client's means to its transfer.
fn event(packet: &Packet, request: &Request) -> Event {
    match packet {
        Packet::Ack(block) => Event::Acked(*block),
        Packet::Error { code, .. } => Event::Failed(*code),
        Packet::Read(again) if again == request => Event::AskedAgain,
        Packet::Read(_) | Packet::Write(_) | Packet::Data { .. } | Packet::OptionAck(_) => {
            Event::Overdue
        }
    }
}

/// What `request` names, which never leads out of where files are.
fn named(request: &Request) -> anyhow::Result<Result<Name, ()>> {
    let Ok(name) = Name::try_from(request.name.as_slice()) else { return Ok(Err(())) };
    if let Name::File { path, .. } = &name {
        let leads_out = path.starts_with('/') || path.split('/').any(|part| part == "..");
        anyhow::ensure!(!leads_out, "{path:?} leads out");
    }
    Ok(Ok(name))
}

/// How long the file of this name is: none of two lengths is alike for long.
fn name_length(name: &Name) -> usize {
    match name {
        Name::File { path, .. } => path.len() * path.len() * 16,
        Name::Script(_) => 512,
        Name::Autoexec(_) | Name::Pxelinux(_) | Name::Refused => 0,
    }
}

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// `packet` after its length.
fn framed(packet: &Packet) -> Vec<u8> {
    let packet = packet.encode();
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), &packet[..]].concat()
}

/// The packets of `input`; a length that is too long stands for all that is left.
fn unframed(mut input: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (part, rest) = rest.split_at(length);
        parts.push(part);
        input = rest;
    }
    parts
}
