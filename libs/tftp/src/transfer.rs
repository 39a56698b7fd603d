//! One transfer as a state machine: no socket, no file, and the time is an argument.
//!
//! ```text
//!             options acknowledged                block 0 acknowledged
//! request ───────────────────▶ OptionAck ──────────────────────────────▶ Sending ──last block acked──▶ Complete
//!    └──────────── no options ─────────────────────────────────────────────▲       every state ──────▶ its outcome
//! ```
//!
//! The caller fills the window while [`Transfer::needs_block`], sends [`Transfer::next_burst`], and reports each packet of
//! the client, and that [`Transfer::deadline`] has passed. No more of the file than the window is held. The window is sent at
//! once, or in bursts after a loss: the module `pacing` has the reason. A client that has not responded yet is sent one
//! packet at a time, so a forged source address is not flooded.
//!
//! An acknowledgement without progress may be an echo of packets that were sent twice. A response to it sends more packets
//! twice, and so on to the end of the file (RFC 1123, section 4.2.3.1). But a client also sends one when it misses the first
//! block of a window (RFC 7440, section 4). So it is responded to once, if nothing was sent twice lately and a round trip has
//! passed; otherwise the timeout resends. With a window of one block no block can be missed like this, and there is never a
//! response.

use std::time::{Duration, Instant};

use crate::negotiation::TransferOptions;
use crate::pacing::Pacing;
use crate::packet::{self, ErrorCode};
use crate::window::{Burst, Window};

/// The longest silence of a client: six timeouts of 1, 2, 4, 4, 4 and 4 seconds.
const MAX_SILENCE: Duration = Duration::from_secs(19);
/// The longest silence of a client that set the timeout, in timeouts.
const MAX_SILENCE_TIMEOUTS: u32 = 6;
/// The number of windows after a retransmission in which an acknowledgement may be an echo.
const ECHO_WINDOWS: u8 = 2;

/// The outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferOutcome {
    /// Every block was acknowledged.
    Complete,
    /// The client ended the transfer after the option acknowledgement. UEFI does so to learn the size before it downloads.
    SizeProbe,
    /// The client ended the transfer with this error code.
    Aborted(u16),
    /// The client no longer responded.
    TimedOut,
    /// The client began again; its next request is a new transfer.
    Restarted,
}

/// An input of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client acknowledged this block.
    Acknowledged(u16),
    /// The client sent an error.
    ClientError(ErrorCode),
    /// The deadline has passed.
    DeadlinePassed,
    /// The client sent the request again.
    RequestRepeated,
}

/// The next step of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NextStep {
    /// Wait for the next event.
    Wait,
    /// Fill the window and send the next burst.
    Send,
    /// End the transfer.
    End(TransferOutcome),
}

/// A transfer.
#[derive(Clone, Debug)]
pub struct Transfer {
    options: TransferOptions,
    pacing: Pacing,
    /// The option acknowledgement, until the client responds to it.
    option_ack: Option<Vec<u8>>,
    acknowledged_blocks: u64,
    /// The blocks after the acknowledged ones.
    window: Window,
    /// True if the last block of the file is in the window.
    at_end: bool,
    /// Blocks of the window that were sent since `window_sent_at`.
    sent_blocks: usize,
    /// The time when the first burst of the window was sent.
    window_sent_at: Instant,
    /// Number of retransmissions since the last progress.
    retransmissions: u32,
    last_progress: Instant,
    /// Number of windows in which an acknowledgement without progress may be an echo.
    echo_windows: u8,
    /// The time at which to report [`Event::DeadlinePassed`].
    pub deadline: Instant,
}

impl Transfer {
    /// Creates a transfer whose first burst is sent at `now`.
    pub fn new(options: TransferOptions, now: Instant) -> Self {
        let option_ack =
            (!options.acknowledged.is_empty()).then(|| packet::option_ack(&options.acknowledged));
        Self {
            pacing: Pacing::new(options.window_blocks),
            option_ack,
            acknowledged_blocks: 0,
            window: Window::new(options.block_bytes.into()),
            at_end: false,
            sent_blocks: 0,
            window_sent_at: now,
            retransmissions: 0,
            last_progress: now,
            echo_windows: 0,
            deadline: now,
            options,
        }
    }

    /// True if the window has room for another block.
    pub fn needs_block(&self) -> bool {
        let window_blocks = usize::from(self.options.window_blocks);
        self.option_ack.is_none() && !self.at_end && self.window.len() < window_blocks
    }

    /// The length of every block but the last.
    pub fn block_bytes(&self) -> usize {
        self.options.block_bytes.into()
    }

    /// Adds the next block. One shorter than [`block_bytes`](Self::block_bytes) ends the file; a file whose length is an exact
    /// multiple ends with an empty one.
    pub fn push_block(&mut self, block: &[u8]) {
        self.at_end = block.len() < self.block_bytes();
        let number = self.acknowledged_blocks + 1 + self.window.len() as u64;
        self.window.push(wire_number(number), block);
    }

