//! Decides which machine has an address that several machines claim.
//!
//! The machine that claimed it first keeps it until its records no longer claim it. Then the next claimant gets it. The feeds do
//! not report the order of the claims that are in their first snapshot. Among those, the machine with the oldest hardware
//! record gets the address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use foldhash::quality::RandomState;
use tinwright::HardwareId;

/// The machines that claim each address.
#[derive(Debug, Default)]
pub struct AddressClaims {
    /// The claimants of each address in the order of their claims, never empty. The first one has the address.
    claimants: HashMap<IpAddr, Vec<HardwareId>, RandomState>,
    /// The number of addresses that several machines claim.
    pub contested: usize,
}

impl AddressClaims {
    /// Returns the machine that has `address`.
    pub fn holder(&self, address: IpAddr) -> Option<HardwareId> {
        self.claimants.get(&address)?.first().copied()
    }

    /// Records that `id` claims `address`, which is in canonical form (never IPv4-mapped IPv6). Repeated claims change nothing.
    pub fn claim(&mut self, address: IpAddr, id: HardwareId) {
        let claimants = self.claimants.entry(address).or_insert_with(|| Vec::with_capacity(1));
        if !claimants.contains(&id) {
            claimants.push(id);
            self.contested += usize::from(claimants.len() == 2);
        }
    }

    /// Sorts the claims of `address` by the `age` of the machines. Returns the holders before and after, if they differ.
    pub fn reorder<A: Ord>(
        &mut self,
        address: IpAddr,
        age: impl Fn(HardwareId) -> A,
    ) -> Option<[HardwareId; 2]> {
        let claimants = self.claimants.get_mut(&address)?;
        let before = *claimants.first()?;
        claimants.sort_by_cached_key(|id| age(*id));
        let after = *claimants.first()?;
        (before != after).then_some([before, after])
    }

    /// Records that `id` no longer claims `address`. Returns the new holder, if there is one.
    pub fn release(&mut self, address: IpAddr, id: HardwareId) -> Option<HardwareId> {
        let Entry::Occupied(mut entry) = self.claimants.entry(address) else { return None };
        let claimants = entry.get_mut();
        let position = claimants.iter().position(|claimant| *claimant == id)?;
        self.contested -= usize::from(claimants.len() == 2);
        claimants.remove(position);
        if claimants.is_empty() {
            entry.remove();
            return None;
        }
        claimants.first().filter(|_| position == 0).copied()
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
        assert_eq!((claims.holder(ADDRESS), claims.contested), (Some(b), 1));
        assert_eq!(claims.release(ADDRESS, b), Some(a));
        assert_eq!(claims.release(ADDRESS, c), None);
        assert_eq!((claims.holder(ADDRESS), claims.contested), (Some(a), 0));
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
