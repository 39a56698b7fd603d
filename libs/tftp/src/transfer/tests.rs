//! Times, block numbers and responses of a transfer; and a client behind a line that loses packets.
#![allow(clippy::unwrap_used)]

mod lossy_line;

use super::*;
use crate::packet::tests::parse_data;

/// The options of a transfer, with an option acknowledgement if `acknowledged`.
fn options(block_bytes: u16, window_blocks: u16, acknowledged: bool) -> TransferOptions {
    let blksize = (b"blksize".to_vec(), block_bytes.to_string().into_bytes());
    let acknowledged = acknowledged.then_some(blksize).into_iter().collect();
    TransferOptions { block_bytes, window_blocks, timeout: None, acknowledged }
}

/// Starts a transfer of `file` and sends its first burst.
fn begin(options: TransferOptions, file: &[u8], now: Instant) -> TestTransfer<'_> {
    let (transfer, adaptive) = (Transfer::new(options, now), true);
    let mut test = TestTransfer { transfer, rest: file, adaptive, sent: vec![] };
    test.send(now);
    test
}

struct TestTransfer<'a> {
    transfer: Transfer,
    rest: &'a [u8],
    /// True if bursts shrink after a loss; otherwise every window is sent at once.
    adaptive: bool,
    /// The packets sent last.
    sent: Vec<Vec<u8>>,
}

impl TestTransfer<'_> {
    fn send(&mut self, now: Instant) {
        while self.transfer.needs_block() {
            let (block, rest) =
                self.rest.split_at(self.transfer.block_bytes().min(self.rest.len()));
            self.transfer.push_block(block);
            self.rest = rest;
        }
        if !self.adaptive {
            self.transfer.pacing = Pacing::new(self.transfer.options.window_blocks);
        }
        let Burst { bytes, packet_bytes } = self.transfer.next_burst(now);
        self.sent = bytes.chunks(packet_bytes).map(<[u8]>::to_vec).collect();
    }

    fn handle(&mut self, event: Event, now: Instant) -> NextStep {
        let next = self.transfer.handle(&event, now);
        if next == NextStep::Send {
            self.send(now);
        }
        next
    }

    /// Lets the deadline pass.
    fn pass_deadline(&mut self) -> (NextStep, Instant) {
        let late = self.transfer.deadline;
        (self.handle(Event::DeadlinePassed, late), late)
    }

    fn numbers(&self) -> Vec<u16> {
        self.sent.iter().map(|packet| block_number(packet)).collect()
    }
}

fn block_number(packet: &[u8]) -> u16 {
    parse_data(packet).expect("a block").0
}

#[test]
fn options_are_acknowledged_before_the_first_block() {
    let now = Instant::now();
    let mut test = begin(options(8, 2, true), &[7; 20], now);
    assert_eq!(test.sent, [b"\0\x06blksize\x008\0"]);
    assert_eq!(test.handle(Event::Acknowledged(0), now), NextStep::Send);
    assert_eq!(test.numbers(), [1, 2]);
}

#[test]
fn without_options_the_first_block_is_the_response() {
    assert_eq!(begin(options(512, 1, false), &[7; 600], Instant::now()).numbers(), [1]);
}

#[test]
fn an_acknowledgement_without_progress_has_no_response() {
    let now = Instant::now();
    let mut test = begin(options(8, 1, false), &[7; 20], now);
    assert_eq!(test.handle(Event::Acknowledged(1), now), NextStep::Send);
    assert_eq!(test.handle(Event::Acknowledged(1), now), NextStep::Wait);
    assert_eq!(test.handle(Event::Acknowledged(0), now), NextStep::Wait);
    assert_eq!(test.handle(Event::Acknowledged(3), now), NextStep::Wait);
}

#[test]
fn after_a_loss_the_window_starts_after_the_last_acknowledged_block() {
    let now = Instant::now();
    let mut test = begin(options(8, 4, false), &[7; 100], now);
    assert_eq!(test.numbers(), [1, 2, 3, 4]);
    assert_eq!(test.handle(Event::Acknowledged(2), now), NextStep::Send);
    assert_eq!(test.numbers(), [3, 4]);
}

/// Starts a transfer in windows of four, and lets the client acknowledge the options after one round trip. Returns that time.
fn with_round_trip(file: &[u8]) -> (TestTransfer<'_>, Instant) {
    let start = Instant::now();
    let mut test = begin(options(8, 4, true), file, start);
    let now = start + ROUND_TRIP;
    assert_eq!(test.handle(Event::Acknowledged(0), now), NextStep::Send);
    (test, now)
}

const ROUND_TRIP: Duration = Duration::from_millis(10);

#[test]
fn after_a_loss_a_window_is_sent_in_bursts_a_round_trip_apart() {
    let (mut test, now) = with_round_trip(&[7; 200]);
    assert_eq!(test.handle(Event::Acknowledged(2), now + ROUND_TRIP), NextStep::Send);
    assert_eq!(test.numbers(), [3, 4]);
    assert_eq!(test.transfer.deadline, now + 2 * ROUND_TRIP);
    let (next, late) = test.pass_deadline();
    assert_eq!((next, test.numbers()), (NextStep::Send, vec![5, 6]));
    assert_eq!(test.handle(Event::Acknowledged(6), late + ROUND_TRIP), NextStep::Send);
    assert_eq!(test.numbers(), [7, 8, 9]);
}

#[test]
fn a_client_that_misses_a_block_is_not_sent_the_rest_of_the_window() {
    let (mut test, now) = with_round_trip(&[7; 200]);
    assert_eq!(test.handle(Event::Acknowledged(1), now + ROUND_TRIP), NextStep::Send);
    assert_eq!(test.numbers(), [2, 3]);
    assert_eq!(test.handle(Event::Acknowledged(2), now + ROUND_TRIP * 3 / 2), NextStep::Send);
    assert_eq!(test.numbers(), [3]);
}

