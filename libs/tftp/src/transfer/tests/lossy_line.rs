//! A client behind a line that loses, doubles and reorders packets: the bytes that it receives, and the bytes that the server
//! sends for them.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::negotiation::MAX_WINDOW_BLOCKS;

/// A client that follows RFC 7440.
struct Client {
    block_bytes: usize,
    window_blocks: usize,
    options_received: bool,
    received: Vec<u8>,
    next_block: u64,
    received_of_window: usize,
    complete: bool,
}

impl Client {
    fn new(options: &TransferOptions) -> Self {
        Self {
            block_bytes: options.block_bytes.into(),
            window_blocks: options.window_blocks.into(),
            options_received: options.acknowledged.is_empty(),
            received: vec![],
            next_block: 1,
            received_of_window: 0,
            complete: false,
        }
    }

    /// Receives a packet and returns the number of the block it acknowledges.
    fn receive(&mut self, packet: &[u8]) -> Option<u16> {
        if let Some((block, data)) = parse_data(packet) {
            return if self.options_received { self.receive_block(block, data) } else { None };
        }
        self.options_received = true;
        (self.next_block == 1).then_some(0)
    }

    fn receive_block(&mut self, block: u16, data: &[u8]) -> Option<u16> {
        if self.complete || block != wire_number(self.next_block) {
            self.received_of_window = 0;
            return Some(wire_number(self.next_block - 1));
        }
        self.received.extend_from_slice(data);
        self.next_block += 1;
        self.received_of_window += 1;
        self.complete = data.len() < self.block_bytes;
        if !self.complete && self.received_of_window < self.window_blocks {
            return None;
        }
        self.received_of_window = 0;
        Some(block)
    }
}

/// The effect of the line on one packet.
#[derive(Clone, Copy, Debug)]
enum PacketFate {
    Delivered,
    Lost,
    Doubled,
    Delayed,
}

fn fate() -> impl Strategy<Value = PacketFate> {
    prop_oneof![
        6 => Just(PacketFate::Delivered),
        1 => Just(PacketFate::Lost),
        1 => Just(PacketFate::Doubled),
        1 => Just(PacketFate::Delayed),
    ]
}

/// One direction of the line.
#[derive(Default)]
struct Direction {
    packets: VecDeque<Vec<u8>>,
    delayed: VecDeque<Vec<u8>>,
}

impl Direction {
    fn send(&mut self, packet: &[u8], fate: PacketFate) {
        let copies = match fate {
            PacketFate::Lost => 0,
            PacketFate::Delivered | PacketFate::Delayed => 1,
            PacketFate::Doubled => 2,
        };
        let delayed = matches!(fate, PacketFate::Delayed);
        let queue = if delayed { &mut self.delayed } else { &mut self.packets };
        queue.extend((0..copies).map(|_| packet.to_vec()));
    }

    /// Returns the next packet; delayed ones come last.
    fn receive(&mut self) -> Option<Vec<u8>> {
        self.packets.pop_front().or_else(|| self.delayed.pop_front())
    }
}

/// The end of a transfer, as client and server see it.
#[derive(Debug, PartialEq, Eq)]
struct Delivery {
    received: Vec<u8>,
    /// True if the client knows that it has the whole file.
    complete: bool,
    /// The outcome for the server.
    outcome: TransferOutcome,
    /// Bytes that the server sent.
    sent_bytes: usize,
}

/// Runs a transfer over a line. `fate` gets the position of a packet in its burst, which is 0 for an acknowledgement.
fn deliver(mut test: TestTransfer<'_>, mut fate: impl FnMut(usize) -> PacketFate) -> Delivery {
    let mut client = Client::new(&test.transfer.options);
    let mut now = test.transfer.window_sent_at;
    let (mut to_client, mut to_server) = (Direction::default(), Direction::default());
    let (mut next, mut sent_bytes) = (NextStep::Send, 0);
    loop {
        match next {
            NextStep::Wait => {}
            NextStep::Send => {
                sent_bytes += test.sent.concat().len();
                let packets = test.sent.iter().enumerate();
                packets.for_each(|(position, packet)| to_client.send(packet, fate(position)));
            }
            NextStep::End(outcome) => {
                let Client { received, complete, .. } = client;
                return Delivery { received, complete, outcome, sent_bytes };
            }
        }
        while let Some(packet) = to_client.receive() {
            if let Some(block) = client.receive(&packet) {
                to_server.send(&block.to_be_bytes(), fate(0));
            }
        }
        let event = match to_server.receive() {
            Some(block) => Event::Acknowledged(u16::from_be_bytes(block.try_into().unwrap())),
            None => {
                now = test.transfer.deadline;
                Event::DeadlinePassed
            }
        };
        next = test.handle(event, now);
    }
}

/// Applies `fates` in turn; later packets are delivered.
fn in_turn(fates: &[PacketFate]) -> impl FnMut(usize) -> PacketFate {
    let mut fates = fates.iter().copied();
    move |_| fates.next().unwrap_or(PacketFate::Delivered)
}

