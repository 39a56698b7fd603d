//! A client at the end of a bad line: what it gets, and what the server has to send for it.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::super::negotiation::Offer;
use super::*;

/// A client that keeps RFC 7440, at the end of a line that may lose, double and swap.
struct Client {
    block: usize,
    window: usize,
    greeted: bool,
    received: Vec<u8>,
    expected: u64,
    in_window: usize,
    done: bool,
}

impl Client {
    fn of(terms: &Terms) -> Self {
        let (block, window) = (terms.block.into(), terms.window.into());
        let greeted = terms.granted.is_empty();
        Self { block, window, greeted, received: vec![], expected: 1, in_window: 0, done: false }
    }

    /// Takes a packet and returns the acknowledgement it makes it send.
    fn take(&mut self, packet: &[u8]) -> Option<u16> {
        if let Packet::Data { block, data } = Packet::parse(packet).unwrap() {
            return if self.greeted { self.data(block, &data) } else { None };
        }
        self.greeted = true;
        (self.expected == 1).then_some(0)
    }

    fn data(&mut self, block: u16, data: &[u8]) -> Option<u16> {
        if self.done || block != wire(self.expected) {
            self.in_window = 0;
            return Some(wire(self.expected - 1));
        }
        self.received.extend_from_slice(data);
        self.expected += 1;
        self.in_window += 1;
        self.done = data.len() < self.block;
        if !self.done && self.in_window < self.window {
            return None;
        }
        self.in_window = 0;
        Some(block)
    }
}

/// What the line does to one packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Doubled,
    Late,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Arrives), 1 => Just(Fate::Lost), 1 => Just(Fate::Doubled), 1 => Just(Fate::Late)]
}

/// A direction of the line.
#[derive(Default)]
struct Way {
    packets: VecDeque<Vec<u8>>,
    late: VecDeque<Vec<u8>>,
}

impl Way {
    fn put(&mut self, packet: &[u8], fate: Fate) {
        let copies = match fate {
            Fate::Lost => 0,
            Fate::Arrives | Fate::Late => 1,
            Fate::Doubled => 2,
        };
        let to = if matches!(fate, Fate::Late) { &mut self.late } else { &mut self.packets };
        to.extend((0..copies).map(|_| packet.to_vec()));
    }

    /// What was held back comes after what overtook it.
    fn take(&mut self) -> Option<Vec<u8>> {
        self.packets.pop_front().or_else(|| self.late.pop_front())
    }
}

/// What came of a transfer.
#[derive(Debug, PartialEq, Eq)]
struct Delivered {
    /// What the client has, and whether it knows that this is all.
    received: Vec<u8>,
    done: bool,
    /// How it ended for the server.
    outcome: Outcome,
    /// How many octets the server sent.
    sent: usize,
}

/// Runs a transfer over a line that does to a packet what `fate` says. It is told which of those that were sent at once
/// the packet is; an acknowledgement is alone.
fn deliver(mut sending: Sending<'_>, mut fate: impl FnMut(usize) -> Fate) -> Delivered {
    let mut client = Client::of(&sending.transfer.terms);
    let mut now = sending.transfer.begun;
    let (mut out, mut back) = (Way::default(), Way::default());
    let (mut next, mut sent) = (Next::Send, 0);
    loop {
        match next {
            Next::Wait => {}
            Next::Send => {
                sent += sending.out.concat().len();
                sending.out.iter().enumerate().for_each(|(at, packet)| out.put(packet, fate(at)));
            }
            Next::End(outcome) => {
                return Delivered { received: client.received, done: client.done, outcome, sent };
            }
        }
        while let Some(packet) = out.take() {
            if let Some(ack) = client.take(&packet) {
                back.put(&Packet::Ack(ack).encode(), fate(0));
            }
        }
        let event = match back.take().map(|packet| Packet::parse(&packet).unwrap()) {
            Some(Packet::Ack(block)) => Event::Acked(block),
            Some(other) => panic!("{other:?} is no acknowledgement"),
            None => {
                now = sending.transfer.deadline();
                Event::Overdue
            }
        };
        next = sending.on(event, now);
    }
}

/// What `fates` say, and then everything arrives.
fn by(fates: &[Fate]) -> impl FnMut(usize) -> Fate {
    let mut fates = fates.iter().copied();
    move |_| fates.next().unwrap_or(Fate::Arrives)
}

