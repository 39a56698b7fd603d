//! One transfer as a state machine: no socket, no file, and the time is an argument.
//!
//! ```text
//!             options granted                    the client has block 0
//! request ───────────────────▶ Greeting ──────────────────────────────▶ Sending ──last block acked──▶ Done
//!    └──────────── no options ────────────────────────────────────────────▲        every state ──────▶ its Outcome
//! ```
//!
//! The caller fills the window while [`Transfer::wants`], sends what [`Transfer::burst`] says, and reports what comes, or
//! that [`Transfer::deadline`] has passed. The window is all that is kept of the file. It goes out at once, or in portions
//! where something was lost: the module `pace` says why. A client that has not answered yet is sent one packet at a time:
//! nobody is flooded in another's name.
//!
//! An acknowledgement that tells nothing new may be an echo of what was sent twice: whoever answers it sends more twice,
//! and so on to the end of the file (RFC 1123, section 4.2.3.1). But it is also how a client says that it misses the first
//! block of a window (RFC 7440, section 4). So it is answered once, where nothing was sent twice lately and a round trip
//! lies between; else by the clock. Without a window there is nothing to miss a block by, and it never is.

use std::time::{Duration, Instant};

use super::negotiation::Terms;
use super::pace::Pace;
use super::packet::{Code, Packet};
use super::window::{Burst, Window};

/// For how long a client may be silent: for six waits, of a second at first, then doubling up to four.
const SILENCE: Duration = Duration::from_secs(19);
/// For how many of its own waits, where it said how long they are.
const WAITS: u32 = 6;
/// For how many windows an acknowledgement may come twice, after something was sent twice.
const ECHOES: u8 = 2;

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
    pace: Pace,
    /// The option acknowledgement until it is answered.
    greeting: Option<Vec<u8>>,
    /// Blocks the client has.
    acked: u64,
    /// The blocks after those.
    window: Window,
    /// Whether the last block is in the window.
    ends: bool,
    /// How many of the window's blocks went out, since it was begun.
    gone: usize,
    /// When it was begun.
    begun: Instant,
    /// How often it was begun again, for nothing new came.
    tries: u32,
    /// Since when nothing new has come.
    silent: Instant,
    /// For how many windows an acknowledgement that tells nothing new may be an echo.
    echoes: u8,
    deadline: Instant,
}

impl Transfer {
    /// Begins a transfer on `terms`, to be sent at `now`.
    pub fn new(terms: Terms, now: Instant) -> Self {
        let greeting =
            (!terms.granted.is_empty()).then(|| Packet::OptionAck(terms.granted.clone()).encode());
        let (pace, window) = (Pace::new(terms.window), Window::new(terms.block.into()));
        Self {
            terms,
            pace,
            greeting,
            acked: 0,
            window,
            ends: false,
            gone: 0,
            begun: now,
            tries: 0,
            silent: now,
            echoes: 0,
            deadline: now,
        }
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
    pub fn push(&mut self, block: &[u8]) {
        self.ends = block.len() < self.block();
        let number = self.acked + 1 + self.window.len() as u64;
        self.window.push(wire(number), block);
    }

    /// Octets acknowledged so far.
    pub fn delivered(&self) -> u64 {
        self.acked.saturating_mul(self.terms.block.into())
    }

    /// The packets that go out at `now`. Asked for once for every [`Next::Send`], and at the beginning.
    pub fn burst(&mut self, now: Instant) -> Burst<'_> {
        if self.gone == 0 {
            self.begun = now;
        }
        let from = self.gone;
        self.gone = self.window.len().min(from + self.pace.portion());
        self.deadline = now + self.wait(now);
        match &self.greeting {
            Some(greeting) => Burst::one(greeting),
            None => self.window.burst(from..self.gone),
        }
    }

    /// How long from `now` until the next portion, or until the window is begun again.
    fn wait(&self, now: Instant) -> Duration {
        if self.gone < self.window.len() {
            return self.pace.pause();
        }
        let patience = self.terms.timeout.unwrap_or_else(|| self.pace.patience(self.tries));
        patience.min((self.silent + self.silence()).saturating_duration_since(now))
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
            Event::Overdue if self.gone < self.window.len() => Next::Send,
            Event::Overdue if now >= self.silent + self.silence() => Next::End(Outcome::TimedOut),
            Event::Overdue => {
                self.tries += 1;
                self.lost()
            }
            // Nothing came of our answer yet: it was lost, or crossed the repeated request.
            Event::AskedAgain if self.acked == 0 => self.again(),
            // In mid-transfer it is an old copy, unless the client has been silent since: then it was reset.
            Event::AskedAgain if self.tries > 0 => Next::End(Outcome::Restarted),
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
        let ago = now.saturating_duration_since(self.begun);
        match news {
            0 if self.gone > 1 && self.echoes == 0 && self.pace.may_answer(ago) => self.lost(),
            0 => Next::Wait,
            news if news > self.window.len() => Next::Wait,
            news => self.advance(news, now),
        }
    }

    /// The client has `blocks` more.
    fn advance(&mut self, blocks: usize, now: Instant) -> Next {
        let (whole, sent) = (blocks == self.window.len(), self.gone);
        if whole && self.echoes == 0 && sent <= self.pace.portion() {
            self.pace.measured(now.saturating_duration_since(self.begun));
        }
        self.window.drop_first(blocks);
        self.acked += blocks as u64;
        if self.ends && self.window.len() == 0 {
            return Next::End(Outcome::Complete);
        }
        (self.tries, self.silent) = (0, now);
        if blocks < sent {
            return self.lost();
        }
        if whole {
            self.pace.whole();
            self.echoes = self.echoes.saturating_sub(1);
        }
        self.gone = 0;
        Next::Send
    }

    /// Some of what went out has not come.
    fn lost(&mut self) -> Next {
        self.pace.lost();
        self.again()
    }

    /// Begins the window again, and its echoes with it.
    fn again(&mut self) -> Next {
        (self.gone, self.echoes) = (0, ECHOES);
        Next::Send
    }

    /// For how long the client may be silent.
    fn silence(&self) -> Duration {
        self.terms.timeout.map_or(SILENCE, |timeout| timeout * WAITS)
    }
}

/// A block's number on the wire: after 65535 comes 0.
#[expect(clippy::cast_possible_truncation, reason = "rolling over is what the wire does")]
fn wire(block: u64) -> u16 {
    block as u16
}

#[cfg(test)]
mod tests;