/// Returns the bytes that the server sends for 3,000 blocks in windows of eight: with adaptive bursts, and without.
fn sent_bytes<F: FnMut(usize) -> PacketFate>(line: impl Fn() -> F) -> [usize; 2] {
    let file: Vec<u8> = (0..3_000 * 16_u32).map(|at| (at / 5) as u8).collect();
    [true, false].map(|adaptive| {
        let test = TestTransfer { adaptive, ..begin(options(16, 8, true), &file, Instant::now()) };
        let delivery = deliver(test, line());
        assert_eq!((delivery.complete, delivery.outcome), (true, TransferOutcome::Complete));
        assert!(delivery.received == file);
        delivery.sent_bytes
    })
}

/// Loses each packet with a probability of `percent`; each call loses the same ones.
fn losing(percent: u32) -> impl FnMut(usize) -> PacketFate {
    let mut state = 0x2545_f491_u32;
    move |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if state % 100 < percent { PacketFate::Lost } else { PacketFate::Delivered }
    }
}

#[test]
fn adaptive_bursts_send_less_over_a_line_that_loses_packets() {
    for percent in [10, 20] {
        let [adaptive, fixed] = sent_bytes(|| losing(percent));
        assert!(adaptive * 5 < fixed * 4, "{percent} %: {adaptive} and {fixed} bytes");
    }
}

#[test]
fn adaptive_bursts_send_less_to_a_buffer_of_three_blocks() {
    let room_for_three =
        |position| if position < 3 { PacketFate::Delivered } else { PacketFate::Lost };
    let [adaptive, fixed] = sent_bytes(|| room_for_three);
    assert!(adaptive * 3 < fixed * 2, "{adaptive} and {fixed} bytes");
}

#[test]
fn every_block_is_sent_once_over_a_line_without_loss() {
    let [adaptive, fixed] = sent_bytes(|| |_| PacketFate::Delivered);
    assert_eq!(adaptive, fixed);
    let option_ack = begin(options(16, 8, true), &[], Instant::now()).sent[0].len();
    assert_eq!(fixed, 3_000 * 20 + 4 + option_ack);
}

#[test]
fn echoes_do_not_double_the_rest_of_the_file() {
    // The network doubles one window. Its doubled acknowledgements must not make the server send more.
    let line = || {
        let mut number = 0;
        move |_| {
            number += 1;
            if (10..18).contains(&number) { PacketFate::Doubled } else { PacketFate::Delivered }
        }
    };
    let [doubled, once] = [sent_bytes(line)[0], sent_bytes(|| |_| PacketFate::Delivered)[0]];
    assert!(doubled <= once + 3 * 8 * 20, "{doubled} and {once} bytes");
}

proptest! {
    #[test]
    fn a_bad_line_delivers_exactly_the_file_or_the_transfer_ends(
        file in prop::collection::vec(any::<u8>(), 0..400),
        block in 8..40_u16,
        window in 1..9_u16,
        acknowledged: bool,
        fates in prop::collection::vec(fate(), 0..200),
    ) {
        let options = options(block, if acknowledged { window } else { 1 }, acknowledged);
        let Delivery { received, complete, outcome, .. } =
            deliver(begin(options, &file, Instant::now()), in_turn(&fates));
        prop_assert!(file.starts_with(&received));
        match outcome {
            TransferOutcome::Complete => prop_assert!(complete && received == file),
            // Only the last acknowledgements were lost, or no packet was delivered in six attempts.
            TransferOutcome::TimedOut => prop_assert!(!complete || received == file),
            TransferOutcome::SizeProbe | TransferOutcome::Aborted(_) | TransferOutcome::Restarted => {
                prop_assert!(false, "{:?}", outcome);
            }
        }
    }

    #[test]
    fn fewer_losses_than_attempts_never_end_a_transfer(
        file in prop::collection::vec(any::<u8>(), 0..600),
        window in 1..9_u16,
        losses in prop::collection::btree_set(0..120_usize, 0..6),
    ) {
        let fate = |number| {
            if losses.contains(&number) { PacketFate::Lost } else { PacketFate::Delivered }
        };
        let fates: Vec<_> = (0..120).map(fate).collect();
        let test = begin(options(16, window, true), &file, Instant::now());
        let delivery = deliver(test, in_turn(&fates));
        prop_assert_eq!((delivery.complete, delivery.outcome), (true, TransferOutcome::Complete));
        prop_assert_eq!(delivery.received, file);
    }

    #[test]
    fn no_acknowledgements_make_it_panic_or_hold_more_than_its_window(
        blocks in prop::collection::vec(any::<u16>(), 0..200),
        window in 1..20_u16,
    ) {
        let now = Instant::now();
        let window = window.min(MAX_WINDOW_BLOCKS);
        let file = vec![7; 2000];
        let mut test = begin(options(8, window, true), &file, now);
        for block in blocks {
            // The transfer is at small block numbers.
            let _ = test.handle(Event::Acknowledged(block % 64), now);
            let held = test.transfer.window.len().max(test.sent.len());
            prop_assert!(held <= usize::from(window));
        }
    }
}
