//! Sends DHCP requests at a given rate, whether or not the server keeps up: an open loop.
//!
//! Exchanges begin on schedule. An exchange without all replies is counted as lost; nothing is sent again. The loop has a
//! core to itself and never sleeps: it sends due requests, reads replies, and checks the clock.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use dhcp::MessageType;
use rack::SERVER;

use crate::draw::Draw;
use crate::fleet;
use crate::process::Measured;
use crate::request::{MAX_PACKET_BYTES, PORT, Program, XID, request};

/// Period in which exchanges are begun.
pub const DURATION: Duration = Duration::from_secs(1);
/// Waiting time for the last replies.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of packets sent, and of packets received, before the loop turns to the other.
const BATCH: usize = 16;
/// Maximum time in which all exchanges must have begun, as a multiple of [`DURATION`]; beyond it the bench is too slow.
const MAX_DELAY: f64 = 1.02;
/// Position of the address in a reply, and of its options (RFC 2131 §2).
const YIADDR: Range<usize> = 16..20;
const OPTIONS_START: usize = 240;

/// Machines behind one relay, and their prepared requests.
#[derive(Debug)]
pub struct DhcpLoad {
    socket: UdpSocket,
    /// DISCOVER and REQUEST of each machine.
    packets: Vec<[Vec<u8>; 2]>,
    draw: Draw,
}

/// The result of one second at one rate.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Number of exchanges begun.
    pub begun: usize,
    /// Number of exchanges that ended with an ACK of the machine's address.
    pub done: usize,
    /// True if the bench began all exchanges on schedule.
    pub on_time: bool,
    /// The server's processor time.
    pub cpu: Duration,
    /// Durations of the completed exchanges, sorted.
    pub times: Vec<Duration>,
}

impl Trial {
    /// True if less than a thousandth of the exchanges was lost.
    pub fn is_sustained(&self) -> bool {
        let lost = self.begun - self.done;
        self.on_time && self.done > 0 && lost * 1000 < self.begun
    }
}

/// An exchange.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    machine: usize,
    begun: Instant,
    /// The type of the next reply; `None` once the exchange is complete.
    awaiting: Option<MessageType>,
}

impl DhcpLoad {
    /// Prepares the first `count` machines in the network of `server`, which must have their records.
    pub fn new(server: Measured<'_>, count: usize) -> anyhow::Result<Self> {
        server.network.enter()?;
        let socket = UdpSocket::bind((fleet::RELAY, PORT))?;
        socket.connect((SERVER, PORT))?;
        socket.set_nonblocking(true)?;
        let packet = |n, kind| request(n, Program::Firmware, kind, fleet::RELAY, 0);
        let both = |n| Ok([packet(n, MessageType::Discover)?, packet(n, MessageType::Request)?]);
        let packets = (0..count).map(both).collect::<anyhow::Result<_>>()?;
        Ok(Self { socket, packets, draw: Draw::default() })
    }

    /// Begins `rate` exchanges per second for [`DURATION`].
    pub fn trial(&mut self, rate: f64, server: Measured<'_>) -> anyhow::Result<Trial> {
        let total = (rate * DURATION.as_secs_f64()).ceil() as usize;
        let first = self.draw.number() as u32;
        let mut exchanges: Vec<Exchange> = Vec::with_capacity(total);
        let mut trial = Trial::default();
        let (before, start) = (server.process.cpu_time()?, Instant::now());
        let mut until = None;
        while trial.done < total && until.is_none_or(|until| Instant::now() < until) {
            let due = (rate * start.elapsed().as_secs_f64()).ceil() as usize;
            let end = due.min(total).min(exchanges.len() + BATCH);
            for number in exchanges.len()..end {
                let machine = self.draw.below(self.packets.len());
                let awaiting = Some(MessageType::Offer);
                exchanges.push(Exchange { machine, begun: Instant::now(), awaiting });
                self.send(machine, 0, first.wrapping_add(number as u32))?;
            }
            self.receive(first, &mut exchanges, &mut trial)?;
            if until.is_none() && exchanges.len() == total {
                trial.on_time = start.elapsed() < DURATION.mul_f64(MAX_DELAY);
                until = Some(Instant::now() + REPLY_TIMEOUT);
            }
        }
        trial.begun = total;
        trial.cpu = server.process.cpu_time()? - before;
        trial.times.sort();
        Ok(trial)
    }

