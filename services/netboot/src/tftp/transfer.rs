//! One transfer as a state machine: no socket, no file, and the time is an argument.
//!
//! ```text
//!             options granted                    the client has block 0
//! request ───────────────────▶ Greeting ──────────────────────────────▶ Sending ──last block acked──▶ Done
//!    └──────────── no options ────────────────────────────────────────────▲        every state ──────▶ its Outcome
//! ```
//!
//! The caller sends what [`Transfer::outgoing`] says, fills the window while [`Transfer::wants`], and reports what
//! comes, or that [`Transfer::deadline`] has passed. The window is all that is kept of the file. A client that has not
//! answered yet is sent one packet at a time: nobody is flooded in another's name.
//!
//! An acknowledgement that tells nothing new is never answered (RFC 1123, section 4.2.3.1): what it may have lost is
//! sent again by the clock. Answering it sooner in a wide window was considered: a duplicated window makes a client
//! acknowledge twice, which doubles the next window, and so on to the end of the file.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::negotiation::Terms;
use super::packet::{Code, Packet, data_packet};

/// How long to wait before sending again, where the client has not said.
const PATIENCE: Duration = Duration::from_secs(1);
/// What that wait doubles up to.
const LONGEST: Duration = Duration::from_secs(4);
/// How often the same packets are sent.
const TRIES: u32 = 6;

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Everything was sent and acknowledged.
    Complete,
    /// The client only wanted to know the options, above all the size: UEFI asks so before it downloads.
    SizeProbe,
    /// The client gave up, with this code.
    Aborted(u16),
    /// The client fell silent.
    TimedOut,
    /// The client began again; its next request is a new transfer.
    Restarted,
}

impl Outcome {
    /// As a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::SizeProbe => "size_probe",
            Self::Aborted(_) => "aborted",
            Self::TimedOut => "timed_out",
            Self::Restarted => "restarted",
        }
    }
}

/// What happens to a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An acknowledgement.
    Acked(u16),
    /// The client's error.
    Failed(Code),
    /// The deadline has passed.
    Overdue,
    /// The request came again.
    AskedAgain,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing.
    Wait,
    /// Fill the window and send it.
    Send,
    /// It is over.
    End(Outcome),
}

/// A transfer.
#[derive(Clone, Debug)]
pub struct Transfer {
    terms: Terms,
    /// The option acknowledgement until it is answered.
    greeting: Option<Bytes>,
    /// Blocks the client has.
    acked: u64,
    /// The blocks after those, oldest first.
    window: VecDeque<Bytes>,
    /// Whether the last block is in the window.
    ends: bool,
    /// How often these packets were sent.
    tries: u32,
    deadline: Instant,
}

impl Transfer {
    /// Begins a transfer on `terms`, to be sent at `now`.
    pub fn new(terms: Terms, now: Instant) -> Self {
        let granted = (!terms.granted.is_empty())
            .then(|| Packet::OptionAck(terms.granted.clone()).encode().into());
        let (acked, window) = (0, VecDeque::new());
        let mut transfer =
            Self { terms, greeting: granted, acked, window, ends: false, tries: 0, deadline: now };
        transfer.sent(now);
        transfer
    }

    /// Whether the window takes another block.
    pub fn wants(&self) -> bool {
        self.greeting.is_none() && !self.ends && self.window.len() < usize::from(self.terms.window)
    }

    /// Octets of a block that is not the last.
    pub fn block(&self) -> usize {
        self.terms.block.into()
    }

    /// Adds the next block; one shorter than [`block`](Self::block) ends the file. An exact multiple ends with an
    /// empty one.
    pub fn push(&mut self, block: Bytes) {
        self.ends = block.len() < self.block();
        self.window.push_back(block);
    }

    /// Octets acknowledged so far.
    pub fn delivered(&self) -> u64 {
        self.acked.saturating_mul(self.terms.block.into())
    }

    /// The packets to send, oldest first.
    pub fn outgoing(&self) -> Vec<Bytes> {
        if let Some(greeting) = &self.greeting {
            return vec![greeting.clone()];
        }
        let numbers = self.acked + 1..;
        numbers
            .zip(&self.window)
            .map(|(number, block)| data_packet(wire(number), block).into())
            .collect()
    }

    /// When to report [`Event::Overdue`].
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Takes what happened at `now`.
    pub fn on(&mut self, event: &Event, now: Instant) -> Next {
        match event {
            Event::Acked(block) => self.acked(*block, now),
            Event::Failed(Code(code))
                if *code == Code::OPTIONS_REFUSED.0 && self.greeting.is_some() =>
            {
                Next::End(Outcome::SizeProbe)
            }
            Event::Failed(Code(code)) => Next::End(Outcome::Aborted(*code)),
            Event::Overdue if now < self.deadline => Next::Wait,
            Event::Overdue if self.tries >= TRIES => Next::End(Outcome::TimedOut),
            Event::Overdue => {
                self.sent(now);
                Next::Send
            }
            // Nothing came of our answer yet: it was lost, or crossed the repeated request.
            Event::AskedAgain if self.acked == 0 => Next::Send,
            // In mid-transfer it is an old copy, unless the client has been silent since: then it was reset.
            Event::AskedAgain if self.tries > 1 => Next::End(Outcome::Restarted),
            Event::AskedAgain => Next::Wait,
        }
    }

    fn acked(&mut self, block: u16, now: Instant) -> Next {
        if self.greeting.is_some() {
            if block != 0 {
                return Next::Wait;
            }
            self.greeting = None;
            return self.advance(0, now);
        }
        // How far behind the newest of ours it is says which block it means, over the roll-over too.
        let news = usize::from(block.wrapping_sub(wire(self.acked)));
        if news == 0 || news > self.window.len() { Next::Wait } else { self.advance(news, now) }
    }

    /// The client has `blocks` more.
    fn advance(&mut self, blocks: usize, now: Instant) -> Next {
        (0..blocks).for_each(|_| drop(self.window.pop_front()));
        self.acked += blocks as u64;
        if self.ends && self.window.is_empty() {
            return Next::End(Outcome::Complete);
        }
        self.tries = 0;
        self.sent(now);
        Next::Send
    }

    /// Counts a sending and sets the time to wait for its answer.
    fn sent(&mut self, now: Instant) {
        let doubled = PATIENCE.saturating_mul(1 << self.tries.min(TRIES)).min(LONGEST);
        self.deadline = now + self.terms.timeout.unwrap_or(doubled);
        self.tries += 1;
    }
}

/// A block's number on the wire: after 65535 comes 0.
#[expect(clippy::cast_possible_truncation, reason = "rolling over is what the wire does")]
fn wire(block: u64) -> u16 {
    block as u16
}

#[cfg(test)]
mod tests;
