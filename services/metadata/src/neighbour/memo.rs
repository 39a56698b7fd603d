//! What the kernel said of addresses, for as long as it holds. Values in, values out.
//!
//! ```text
//! hear all news ─┬─▶ get: what is remembered is what the kernel would say
//!                └─▶ ask: a question begins ─▶ put: its answer, if nothing was heard meanwhile
//! ```
//!
//! Of neighbours the kernel tells once a change is made, so a question that begins after the news has the new answer. Of links
//! and routes it tells shortly before: it says that a route goes, then takes it away. So nothing that is asked in the
//! second after such news is kept. Of a few things it tells nothing (an ICMP redirect, a setting): nothing is kept longer
//! than a second either.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::guard::Place;
use crate::netlink::news::Change;

/// How many addresses are remembered: those of a site of ten thousand machines, in about 1 MB.
const ADDRESSES: usize = 16_384;
/// How long a place is remembered, and how long a change of links and routes may take.
const LASTS: Duration = Duration::from_secs(1);

/// Where addresses are.
#[derive(Debug, Default)]
pub(super) struct Memo {
    places: HashMap<IpAddr, (Place, Instant)>,
    /// How often there were news.
    heard: u64,
    /// When links and routes are sure to be as the kernel last told.
    settled: Option<Instant>,
}

/// A question's beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    at: Instant,
    heard: u64,
}

impl Memo {
    /// Forgets what `change` may have made wrong.
    pub(super) fn hear(&mut self, change: Change, now: Instant) {
        self.heard += 1;
        match change {
            Change::Neighbour(address) => drop(self.places.remove(&address)),
            Change::Other => {
                self.places.clear();
                self.settled = Some(now + LASTS);
            }
        }
    }

    /// Where `address` is, if that is known.
    pub(super) fn get(&self, address: IpAddr, now: Instant) -> Option<Place> {
        let (place, since) = self.places.get(&address)?;
        (now.saturating_duration_since(*since) < LASTS).then_some(*place)
    }

    /// A question to the kernel begins.
    pub(super) fn ask(&self, now: Instant) -> Asked {
        Asked { at: now, heard: self.heard }
    }

    /// Keeps what the kernel said to the question that began with `asked`, if that is sure to hold until there are news.
    pub(super) fn put(&mut self, asked: Asked, address: IpAddr, place: Place) {
        let certain = matches!(place, Place::Here | Place::Beyond | Place::Holds(_));
        let settled = self.settled.is_none_or(|settled| settled <= asked.at);
        if !certain || !settled || self.heard != asked.heard {
            return;
        }
        if self.places.len() >= ADDRESSES {
            self.places.clear();
        }
        self.places.insert(address, (place, asked.at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tinwright::Mac;

    const NODE1: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 50));
    const NODE2: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 60));
    const HOLDS: Place = Place::Holds(Mac([0x52, 0x54, 0, 0, 0, 1]));

    /// A memo of both nodes, and when that was asked.
    fn both() -> (Memo, Instant) {
        let (mut memo, now) = (Memo::default(), Instant::now());
        memo.put(memo.ask(now), NODE1, HOLDS);
        memo.put(memo.ask(now), NODE2, Place::Beyond);
        (memo, now)
    }

    fn known(memo: &Memo, now: Instant) -> [Option<Place>; 2] {
        [NODE1, NODE2].map(|address| memo.get(address, now))
    }

    #[test]
    fn what_was_said_is_remembered_for_a_second() {
        let (memo, now) = both();
        let last = now + LASTS - Duration::from_nanos(1);
        assert_eq!(known(&memo, last), [Some(HOLDS), Some(Place::Beyond)]);
        assert_eq!(known(&memo, now + LASTS), [None; 2]);
    }

    #[test]
    fn news_of_a_neighbour_are_about_its_address_alone() {
        let (mut memo, now) = both();
        memo.hear(Change::Neighbour(NODE1), now);
        assert_eq!(known(&memo, now), [None, Some(Place::Beyond)]);
        memo.put(memo.ask(now), NODE1, HOLDS);
        assert_eq!(known(&memo, now), [Some(HOLDS), Some(Place::Beyond)]);
    }

    #[test]
    fn an_answer_that_news_overtook_is_not_kept() {
        let (mut memo, now) = both();
        let asked = memo.ask(now);
        memo.hear(Change::Neighbour(NODE1), now);
        memo.put(asked, NODE1, HOLDS);
        assert_eq!(memo.get(NODE1, now), None);
    }

    #[test]
    fn nothing_is_kept_while_a_change_of_links_or_routes_may_be_under_way() {
        let (mut memo, now) = both();
        memo.hear(Change::Other, now);
        assert_eq!(known(&memo, now), [None; 2]);
        for (at, kept) in [(now, None), (now + LASTS, Some(HOLDS))] {
            memo.put(memo.ask(at), NODE1, HOLDS);
            assert_eq!(memo.get(NODE1, at), kept);
        }
    }

    #[test]
    fn who_was_not_found_is_looked_for_again() {
        let (mut memo, now) = both();
        memo.hear(Change::Neighbour(NODE1), now);
        memo.put(memo.ask(now), NODE1, Place::Nobody);
        assert_eq!(memo.get(NODE1, now), None);
    }

    #[test]
    fn many_addresses_take_a_bounded_memory() {
        let (mut memo, now) = both();
        for host in 0..u32::try_from(ADDRESSES).unwrap() {
            memo.put(memo.ask(now), Ipv4Addr::from(host).into(), Place::Beyond);
        }
        assert!(memo.places.len() < 4);
    }
}
