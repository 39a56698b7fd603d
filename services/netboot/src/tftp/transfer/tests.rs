//! A transfer without a network: the times, the numbers, and a client at the end of a bad line.
#![allow(clippy::unwrap_used)]

mod line;

use super::*;

fn terms(block: u16, window: u16, options: bool) -> Terms {
    let granted =
        if options { vec![(b"blksize".to_vec(), block.to_string().into_bytes())] } else { vec![] };
    Terms { block, window, timeout: None, granted }
}

/// A transfer of `file` whose first packets have gone out.
fn begin(terms: Terms, file: &[u8], now: Instant) -> Sending<'_> {
    let (transfer, adapts) = (Transfer::new(terms, now), true);
    let mut sending = Sending { transfer, rest: file, adapts, out: vec![] };
    sending.send(now);
    sending
}

struct Sending<'a> {
    transfer: Transfer,
    rest: &'a [u8],
    /// Whether portions shrink, or windows go out whole whatever comes of them.
    adapts: bool,
    /// What went out last.
    out: Vec<Vec<u8>>,
}

impl Sending<'_> {
    fn send(&mut self, now: Instant) {
        while self.transfer.wants() {
            let (block, rest) = self.rest.split_at(self.transfer.block().min(self.rest.len()));
            self.transfer.push(block);
            self.rest = rest;
        }
        if !self.adapts {
            self.transfer.pace = Pace::new(self.transfer.terms.window);
        }
        self.out = self.transfer.burst(now).packets().map(<[u8]>::to_vec).collect();
    }

    fn on(&mut self, event: Event, now: Instant) -> Next {
        let next = self.transfer.on(&event, now);
        if next == Next::Send {
            self.send(now);
        }
        next
    }

    /// The deadline passes.
    fn wait(&mut self) -> (Next, Instant) {
        let late = self.transfer.deadline();
        (self.on(Event::Overdue, late), late)
    }

    fn numbers(&self) -> Vec<u16> {
        self.out.iter().map(|packet| block_number(packet)).collect()
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
    assert_eq!(sending.out, [greeting.encode()]);
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
    assert_eq!(sending.numbers(), [3, 4]);
}

/// A transfer in windows of four to a client that takes a tenth of a second to answer, and what time it is then.
fn measured(file: &[u8]) -> (Sending<'_>, Instant) {
    let start = Instant::now();
    let mut sending = begin(terms(8, 4, true), file, start);
    let now = start + TRIP;
    assert_eq!(sending.on(Event::Acked(0), now), Next::Send);
    (sending, now)
}

const TRIP: Duration = Duration::from_millis(10);

#[test]
fn after_a_loss_a_window_goes_out_in_portions_a_round_trip_apart() {
    let (mut sending, now) = measured(&[7; 200]);
    assert_eq!(sending.on(Event::Acked(2), now + TRIP), Next::Send);
    assert_eq!(sending.numbers(), [3, 4]);
    assert_eq!(sending.transfer.deadline(), now + 2 * TRIP);
    let (next, late) = sending.wait();
    assert_eq!((next, sending.numbers()), (Next::Send, vec![5, 6]));
    assert_eq!(sending.on(Event::Acked(6), late + TRIP), Next::Send);
    assert_eq!(sending.numbers(), [7, 8, 9]);
}

#[test]
fn who_misses_a_block_is_spared_the_rest_of_the_window() {
    let (mut sending, now) = measured(&[7; 200]);
    assert_eq!(sending.on(Event::Acked(1), now + TRIP), Next::Send);
    assert_eq!(sending.numbers(), [2, 3]);
    assert_eq!(sending.on(Event::Acked(2), now + TRIP * 3 / 2), Next::Send);
    assert_eq!(sending.numbers(), [3]);
}

#[test]
fn who_misses_the_first_block_of_a_window_is_answered_once() {
    let (mut sending, now) = measured(&[7; 200]);
    assert_eq!(sending.on(Event::Acked(4), now + TRIP), Next::Send);
    let (echo, answer) = (now + TRIP * 5 / 4, now + 2 * TRIP);
    assert_eq!(sending.on(Event::Acked(4), echo), Next::Wait);
    assert_eq!(sending.on(Event::Acked(4), answer), Next::Send);
    assert_eq!(sending.numbers(), [5, 6]);
    assert_eq!(sending.on(Event::Acked(4), answer + TRIP), Next::Wait);
}

#[test]
fn after_a_round_trip_was_measured_silence_is_noticed_sooner_and_borne_as_long() {
    let (mut sending, begun) = measured(&[7; 200]);
    let (mut waits, mut now) = (vec![], begun);
    let outcome = loop {
        let (next, late) = sending.wait();
        waits.push((late - now).as_millis());
        now = late;
        if let Next::End(outcome) = next {
            break outcome;
        }
    };
    assert_eq!((waits[0], now - begun, outcome), (200, SILENCE, Outcome::TimedOut));
}

#[test]
fn a_silent_client_is_given_six_tries_in_doubling_time() {
    let start = Instant::now();
    let mut sending = begin(terms(8, 1, false), &[7; 20], start);
    let (mut now, mut waits) = (start, vec![]);
    let outcome = loop {
        waits.push((sending.transfer.deadline() - now).as_secs());
        now = sending.transfer.deadline();
        match sending.wait().0 {
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
    assert_eq!(sending.transfer.deadline() - late, Duration::from_secs(1));
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
    sending.transfer.acked = 65_529;
    assert_eq!(sending.on(Event::Acked(65_533), now), Next::Send);
    assert_eq!(sending.numbers(), [65_534, 65_535, 0, 1]);
    assert_eq!(sending.on(Event::Acked(1), now), Next::Send);
    assert_eq!(sending.numbers(), [2, 3, 4, 5]);
    assert_eq!(sending.transfer.acked, 65_537);
}
