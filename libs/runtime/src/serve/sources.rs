//! Counts of open connections per source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Number of connections that are counted together. Each of them has a reference, and the holder of
/// the count has one more.
type Count = Arc<()>;

/// The number of open connections, in total and from each source.
#[derive(Default)]
pub(super) struct SourceSlots {
    all: Count,
    by_source: HashMap<IpAddr, Count>,
}

/// Slot of one connection, which counts until this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _all: Count,
    _of_source: Count,
}

impl SourceSlots {
    /// Returns the number of connections.
    pub(super) fn total(&self) -> usize {
        number(&self.all)
    }

    /// Returns the number of connections from `source`.
    pub(super) fn count(&self, source: IpAddr) -> usize {
        self.by_source.get(&source).map_or(0, number)
    }

    /// Returns the number of connections from the source that has the most.
    pub(super) fn max_count(&self) -> usize {
        self.by_source.values().map(number).max().unwrap_or(0)
    }

    /// Returns a slot for one more connection from `source`.
    pub(super) fn slot(&mut self, source: IpAddr) -> Slot {
        // Sources without connections are removed once they are the larger part.
        if self.by_source.len() > 2 * self.total() + 16 {
            self.by_source.retain(|_, count| number(count) > 0);
        }
        let of_source = self.by_source.entry(source).or_default().clone();
        Slot { _all: self.all.clone(), _of_source: of_source }
    }
}

/// Returns the number of connections in `count`.
fn number(count: &Count) -> usize {
    Arc::strong_count(count) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u32) -> IpAddr {
        std::net::Ipv4Addr::from(host).into()
    }

    #[test]
    fn a_connection_counts_until_its_slot_is_dropped() {
        let mut slots = SourceSlots::default();
        let counts = |slots: &SourceSlots| [slots.total(), slots.count(address(1))];
        let [first, _other] = [1, 2].map(|host| slots.slot(address(host)));
        let second = slots.slot(address(1));
        assert_eq!((counts(&slots), slots.max_count()), ([3, 2], 2));
        drop(first);
        assert_eq!((counts(&slots), slots.max_count()), ([2, 1], 1));
        drop(second);
        assert_eq!(counts(&slots), [1, 0]);
    }

    #[test]
    fn sources_without_connections_are_removed() {
        let mut slots = SourceSlots::default();
        for host in 0..1000 {
            drop(slots.slot(address(host)));
            assert!(slots.by_source.len() <= 17, "after {host}");
        }
    }
}
