//! A network with pools, as configured.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::ensure;
use ipnet::Ipv4Net;

/// The maximum number of addresses in all ranges of a subnet: in the worst case all are looked at to select one.
pub const MAX_ADDRESSES: u32 = 65_536;

/// The addresses from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

/// The text is not a range.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of addresses such as 198.51.100.100-198.51.100.199")]
pub struct InvalidRange(String);

impl FromStr for Range {
    type Err = InvalidRange;

    /// Parses `FIRST-LAST`, or one address.
    fn from_str(text: &str) -> Result<Self, InvalidRange> {
        let invalid = || InvalidRange(text.chars().take(80).collect());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |text: &str| text.trim().parse().map_err(|_| invalid());
        let (first, last) = (parse(first)?, parse(last)?);
        if first <= last { Ok(Self { first, last }) } else { Err(invalid()) }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Range {
    /// Returns the first and the last address.
    pub fn bounds(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.first, self.last)
    }

    fn len(&self) -> u32 {
        (u32::from(self.last) - u32::from(self.first)).saturating_add(1)
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// The policy for machines without a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// They get nothing, and are remembered.
    #[default]
    Ignore,
    /// They also are logged.
    Report,
    /// They get an address of the pool, and boot the in-memory environment, whose worker reports their inventory.
    Enrol,
    /// They boot that environment; another server assigns the address.
    Generic,
}

/// A network with pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subnet {
    /// The network.
    pub network: Ipv4Net,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// The addresses that are leased.
    pub ranges: Vec<Range>,
    /// Addresses in `ranges` that are not leased.
    pub excluded: Vec<Range>,
    /// The duration of a lease of an ordinary client, and the longest of a booting one.
    pub lease: Duration,
    /// Option 6 for records without.
    pub name_servers: Vec<Ipv4Addr>,
    /// Option 42 for records without.
    pub time_servers: Vec<Ipv4Addr>,
    /// Option 15 for records without.
    pub domain: String,
    /// The policy for machines without a record.
    pub unknown: Unknown,
}

impl Subnet {
    /// Returns a subnet with `ranges` of `network`, and default values.
    pub fn new(network: Ipv4Net, ranges: Vec<Range>) -> Self {
        Self { network, ranges, lease: Duration::from_secs(3600), ..Self::default() }
    }

    /// Checks that the subnet can be served.
    pub fn check(&self) -> anyhow::Result<()> {
        let inside = |address: Ipv4Addr| self.network.contains(&address);
        for range in &self.ranges {
            let is_inside = inside(range.first) && inside(range.last);
            ensure!(is_inside, "ranges: {range} is not in the network");
        }
        let mut sorted = self.ranges.clone();
        sorted.sort_by_key(|range| range.first);
        for (one, next) in sorted.iter().zip(sorted.iter().skip(1)) {
            ensure!(one.last < next.first, "ranges: {one} and {next} overlap");
        }
        let (len, max, seconds) = (self.len(), MAX_ADDRESSES, self.lease.as_secs());
        ensure!(len <= max, "ranges hold {len} addresses, at most {max} are allowed");
        if let Some(gateway) = self.gateway {
            ensure!(inside(gateway), "gateway: {gateway} is not in the network");
        }
        let is_valid = (60..=604_800).contains(&seconds);
        ensure!(is_valid, "lease_seconds is {seconds}, 60 to 604800 are allowed");
        Ok(())
    }

    /// Returns the number of addresses in the ranges, with excluded ones.
    pub fn len(&self) -> u32 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len()))
    }

    /// True if there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if `address` is leased to clients. The network address, the broadcast address and the gateway never are.
    pub fn pool_contains(&self, address: Ipv4Addr) -> bool {
        let network = self.network;
        let edges = [network.network(), network.broadcast()];
        let edge = network.prefix_len() < 31 && edges.contains(&address);
        let within = |ranges: &[Range]| ranges.iter().any(|range| range.contains(address));
        within(&self.ranges) && !within(&self.excluded) && !edge && self.gateway != Some(address)
    }

    /// Returns all addresses that are leased to clients, beginning at position `start` and wrapping around.
    pub fn addresses(&self, start: u64) -> impl Iterator<Item = Ipv4Addr> {
        let len = u64::from(self.len());
        let from = start.checked_rem(len).unwrap_or(0);
        let order = (from..len).chain(0..from);
        order
            .filter_map(|n| self.nth(u32::try_from(n).ok()?))
            .filter(|address| self.pool_contains(*address))
    }

    fn nth(&self, mut n: u32) -> Option<Ipv4Addr> {
        for range in &self.ranges {
            if n < range.len() {
                return u32::from(range.first).checked_add(n).map(Ipv4Addr::from);
            }
            n -= range.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn subnet(ranges: &[&str]) -> Subnet {
        let network = Ipv4Net::new_assert([192, 0, 2, 0].into(), 24);
        Subnet::new(network, ranges.iter().map(|range| range.parse().unwrap()).collect())
    }

    #[test]
    fn a_pool_has_the_ranges_without_edges_gateway_and_excluded_addresses() {
        let subnet = Subnet {
            gateway: Some([192, 0, 2, 1].into()),
            excluded: vec!["192.0.2.3".parse().unwrap()],
            ..subnet(&["192.0.2.0-192.0.2.4", "192.0.2.254-192.0.2.255"])
        };
        let leased: Vec<_> = subnet.addresses(2).map(|address| address.octets()[3]).collect();
        assert_eq!(leased, [2, 4, 254]);
        let leased: Vec<_> = subnet.addresses(12).map(|address| address.octets()[3]).collect();
        assert_eq!(leased, [254, 2, 4]);
        subnet.check().unwrap();
    }

    #[test]
    fn an_invalid_subnet_is_refused_with_its_reason() {
        let error = |subnet: Subnet| subnet.check().unwrap_err().to_string();
        assert_eq!(
            error(subnet(&["192.0.2.200-192.0.3.10"])),
            "ranges: 192.0.2.200-192.0.3.10 is not in the network"
        );
        assert_eq!(
            error(subnet(&["192.0.2.10-192.0.2.20", "192.0.2.20-192.0.2.30"])),
            "ranges: 192.0.2.10-192.0.2.20 and 192.0.2.20-192.0.2.30 overlap"
        );
        let short = Subnet { lease: Duration::from_secs(5), ..subnet(&["192.0.2.9"]) };
        assert_eq!(error(short), "lease_seconds is 5, 60 to 604800 are allowed");
        let gateway = Subnet { gateway: Some([198, 51, 100, 1].into()), ..subnet(&["192.0.2.9"]) };
        assert_eq!(error(gateway), "gateway: 198.51.100.1 is not in the network");
        assert!("192.0.2.9-192.0.2.1".parse::<Range>().is_err());
    }
}
