//! Requests that come twice, and get the very same answer (netboot specification, section 3.1).

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;

use dhcp::Received;

use crate::Mac;

/// For how long an answer stands.
const STANDS: Duration = Duration::from_secs(1);
/// How many answers are kept, which is what fits a processor's cache. Over that all are forgotten: making one again is cheap.
const KEPT: usize = 1024;
/// Where a request counts the seconds since its client began: what differs in a repetition (RFC 2131, section 2).
const SECS: std::ops::Range<usize> = 8..10;

/// An answer, and where it goes.
pub type Sent = (Vec<u8>, SocketAddrV4);

/// What was answered of late, by interface.
#[derive(Debug, Default)]
pub struct Recent {
    answers: HashMap<Mac, Answer>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Answer {
    request: u64,
    at: Instant,
    sent: Sent,
}

impl Recent {
    /// A number for a datagram and how it came, the same for one that comes again. Another relay's copy is another.
    pub fn number(&self, datagram: &[u8], received: Received) -> u64 {
        let before = datagram.get(..SECS.start).unwrap_or(datagram);
        let after = datagram.get(SECS.end..).unwrap_or_default();
        self.hasher.hash_one((received, before, after))
    }

    /// What the request of this `number` was answered a moment ago.
    pub fn answer(&self, mac: Mac, number: u64, now: Instant) -> Option<Sent> {
        let answer = self.answers.get(&mac).filter(|answer| answer.request == number)?;
        (now.saturating_duration_since(answer.at) < STANDS).then(|| answer.sent.clone())
    }

    /// Keeps what it is answered.
    pub fn keep(&mut self, mac: Mac, number: u64, now: Instant, sent: Sent) {
        if self.answers.len() >= KEPT {
            self.answers.clear();
        }
        self.answers.insert(mac, Answer { request: number, at: now, sent });
    }

    /// Forgets what it is answered.
    pub fn forget(&mut self, mac: Mac) {
        self.answers.remove(&mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcp::ListenPort;
    use std::net::Ipv4Addr;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 68);

    fn received(source: [u8; 4]) -> Received {
        Received {
            source: SocketAddrV4::new(source.into(), 67),
            broadcast: false,
            port: ListenPort::Dhcp,
        }
    }

    #[test]
    fn only_the_seconds_may_differ_in_a_repetition() {
        let recent = Recent::default();
        let number = |change: usize, source| {
            let mut datagram = [7; 300];
            datagram[change] = 8;
            recent.number(&datagram, received(source))
        };
        let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        assert_eq!(number(8, one), number(9, one));
        assert_ne!(number(8, one), number(7, one));
        assert_ne!(number(8, one), number(299, one));
        assert_ne!(number(8, one), number(8, other));
        let boot_service = Received { port: ListenPort::BootService, ..received(one) };
        assert_ne!(recent.number(&[7; 300], received(one)), recent.number(&[7; 300], boot_service));
    }

    #[test]
    fn an_answer_stands_for_a_second() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        recent.keep(MAC, 1, now, (vec![1], TO));
        assert_eq!(recent.answer(MAC, 1, now + STANDS / 2), Some((vec![1], TO)));
        assert_eq!(recent.answer(MAC, 1, now + STANDS), None);
        assert_eq!(recent.answer(MAC, 2, now), None);
        recent.forget(MAC);
        assert_eq!(recent.answer(MAC, 1, now), None);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for number in 0..10_000_u32 {
            let [a, b, c, d] = number.to_be_bytes();
            recent.keep(Mac([2, 0, a, b, c, d]), 1, now, (Vec::new(), TO));
            assert!(recent.answers.len() <= KEPT);
        }
    }
}