    /// Reads replies and continues their exchanges.
    fn receive(
        &mut self,
        first: u32,
        exchanges: &mut [Exchange],
        trial: &mut Trial,
    ) -> anyhow::Result<()> {
        let mut buffer = [0; MAX_PACKET_BYTES];
        for _ in 0..BATCH {
            let length = match self.socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if is_temporary(error.kind()) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(reply) = Reply::parse(buffer.get(..length).unwrap_or_default()) else {
                continue;
            };
            let number = reply.xid.wrapping_sub(first);
            let Some(exchange) = exchanges.get_mut(number as usize) else { continue };
            if exchange.awaiting != Some(reply.kind) {
                continue;
            }
            let own = fleet::address(exchange.machine);
            anyhow::ensure!(reply.yiaddr == own, "{}, expected {own}", reply.yiaddr);
            if reply.kind == MessageType::Offer {
                exchange.awaiting = Some(MessageType::Ack);
                let machine = exchange.machine;
                self.send(machine, 1, reply.xid)?;
            } else {
                exchange.awaiting = None;
                trial.done += 1;
                trial.times.push(exchange.begun.elapsed());
            }
        }
        Ok(())
    }

    /// Sends a machine's DISCOVER (`which` is 0) or REQUEST (1). A packet that does not fit the socket's buffer is lost.
    fn send(&mut self, machine: usize, which: usize, xid: u32) -> anyhow::Result<()> {
        let Some(packet) = self.packets.get_mut(machine).and_then(|both| both.get_mut(which))
        else {
            return Ok(());
        };
        packet[XID].copy_from_slice(&xid.to_be_bytes());
        match self.socket.send(packet) {
            Err(error) if !is_temporary(error.kind()) => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// True if nothing was received, or the server does not listen yet.
fn is_temporary(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::ConnectionRefused)
}

/// The fields of a reply that the bench needs. The product's own parser would take as long as building a reply.
struct Reply {
    xid: u32,
    yiaddr: Ipv4Addr,
    kind: MessageType,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let xid: [u8; 4] = bytes.get(XID)?.try_into().ok()?;
        let yiaddr: [u8; 4] = bytes.get(YIADDR)?.try_into().ok()?;
        let mut options = bytes.get(OPTIONS_START..)?;
        while let [code, length, rest @ ..] = options {
            if *code == dhcp::options::code::MESSAGE_TYPE {
                let kind = MessageType::from_repr(*rest.first()?).unwrap_or(MessageType::Other);
                return Some(Self { xid: u32::from_be_bytes(xid), yiaddr: yiaddr.into(), kind });
            }
            options = rest.get(usize::from(*length)..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_thousandth_may_be_lost() {
        let trial = |begun, done| Trial { begun, done, on_time: true, ..Trial::default() };
        assert!(trial(10_000, 9_991).is_sustained());
        assert!(!trial(10_000, 9_990).is_sustained());
        assert!(!trial(10, 9).is_sustained());
        assert!(!trial(0, 0).is_sustained());
        assert!(!Trial { on_time: false, ..trial(10_000, 10_000) }.is_sustained());
    }

    #[test]
    fn a_reply_is_parsed_as_it_was_encoded() {
        let bytes = request(7, Program::Ipxe, MessageType::Request, fleet::RELAY, 0x0102_0304);
        let reply = Reply::parse(&bytes.unwrap()).unwrap();
        assert_eq!((reply.xid, reply.kind), (0x0102_0304, MessageType::Request));
        assert_eq!(reply.yiaddr, Ipv4Addr::UNSPECIFIED);
        assert!(Reply::parse(&[0; 239]).is_none());
    }
}
