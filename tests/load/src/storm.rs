//! DHCP at a rate of the bench's choice, whether the server keeps up or not: an open loop.
//!
//! Exchanges begin on time. Those whose answers are missing in the end are lost, and nobody asks again. The loop never
//! waits, since its core is its own: it sends what is due, takes what has come, and looks at the clock.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use dhcp::MessageType;
use rack::SERVER;

use crate::draw::Draw;
use crate::fleet;
use crate::process::Measured;
use crate::request::{LONGEST, PORT, Program, XID, request};

/// How long exchanges are begun.
pub const LENGTH: Duration = Duration::from_secs(1);
/// How long the last answers are waited for.
const GRACE: Duration = Duration::from_millis(500);
/// How many are sent, and how many taken, before the other is looked at.
const TURN: usize = 16;
/// How much later than it was due the last exchange may begin: else the bench is what cannot keep up.
const LATE: f64 = 1.02;
/// Where the address is in an answer, and where its options begin (RFC 2131, section 2).
const YIADDR: Range<usize> = 16..20;
const OPTIONS: usize = 240;

/// Machines behind one relay, asking one server.
#[derive(Debug)]
pub struct Storm {
    socket: UdpSocket,
    /// By the machines' numbers: DISCOVER and REQUEST.
    packets: Vec<[Vec<u8>; 2]>,
    draw: Draw,
}

/// What came of a second at one rate.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Exchanges begun.
    pub begun: usize,
    /// Those that ended with the machine's own address.
    pub done: usize,
    /// Whether the bench began them when they were due.
    pub on_time: bool,
    /// The server's processor time.
    pub processor: Duration,
    /// How long each exchange took that ended, in order.
    pub times: Vec<Duration>,
}

impl Trial {
    /// Whether less than a thousandth was lost.
    pub fn is_held(&self) -> bool {
        let lost = self.begun - self.done;
        self.on_time && self.done > 0 && lost * 1000 < self.begun
    }
}

/// An exchange.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    machine: usize,
    begun: Instant,
    /// The message that is waited for; none once it is over.
    due: Option<MessageType>,
}

impl Storm {
    /// The first `count` machines of the network that `server` is in, which has to know them.
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

    /// Begins `rate` exchanges a second.
    pub fn trial(&mut self, rate: f64, server: Measured<'_>) -> anyhow::Result<Trial> {
        let total = (rate * LENGTH.as_secs_f64()).ceil() as usize;
        let first = self.draw.number() as u32;
        let mut exchanges: Vec<Exchange> = Vec::with_capacity(total);
        let mut trial = Trial::default();
        let (before, start) = (server.process.processor()?, Instant::now());
        let mut until = None;
        while trial.done < total && until.is_none_or(|until| Instant::now() < until) {
            let due = (rate * start.elapsed().as_secs_f64()).ceil() as usize;
            let turn = due.min(total).min(exchanges.len() + TURN);
            for number in exchanges.len()..turn {
                let machine = self.draw.below(self.packets.len());
                let due = Some(MessageType::Offer);
                exchanges.push(Exchange { machine, begun: Instant::now(), due });
                self.send(machine, 0, first.wrapping_add(number as u32))?;
            }
            self.take(first, &mut exchanges, &mut trial)?;
            if until.is_none() && exchanges.len() == total {
                trial.on_time = start.elapsed() < LENGTH.mul_f64(LATE);
                until = Some(Instant::now() + GRACE);
            }
        }
        trial.begun = total;
        trial.processor = server.process.processor()? - before;
        trial.times.sort();
        Ok(trial)
    }

    /// Takes what has come, and goes on with the exchanges it belongs to.
    fn take(
        &mut self,
        first: u32,
        exchanges: &mut [Exchange],
        trial: &mut Trial,
    ) -> anyhow::Result<()> {
        let mut buffer = [0; LONGEST];
        for _ in 0..TURN {
            let length = match self.socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if is_nothing(error.kind()) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(answer) = Answer::read(buffer.get(..length).unwrap_or_default()) else {
                continue;
            };
            let number = answer.xid.wrapping_sub(first);
            let Some(exchange) = exchanges.get_mut(number as usize) else { continue };
            if exchange.due != Some(answer.kind) {
                continue;
            }
            let own = fleet::address(exchange.machine);
            anyhow::ensure!(answer.yiaddr == own, "{} in place of {own}", answer.yiaddr);
            if answer.kind == MessageType::Offer {
                exchange.due = Some(MessageType::Ack);
                let machine = exchange.machine;
                self.send(machine, 1, answer.xid)?;
            } else {
                exchange.due = None;
                trial.done += 1;
                trial.times.push(exchange.begun.elapsed());
            }
        }
        Ok(())
    }

    /// Sends a machine's DISCOVER, 0, or REQUEST, 1. What the network does not take is lost.
    fn send(&mut self, machine: usize, which: usize, xid: u32) -> anyhow::Result<()> {
        let Some(packet) = self.packets.get_mut(machine).and_then(|both| both.get_mut(which))
        else {
            return Ok(());
        };
        packet[XID].copy_from_slice(&xid.to_be_bytes());
        match self.socket.send(packet) {
            Err(error) if !is_nothing(error.kind()) => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Whether an error only says that there is nothing now, or that the server does not listen yet.
fn is_nothing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::ConnectionRefused)
}

/// What the bench wants of an answer. The product's own parser costs as much as its answer does.
struct Answer {
    xid: u32,
    yiaddr: Ipv4Addr,
    kind: MessageType,
}

impl Answer {
    fn read(bytes: &[u8]) -> Option<Self> {
        let xid: [u8; 4] = bytes.get(XID)?.try_into().ok()?;
        let yiaddr: [u8; 4] = bytes.get(YIADDR)?.try_into().ok()?;
        let mut options = bytes.get(OPTIONS..)?;
        while let [code, length, rest @ ..] = options {
            if *code == dhcp::options::code::MESSAGE_TYPE {
                let kind = (*rest.first()?).into();
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
        assert!(trial(10_000, 9_991).is_held());
        assert!(!trial(10_000, 9_990).is_held());
        assert!(!trial(10, 9).is_held());
        assert!(!trial(0, 0).is_held());
        assert!(!Trial { on_time: false, ..trial(10_000, 10_000) }.is_held());
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let bytes = request(7, Program::Ipxe, MessageType::Request, fleet::RELAY, 0x0102_0304);
        let answer = Answer::read(&bytes.unwrap()).unwrap();
        assert_eq!((answer.xid, answer.kind), (0x0102_0304, MessageType::Request));
        assert_eq!(answer.yiaddr, Ipv4Addr::UNSPECIFIED);
        assert!(Answer::read(&[0; 239]).is_none());
    }
}