    /// Bytes acknowledged so far, rounded up to whole blocks.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_blocks.saturating_mul(self.options.block_bytes.into())
    }

    /// Returns the packets to send at `now`. Called once at the beginning, and once for each [`NextStep::Send`].
    pub fn next_burst(&mut self, now: Instant) -> Burst<'_> {
        if self.sent_blocks == 0 {
            self.window_sent_at = now;
        }
        let start = self.sent_blocks;
        self.sent_blocks = self.window.len().min(start + self.pacing.burst_blocks());
        self.deadline = now + self.time_to_next_burst(now);
        match &self.option_ack {
            Some(packet) => Burst { bytes: packet, packet_bytes: packet.len() },
            None => self.window.burst(start..self.sent_blocks),
        }
    }

    /// The time from `now` until the next burst of the window, or until the window is sent again.
    fn time_to_next_burst(&self, now: Instant) -> Duration {
        if self.sent_blocks < self.window.len() {
            return self.pacing.burst_interval();
        }
        let from_pacing = || self.pacing.retransmit_timeout(self.retransmissions);
        let timeout = self.options.timeout.unwrap_or_else(from_pacing);
        timeout.min(self.silence_ends().saturating_duration_since(now))
    }

    /// Applies `event`, which happened at `now`.
    pub fn handle(&mut self, event: &Event, now: Instant) -> NextStep {
        match event {
            Event::Acknowledged(block) => self.acknowledge(*block, now),
            Event::ClientError(ErrorCode::OPTIONS_REFUSED) if self.option_ack.is_some() => {
                NextStep::End(TransferOutcome::SizeProbe)
            }
            Event::ClientError(ErrorCode(code)) => NextStep::End(TransferOutcome::Aborted(*code)),
            Event::DeadlinePassed if now < self.deadline => NextStep::Wait,
            Event::DeadlinePassed if self.sent_blocks < self.window.len() => NextStep::Send,
            Event::DeadlinePassed if now >= self.silence_ends() => {
                NextStep::End(TransferOutcome::TimedOut)
            }
            Event::DeadlinePassed => {
                self.retransmissions += 1;
                self.resend_after_loss()
            }
            // The client has not responded to the first packet: it was lost, or crossed the repeated request.
            Event::RequestRepeated if self.acknowledged_blocks == 0 => self.resend_window(),
            // In mid-transfer it is an old copy, unless the client has been silent since: then it was reset.
            Event::RequestRepeated if self.retransmissions > 0 => {
                NextStep::End(TransferOutcome::Restarted)
            }
            Event::RequestRepeated => NextStep::Wait,
        }
    }

    fn acknowledge(&mut self, block: u16, now: Instant) -> NextStep {
        if self.option_ack.is_some() {
            if block != 0 {
                return NextStep::Wait;
            }
            self.option_ack = None;
            return self.advance(0, now);
        }
        // The distance from the last acknowledged block identifies the block, across the roll-over too.
        let progress = usize::from(block.wrapping_sub(wire_number(self.acknowledged_blocks)));
        let elapsed = now.saturating_duration_since(self.window_sent_at);
        let not_an_echo = self.echo_windows == 0 && self.pacing.may_have_response(elapsed);
        match progress {
            0 if self.sent_blocks > 1 && not_an_echo => self.resend_after_loss(),
            0 => NextStep::Wait,
            _ if progress > self.window.len() => NextStep::Wait,
            _ => self.advance(progress, now),
        }
    }

    /// Removes `blocks` acknowledged blocks from the window.
    fn advance(&mut self, blocks: usize, now: Instant) -> NextStep {
        let (whole_window, sent) = (blocks == self.window.len(), self.sent_blocks);
        if whole_window && self.echo_windows == 0 && sent <= self.pacing.burst_blocks() {
            let round_trip = now.saturating_duration_since(self.window_sent_at);
            self.pacing.record_round_trip(round_trip);
        }
        self.window.remove_first(blocks);
        self.acknowledged_blocks += blocks as u64;
        if self.at_end && self.window.len() == 0 {
            return NextStep::End(TransferOutcome::Complete);
        }
        (self.retransmissions, self.last_progress) = (0, now);
        if blocks < sent {
            return self.resend_after_loss();
        }
        if whole_window {
            self.pacing.record_whole_window();
            self.echo_windows = self.echo_windows.saturating_sub(1);
        }
        self.sent_blocks = 0;
        NextStep::Send
    }

    fn resend_after_loss(&mut self) -> NextStep {
        self.pacing.record_loss();
        self.resend_window()
    }

    fn resend_window(&mut self) -> NextStep {
        (self.sent_blocks, self.echo_windows) = (0, ECHO_WINDOWS);
        NextStep::Send
    }

    /// The time at which a client without progress is given up.
    fn silence_ends(&self) -> Instant {
        let client = self.options.timeout.map(|timeout| timeout * MAX_SILENCE_TIMEOUTS);
        self.last_progress + client.unwrap_or(MAX_SILENCE)
    }
}

/// The number of a block on the wire: 0 follows 65535.
#[expect(clippy::cast_possible_truncation, reason = "the number on the wire rolls over")]
fn wire_number(block: u64) -> u16 {
    block as u16
}

#[cfg(test)]
mod tests;
