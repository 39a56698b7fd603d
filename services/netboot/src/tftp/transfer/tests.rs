//! A transfer without a network: the times, the numbers, and a client at the end of a bad line.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::super::negotiation::Offer;
use super::*;

fn terms(block: u16, window: u16, options: bool) -> Terms {
    let granted =
        if options { vec![(b"blksize".to_vec(), block.to_string().into_bytes())] } else { vec![] };
    Terms { block, window, timeout: None, granted }
}

/// A transfer of `file` whose first packets are ready.
fn begin(terms: Terms, file: &[u8], now: Instant) -> Sending<'_> {
    let mut sending = Sending { transfer: Transfer::new(terms, now), rest: file };
    sending.fill();
    sending
}

struct Sending<'a> {
    transfer: Transfer,
    rest: &'a [u8],
}

impl Sending<'_> {
    fn fill(&mut self) {
        while self.transfer.wants() {
            let (block, rest) = self.rest.split_at(self.transfer.block().min(self.rest.len()));
            self.transfer.push(Bytes::copy_from_slice(block));
            self.rest = rest;
        }
    }

    fn on(&mut self, event: Event, now: Instant) -> Next {
        let next = self.transfer.on(&event, now);
        if next == Next::Send {
            self.fill();
        }
        next
    }

    fn numbers(&self) -> Vec<u16> {
        let packets = self.transfer.outgoing();
        packets.iter().map(|packet| block_number(packet)).collect()
    }
}

fn block_number(packet: &[u8]) -> u16 {
    let Packet::Data { block, .. } = Packet::parse(packet).unwrap() else { panic!("no block") };
    block
}

#[test]
fn options_are_acknowledged_before_anything_is_sent() {
    let now = Instant::now();
    let mut sending = begin(terms(8, 2, true), &[7; 20], now);
    let greeting = Packet::OptionAck(vec![(b"blksize".to_vec(), b"8".to_vec())]);
    assert_eq!(sending.transfer.outgoing(), [greeting.encode()]);
    assert_eq!(sending.on(Event::Acked(0), now), Next::Send);
    assert_eq!(sending.numbers(), [1, 2]);
}

#[test]
fn without_options_the_first_block_is_the_answer() {
    assert_eq!(begin(terms(512, 1, false), &[7; 600], Instant::now()).numbers(), [1]);
}

#[test]
fn a_repeated_ack_is_not_answered() {
    let now = Instant::now();
    let mut sending = begin(terms(8, 1, false), &[7; 20], now);
    assert_eq!(sending.on(Event::Acked(1), now), Next::Send);
    assert_eq!(sending.on(Event::Acked(1), now), Next::Wait);
    assert_eq!(sending.on(Event::Acked(0), now), Next::Wait);
    assert_eq!(sending.on(Event::Acked(3), now), Next::Wait);
}

#[test]
fn after_a_loss_the_window_begins_behind_the_last_ack() {
    let now = Instant::now();
    let mut sending = begin(terms(8, 4, false), &[7; 100], now);
    assert_eq!(sending.numbers(), [1, 2, 3, 4]);
    assert_eq!(sending.on(Event::Acked(2), now), Next::Send);
    assert_eq!(sending.numbers(), [3, 4, 5, 6]);
}

#[test]
fn a_silent_client_is_given_six_tries_in_doubling_time() {
    let start = Instant::now();
    let mut sending = begin(terms(8, 1, false), &[7; 20], start);
    let (mut now, mut waits) = (start, vec![]);
    let outcome = loop {
        waits.push((sending.transfer.deadline() - now).as_secs());
        now = sending.transfer.deadline();
        match sending.on(Event::Overdue, now) {
            Next::Send => assert_eq!(sending.numbers(), [1]),
            Next::Wait => panic!("the deadline has passed"),
            Next::End(outcome) => break outcome,
        }
    };
    assert_eq!((waits, outcome), (vec![1, 2, 4, 4, 4, 4], Outcome::TimedOut));
}

#[test]
fn progress_gives_back_the_tries_and_the_patience() {
    let start = Instant::now();
    let mut sending = begin(terms(8, 1, false), &[7; 20], start);
    let late = sending.transfer.deadline();
    assert_eq!(sending.on(Event::Overdue, late), Next::Send);
    assert_eq!(sending.on(Event::Acked(1), late), Next::Send);
    assert_eq!(sending.transfer.deadline() - late, PATIENCE);
}

