//! Granted addresses, which are not leased, as the address service reports them.
//!
//! While that is away, the last known ones count. Before its first report none is known: an address that was granted in the last ten minutes is
//! withheld by its lease record, and pools and static ranges are not to overlap anyway.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, PoisonError, RwLock};

use ipnet::{IpNet, Ipv4Net};
use runtime::Channel;
use runtime::feed::{self, FeedEvent};
use tinwright::address::v1::{self as addr, Grant};
use tokio_util::sync::CancellationToken;

/// The granted IPv4 blocks, by grant. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct GrantedAddresses(Arc<RwLock<HashMap<String, Ipv4Net>>>);

impl GrantedAddresses {
    /// True if `address` is in a granted block.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let blocks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        blocks.values().any(|block| block.contains(&address))
    }

    /// Follows the grants at the service behind `address`, until `stop`.
    pub async fn follow(&self, address: Channel, stop: CancellationToken) {
        let request = addr::WatchGrantsRequest { id: String::new(), ..Default::default() };
        feed::follow_at("grants", &address, request, |event| self.take(event), stop).await;
    }

    /// Takes an event of the grants.
    pub(crate) fn take(&self, event: FeedEvent<Grant>) {
        let mut blocks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            FeedEvent::Snapshot(all) => *blocks = all.iter().filter_map(block).collect(),
            FeedEvent::Put(grant) => blocks.extend(block(&grant)),
            FeedEvent::Deleted(id) => drop(blocks.remove(&id)),
            FeedEvent::Disconnected => {}
        }
    }
}

/// Returns the id and the block of a grant, if that is IPv4.
fn block(grant: &Grant) -> Option<(String, Ipv4Net)> {
    match grant.block.parse() {
        Ok(IpNet::V4(block)) => Some((grant.id.clone(), block)),
        Ok(IpNet::V6(_)) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_granted_blocks_count_until_the_grant_is_gone() {
        let granted = GrantedAddresses::default();
        let grant = |id: &str, block: &str| Grant {
            id: id.into(),
            block: block.into(),
            ..Grant::default()
        };
        granted.take(FeedEvent::Snapshot(vec![grant("a", "192.0.2.8/29"), grant("b", "::/64")]));
        granted.take(FeedEvent::Put(grant("c", "192.0.2.7/32")));
        let has = |last: u8| granted.contains([192, 0, 2, last].into());
        assert_eq!([6, 7, 8, 15, 16].map(has), [false, true, true, true, false]);
        granted.take(FeedEvent::Deleted("a".into()));
        granted.take(FeedEvent::Disconnected);
        assert_eq!([7, 8].map(has), [true, false]);
    }
}