/// What the server sends of 3,000 blocks in windows of eight, in octets: where it adapts to the line, and where not.
fn spent<F: FnMut(usize) -> Fate>(line: impl Fn() -> F) -> [usize; 2] {
    let file: Vec<u8> = (0..3_000 * 16_u32).map(|at| (at / 5) as u8).collect();
    [true, false].map(|adapts| {
        let sending = Sending { adapts, ..begin(terms(16, 8, true), &file, Instant::now()) };
        let delivered = deliver(sending, line());
        assert_eq!((delivered.done, delivered.outcome), (true, Outcome::Complete));
        assert!(delivered.received == file);
        delivered.sent
    })
}

/// A line that loses every packet with a probability of `percent`, always the same ones.
fn losing(percent: u32) -> impl FnMut(usize) -> Fate {
    let mut state = 0x2545_f491_u32;
    move |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if state % 100 < percent { Fate::Lost } else { Fate::Arrives }
    }
}

#[test]
fn a_line_that_loses_a_tenth_or_a_fifth_is_sent_less_by_who_adapts() {
    for percent in [10, 20] {
        let [adapted, whole] = spent(|| losing(percent));
        assert!(adapted * 5 < whole * 4, "{percent} %: {adapted} and {whole} octets");
    }
}

#[test]
fn a_buffer_of_three_blocks_is_sent_less_by_who_adapts() {
    let [adapted, whole] = spent(|| |at| if at < 3 { Fate::Arrives } else { Fate::Lost });
    assert!(adapted * 3 < whole * 2, "{adapted} and {whole} octets");
}

#[test]
fn a_good_line_is_sent_every_block_once() {
    let [adapted, whole] = spent(|| |_| Fate::Arrives);
    assert_eq!(adapted, whole);
    assert_eq!(whole, 3_000 * 20 + 4 + begin(terms(16, 8, true), &[], Instant::now()).out[0].len());
}

#[test]
fn echoes_do_not_double_the_rest_of_the_file() {
    // One window is sent twice by the network; its acknowledgements are no reason to send more.
    let line = || {
        let mut number = 0;
        move |_| {
            number += 1;
            if (10..18).contains(&number) { Fate::Doubled } else { Fate::Arrives }
        }
    };
    let [adapted, once] = [spent(line)[0], spent(|| |_| Fate::Arrives)[0]];
    assert!(adapted <= once + 3 * 8 * 20, "{adapted} and {once} octets");
}

proptest! {
    #[test]
    fn a_bad_line_delivers_exactly_the_file_or_ends(
        file in prop::collection::vec(any::<u8>(), 0..400),
        block in 8..40_u16,
        window in 1..9_u16,
        options: bool,
        fates in prop::collection::vec(fate(), 0..200),
    ) {
        let terms = terms(block, if options { window } else { 1 }, options);
        let Delivered { received, done, outcome, .. } =
            deliver(begin(terms, &file, Instant::now()), by(&fates));
        prop_assert!(file.starts_with(&received));
        match outcome {
            Outcome::Complete => prop_assert!(done && received == file),
            // Only the last acknowledgements were lost, or nothing came through six times over.
            Outcome::TimedOut => prop_assert!(!done || received == file),
            Outcome::SizeProbe | Outcome::Aborted(_) | Outcome::Restarted => prop_assert!(false, "{:?}", outcome),
        }
    }

    #[test]
    fn fewer_losses_than_tries_never_stop_a_transfer(
        file in prop::collection::vec(any::<u8>(), 0..600),
        window in 1..9_u16,
        losses in prop::collection::btree_set(0..120_usize, 0..6),
    ) {
        let fate = |number| if losses.contains(&number) { Fate::Lost } else { Fate::Arrives };
        let fates: Vec<_> = (0..120).map(fate).collect();
        let delivered = deliver(begin(terms(16, window, true), &file, Instant::now()), by(&fates));
        prop_assert_eq!((delivered.done, delivered.outcome), (true, Outcome::Complete));
        prop_assert_eq!(delivered.received, file);
    }

    #[test]
    fn nothing_a_client_sends_makes_it_panic_or_hold_more_than_its_window(
        acks in prop::collection::vec(any::<u16>(), 0..200),
        window in 1..20_u16,
    ) {
        let now = Instant::now();
        let most = usize::from(window.min(Offer::default().window));
        let file = vec![7; 2000];
        let mut sending = begin(terms(8, window.min(Offer::default().window), true), &file, now);
        for ack in acks {
            // Small numbers are where a transfer is.
            let _ = sending.on(Event::Acked(ack % 64), now);
            prop_assert!(sending.transfer.window.len() <= most.max(1) && sending.out.len() <= most.max(1));
        }
    }
}
