//! Packets on the server's bridge, captured by tcpdump.

use std::io::{BufRead as _, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dhcp::{MessageType, Packet};

use crate::network::{Host, Network};

/// The longest wait for a packet.
const MAX_WAIT: Duration = Duration::from_secs(500);

/// A running capture.
#[derive(Debug)]
pub(crate) struct Capture {
    tcpdump: Child,
    coming: mpsc::Receiver<Seen>,
    seen: Vec<Seen>,
}

/// A UDP or TCP packet.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) payload: Vec<u8>,
}

impl Seen {
    /// True if it is a DHCP message of this kind from this port.
    pub(crate) fn is(&self, kind: MessageType, port: u16) -> bool {
        self.from.port() == port && self.dhcp().is_some_and(|packet| packet.kind() == Some(kind))
    }

    /// Parses the payload as DHCP.
    pub(crate) fn dhcp(&self) -> Option<Packet> {
        Packet::parse(&self.payload).ok()
    }

    /// True if the payload contains `text`.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.payload.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

impl Capture {
    /// Starts a capture.
    pub(crate) fn start(network: &Network) -> Self {
        let words = ["tcpdump", "-ni", "br0", "--immediate-mode", "-U", "-w", "-", "udp or tcp"];
        let (to, errors) = (Stdio::piped(), Stdio::piped());
        let mut tcpdump = network.start(Host::Server, &words, to, errors);
        let mut errors = BufReader::new(tcpdump.stderr.take().expect("its errors"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(errors.read_line(&mut line).expect("text"), 0, "tcpdump ended");
        }
        let mut packets = BufReader::new(tcpdump.stdout.take().expect("its packets"));
        let (tell, coming) = mpsc::channel();
        std::thread::spawn(move || {
            let mut header = [0; 24];
            packets.read_exact(&mut header).expect("a header");
            while let Some(frame) = frame(&mut packets) {
                let Some(seen) = seen(&frame) else { continue };
                if tell.send(seen).is_err() {
                    return;
                }
            }
        });
        Self { tcpdump, coming, seen: Vec::new() }
    }

    /// Returns the first packet since the start for which `is` is true, once there is one.
    pub(crate) fn wait(&mut self, what: &str, is: impl Fn(&Seen) -> bool) -> Seen {
        if let Some(seen) = self.seen.iter().find(|seen| is(seen)) {
            return seen.clone();
        }
        let until = Instant::now() + MAX_WAIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seen = self.coming.recv_timeout(left);
            let seen = seen.unwrap_or_else(|_| panic!("no {what} in {:#?}", self.seen.len()));
            self.seen.push(seen.clone());
            if is(&seen) {
                return seen;
            }
        }
    }

    /// Returns the packets that [`wait`](Self::wait) has read.
    pub(crate) fn seen(&self) -> &[Seen] {
        &self.seen
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ended_already = self.tcpdump.kill();
        let _ended_already = self.tcpdump.wait();
    }
}

/// Returns the next frame of a capture file.
fn frame(packets: &mut impl Read) -> Option<Vec<u8>> {
    let mut header = [0; 16];
    packets.read_exact(&mut header).ok()?;
    let length = u32::from_le_bytes(header[8..12].try_into().ok()?);
    let mut frame = vec![0; length as usize];
    packets.read_exact(&mut frame).ok()?;
    Some(frame)
}

/// Parses an IPv4 packet in an Ethernet frame.
fn seen(frame: &[u8]) -> Option<Seen> {
    let ip = frame.get(14..).filter(|_| frame[12..14] == [8, 0])?;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
    let transport = ip.get(usize::from(ip[0] & 15) * 4..)?;
    let port = |at: usize| Some(u16::from_be_bytes(transport.get(at..at + 2)?.try_into().ok()?));
    let header = if ip[9] == 17 { 8 } else { usize::from(*transport.get(12)? >> 4) * 4 };
    Some(Seen {
        from: SocketAddrV4::new(address(12)?, port(0)?),
        to: SocketAddrV4::new(address(16)?, port(2)?),
        payload: transport.get(header..)?.to_vec(),
    })
}