#[test]
fn the_clients_own_time_does_not_double() {
    let start = Instant::now();
    let six = Duration::from_secs(6);
    let mut sending = begin(Terms { timeout: Some(six), ..terms(8, 1, true) }, &[7; 20], start);
    assert_eq!(sending.on(Event::Overdue, start + six), Next::Send);
    assert_eq!(sending.transfer.deadline(), start + six + six);
}

#[test]
fn a_deadline_that_moved_is_not_overdue() {
    let start = Instant::now();
    assert_eq!(begin(terms(8, 1, false), &[7; 20], start).on(Event::Overdue, start), Next::Wait);
}

#[test]
fn error_8_to_the_greeting_only_asked_for_the_size() {
    let now = Instant::now();
    let refused = Event::Failed(Code::OPTIONS_REFUSED);
    let mut sending = begin(terms(8, 1, true), &[7; 20], now);
    assert_eq!(sending.on(refused.clone(), now), Next::End(Outcome::SizeProbe));
    let _ = sending.on(Event::Acked(0), now);
    assert_eq!(sending.on(refused, now), Next::End(Outcome::Aborted(8)));
}

#[test]
fn a_repeated_request_repeats_the_answer_and_starts_nothing() {
    let now = Instant::now();
    let mut sending = begin(terms(8, 1, false), &[7; 20], now);
    assert_eq!(sending.on(Event::AskedAgain, now), Next::Send);
    assert_eq!(sending.numbers(), [1]);
    assert_eq!(sending.on(Event::Acked(1), now), Next::Send);
    assert_eq!(sending.on(Event::AskedAgain, now), Next::Wait);
}

#[test]
fn a_request_after_silence_is_a_machine_that_was_reset() {
    let now = Instant::now();
    let mut sending = begin(terms(8, 1, false), &[7; 20], now);
    let _ = sending.on(Event::Acked(1), now);
    let late = sending.transfer.deadline();
    assert_eq!(sending.on(Event::Overdue, late), Next::Send);
    assert_eq!(sending.on(Event::AskedAgain, late), Next::End(Outcome::Restarted));
}

#[test]
fn block_numbers_roll_over_to_0() {
    let now = Instant::now();
    let mut sending = begin(terms(8, 4, false), &[7; 100], now);
    sending.transfer.acked = 65_533;
    assert_eq!(sending.numbers(), [65_534, 65_535, 0, 1]);
    assert_eq!(sending.on(Event::Acked(0), now), Next::Send);
    assert_eq!(sending.numbers(), [1, 2, 3, 4]);
    assert_eq!(sending.transfer.acked, 65_536);
}

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

/// Runs `file` through the line and returns what the client has, and how it ended for the server.
fn deliver(file: &[u8], terms: Terms, fates: &[Fate]) -> (Vec<u8>, bool, Outcome) {
    let mut fates = fates.iter().copied().chain(std::iter::repeat(Fate::Arrives));
    let mut now = Instant::now();
    let (block, window) = (terms.block.into(), terms.window.into());
    let greeted = terms.granted.is_empty();
    let mut client =
        Client { block, window, greeted, received: vec![], expected: 1, in_window: 0, done: false };
    let mut sending = begin(terms, file, now);
    let (mut out, mut back) = (Way::default(), Way::default());
    let mut next = Next::Send;
    loop {
        if let Next::End(outcome) = next {
            return (client.received, client.done, outcome);
        }
        if next == Next::Send {
            sending
                .transfer
                .outgoing()
                .iter()
                .for_each(|packet| out.put(packet, fates.next().unwrap()));
        }
        while let Some(packet) = out.take() {
            if let Some(ack) = client.take(&packet) {
                back.put(&Packet::Ack(ack).encode(), fates.next().unwrap());
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

proptest! {
    #[test]
    fn a_bad_line_delivers_exactly_the_file_or_ends(
        file in prop::collection::vec(any::<u8>(), 0..400),
        block in 8..40_u16,
        window in 1..9_u16,
        options: bool,
        fates in prop::collection::vec(fate(), 0..200),
    ) {
        let (received, done, outcome) = deliver(&file, terms(block, if options { window } else { 1 }, options), &fates);
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
        let (received, done, outcome) = deliver(&file, terms(16, window, true), &fates);
        prop_assert_eq!((received, done, outcome), (file, true, Outcome::Complete));
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
            prop_assert!(sending.transfer.outgoing().len() <= most.max(1));
        }
    }
}
