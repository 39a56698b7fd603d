//! The machine that an address belongs to.
//!
//! Of several machines that claim an address, the one that claimed it first keeps it until its records give it up; then it
//! passes to the next. The feeds do not report who was first before this process started: of the machines that claim an
//! address when the feeds first report everything, the one with the oldest hardware record has it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use foldhash::quality::RandomState;
use tinwright::HardwareId;

/// The holder of each address, and the machines that claim it as well.
#[derive(Debug, Default)]
pub struct AddressClaims {
    holders: HashMap<IpAddr, HardwareId, RandomState>,
    /// In the order of their claims; never empty.
    waiting: HashMap<IpAddr, Vec<HardwareId>>,
}

impl AddressClaims {
    /// Returns the machine that has `address`.
    pub fn holder(&self, address: IpAddr) -> Option<HardwareId> {
        self.holders.get(&address).copied()
    }

    /// Returns how many addresses several machines claim.
    pub fn contested(&self) -> usize {
        self.waiting.len()
    }

    /// Records that `id` claims `address`, which is in canonical form. Repeating it changes nothing.
    pub fn claim(&mut self, address: IpAddr, id: HardwareId) {
        match self.holders.entry(address) {
            Entry::Vacant(free) => {
                free.insert(id);
            }
            Entry::Occupied(holder) if *holder.get() == id => {}
            Entry::Occupied(_) => {
                let waiting = self.waiting.entry(address).or_default();
                if !waiting.contains(&id) {
                    waiting.push(id);
                }
            }
        }
    }

    /// Gives `address` to the claimant for which `age` returns least. Returns the holder before and the holder now, if they
    /// differ.
    pub fn reorder<A: Ord>(
        &mut self,
        address: IpAddr,
        age: impl Fn(HardwareId) -> A,
    ) -> Option<[HardwareId; 2]> {
        let (waiting, holder) = (self.waiting.get_mut(&address)?, self.holders.get_mut(&address)?);
        let before = *holder;
        waiting.push(before);
        waiting.sort_by_cached_key(|id| age(*id));
        *holder = waiting.remove(0);
        (before != *holder).then_some([before, *holder])
    }

    /// Records that `id` no longer claims `address`. Returns the machine that it passes to.
    pub fn release(&mut self, address: IpAddr, id: HardwareId) -> Option<HardwareId> {
        let mut next = None;
        if let Some(waiting) = self.waiting.get_mut(&address) {
            if self.holders.get(&address) == Some(&id) {
                next = Some(waiting.remove(0));
            } else {
                waiting.retain(|other| *other != id);
            }
            if waiting.is_empty() {
                self.waiting.remove(&address);
            }
        }
        match next {
            Some(next) => drop(self.holders.insert(address, next)),
            None if self.holders.get(&address) == Some(&id) => drop(self.holders.remove(&address)),
            None => {}
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn an_address_passes_on_in_the_order_of_the_claims() {
        let mut claims = AddressClaims::default();
        let [a, b, c] = [HardwareId::new(), HardwareId::new(), HardwareId::new()];
        for id in [b, a, c, a] {
            claims.claim(ADDRESS, id);
        }
        assert_eq!((claims.holder(ADDRESS), claims.contested()), (Some(b), 1));
        assert_eq!(claims.release(ADDRESS, b), Some(a));
        assert_eq!(claims.release(ADDRESS, c), None);
        assert_eq!((claims.holder(ADDRESS), claims.contested()), (Some(a), 0));
        assert_eq!(claims.release(ADDRESS, c), None);
        assert_eq!(claims.release(ADDRESS, a), None);
        assert_eq!(claims.holder(ADDRESS), None);
    }

    #[test]
    fn claims_of_one_time_are_put_in_the_order_of_age() {
        let mut claims = AddressClaims::default();
        let mut ids = [HardwareId::new(), HardwareId::new(), HardwareId::new()];
        ids.sort();
        let [old, middle, young] = ids;
        for id in [middle, young, old] {
            claims.claim(ADDRESS, id);
        }
        assert_eq!(claims.reorder(ADDRESS, |id| id), Some([middle, old]));
        assert_eq!(claims.reorder(ADDRESS, |id| id), None);
        assert_eq!(claims.release(ADDRESS, old), Some(middle));
        assert_eq!(claims.release(ADDRESS, middle), Some(young));
    }
}