#[test]
fn a_client_that_misses_the_first_block_of_a_window_is_responded_to_once() {
    let (mut test, now) = with_round_trip(&[7; 200]);
    assert_eq!(test.handle(Event::Acknowledged(4), now + ROUND_TRIP), NextStep::Send);
    let (echo, response) = (now + ROUND_TRIP * 5 / 4, now + 2 * ROUND_TRIP);
    assert_eq!(test.handle(Event::Acknowledged(4), echo), NextStep::Wait);
    assert_eq!(test.handle(Event::Acknowledged(4), response), NextStep::Send);
    assert_eq!(test.numbers(), [5, 6]);
    assert_eq!(test.handle(Event::Acknowledged(4), response + ROUND_TRIP), NextStep::Wait);
}

#[test]
fn a_measured_round_trip_shortens_the_first_timeout_but_not_the_longest_silence() {
    let (mut test, acknowledged) = with_round_trip(&[7; 200]);
    let (mut timeouts, mut now) = (vec![], acknowledged);
    let outcome = loop {
        let (next, late) = test.pass_deadline();
        timeouts.push((late - now).as_millis());
        now = late;
        if let NextStep::End(outcome) = next {
            break outcome;
        }
    };
    assert_eq!(
        (timeouts[0], now - acknowledged, outcome),
        (200, MAX_SILENCE, TransferOutcome::TimedOut)
    );
}

#[test]
fn a_silent_client_gets_six_timeouts_that_double_up_to_four_seconds() {
    let start = Instant::now();
    let mut test = begin(options(8, 1, false), &[7; 20], start);
    let (mut now, mut timeouts) = (start, vec![]);
    let outcome = loop {
        timeouts.push((test.transfer.deadline - now).as_secs());
        now = test.transfer.deadline;
        match test.pass_deadline().0 {
            NextStep::Send => assert_eq!(test.numbers(), [1]),
            NextStep::Wait => panic!("the deadline has passed"),
            NextStep::End(outcome) => break outcome,
        }
    };
    assert_eq!((timeouts, outcome), (vec![1, 2, 4, 4, 4, 4], TransferOutcome::TimedOut));
}

#[test]
fn progress_resets_the_timeout() {
    let start = Instant::now();
    let mut test = begin(options(8, 1, false), &[7; 20], start);
    let late = test.transfer.deadline;
    assert_eq!(test.handle(Event::DeadlinePassed, late), NextStep::Send);
    assert_eq!(test.handle(Event::Acknowledged(1), late), NextStep::Send);
    assert_eq!(test.transfer.deadline - late, Duration::from_secs(1));
}

#[test]
fn the_clients_own_timeout_does_not_double() {
    let start = Instant::now();
    let six = Duration::from_secs(6);
    let mut test =
        begin(TransferOptions { timeout: Some(six), ..options(8, 1, true) }, &[7; 20], start);
    assert_eq!(test.handle(Event::DeadlinePassed, start + six), NextStep::Send);
    assert_eq!(test.transfer.deadline, start + six + six);
}

#[test]
fn a_deadline_that_has_not_passed_sends_nothing() {
    let start = Instant::now();
    assert_eq!(
        begin(options(8, 1, false), &[7; 20], start).handle(Event::DeadlinePassed, start),
        NextStep::Wait
    );
}

#[test]
fn error_8_to_the_option_acknowledgement_is_a_size_probe() {
    let now = Instant::now();
    let refused = Event::ClientError(ErrorCode::OPTIONS_REFUSED);
    let mut test = begin(options(8, 1, true), &[7; 20], now);
    assert_eq!(test.handle(refused.clone(), now), NextStep::End(TransferOutcome::SizeProbe));
    let _ = test.handle(Event::Acknowledged(0), now);
    assert_eq!(test.handle(refused, now), NextStep::End(TransferOutcome::Aborted(8)));
}

#[test]
fn a_repeated_request_repeats_the_first_packet_and_starts_no_transfer() {
    let now = Instant::now();
    let mut test = begin(options(8, 1, false), &[7; 20], now);
    assert_eq!(test.handle(Event::RequestRepeated, now), NextStep::Send);
    assert_eq!(test.numbers(), [1]);
    assert_eq!(test.handle(Event::Acknowledged(1), now), NextStep::Send);
    assert_eq!(test.handle(Event::RequestRepeated, now), NextStep::Wait);
}

#[test]
fn a_repeated_request_after_silence_ends_the_transfer_of_a_machine_that_was_reset() {
    let now = Instant::now();
    let mut test = begin(options(8, 1, false), &[7; 20], now);
    let _ = test.handle(Event::Acknowledged(1), now);
    let late = test.transfer.deadline;
    assert_eq!(test.handle(Event::DeadlinePassed, late), NextStep::Send);
    assert_eq!(
        test.handle(Event::RequestRepeated, late),
        NextStep::End(TransferOutcome::Restarted)
    );
}

#[test]
fn block_numbers_roll_over_to_0() {
    let now = Instant::now();
    let mut test = begin(options(8, 4, false), &[7; 100], now);
    test.transfer.acknowledged_blocks = 65_529;
    assert_eq!(test.handle(Event::Acknowledged(65_533), now), NextStep::Send);
    assert_eq!(test.numbers(), [65_534, 65_535, 0, 1]);
    assert_eq!(test.handle(Event::Acknowledged(1), now), NextStep::Send);
    assert_eq!(test.numbers(), [2, 3, 4, 5]);
    assert_eq!(test.transfer.acknowledged_blocks, 65_537);
}
