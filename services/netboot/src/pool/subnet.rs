//! A network whose addresses are lent, as an operator wrote it.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::Ipv4Net;

/// The most addresses that all ranges of a subnet may hold: choosing one looks at all of them in the worst case.
pub const LARGEST: u32 = 65_536;

/// Addresses from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

/// The text is no range.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of addresses, such as 198.51.100.100-198.51.100.199")]
pub struct NoRange(String);

impl FromStr for Range {
    type Err = NoRange;

    /// Reads `FIRST-LAST`, or one address alone.
    fn from_str(text: &str) -> Result<Self, NoRange> {
        let no = || NoRange(text.chars().take(80).collect());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let read = |text: &str| text.trim().parse().map_err(|_| no());
        let (first, last) = (read(first)?, read(last)?);
        if first <= last { Ok(Self { first, last }) } else { Err(no()) }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Range {
    fn len(&self) -> u32 {
        (u32::from(self.last) - u32::from(self.first)).saturating_add(1)
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// What is done with machines without a record (netboot specification, section 3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// Nothing; they are remembered.
    #[default]
    Ignore,
    /// The same, and the log tells of them.
    Report,
    /// An address of the pool, and the environment in which a worker can tell what they are.
    Enrol,
    /// That environment without an address: another server gives it.
    Generic,
}

/// A network whose addresses are lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Which.
    pub network: Ipv4Net,
    /// Its default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// The addresses that are lent.
    pub ranges: Vec<Range>,
    /// Of these, the ones that are not.
    pub excluded: Vec<Range>,
    /// For how long to an ordinary client, and at most to a booting one.
    pub lease: Duration,
    /// Option 6 for records without.
    pub name_servers: Vec<Ipv4Addr>,
    /// Option 42 for records without.
    pub time_servers: Vec<Ipv4Addr>,
    /// Option 15 for records without.
    pub domain: String,
    /// Machines without a record.
    pub unknown: Unknown,
}

/// Why a subnet cannot be served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A range that is not inside.
    #[error("ranges: {0} is not in the network")]
    Outside(Range),
    /// Two ranges share addresses.
    #[error("ranges: {0} and {1} overlap")]
    Overlap(Range, Range),
    /// Too many addresses.
    #[error("ranges hold {0} addresses, at most {LARGEST} are allowed")]
    TooLarge(u32),
    /// A gateway that clients cannot reach.
    #[error("gateway: {0} is not in the network")]
    Gateway(Ipv4Addr),
    /// A lease that is not worth renewing, or lasts too long to be taken back.
    #[error("lease_seconds is {0}, 60 to 604800 are allowed")]
    Lease(u64),
}

impl Subnet {
    /// `ranges` of `network`, everything else as it usually is.
    pub fn new(network: Ipv4Net, ranges: Vec<Range>) -> Self {
        Self {
            network,
            gateway: None,
            ranges,
            excluded: Vec::new(),
            lease: Duration::from_secs(3600),
            name_servers: Vec::new(),
            time_servers: Vec::new(),
            domain: String::new(),
            unknown: Unknown::default(),
        }
    }

    /// Passes if it can be served.
    pub fn check(&self) -> Result<(), Unusable> {
        let inside = |address: Ipv4Addr| self.network.contains(&address);
        for range in &self.ranges {
            if !(inside(range.first) && inside(range.last)) {
                return Err(Unusable::Outside(*range));
            }
        }
        let mut sorted = self.ranges.clone();
        sorted.sort_by_key(|range| range.first);
        for (one, next) in sorted.iter().zip(sorted.iter().skip(1)) {
            if next.first <= one.last {
                return Err(Unusable::Overlap(*one, *next));
            }
        }
        if self.len() > LARGEST {
            return Err(Unusable::TooLarge(self.len()));
        }
        if let Some(gateway) = self.gateway.filter(|gateway| !inside(*gateway)) {
            return Err(Unusable::Gateway(gateway));
        }
        match self.lease.as_secs() {
            60..=604_800 => Ok(()),
            seconds => Err(Unusable::Lease(seconds)),
        }
    }

    /// How many addresses its ranges hold, excluded ones included.
    pub fn len(&self) -> u32 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len()))
    }

    /// Whether nothing can be lent.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `address` is one that is lent: never the network's own, its broadcast address or the gateway.
    pub fn lends(&self, address: Ipv4Addr) -> bool {
        let network = self.network;
        let edges = [network.network(), network.broadcast()];
        let edge = network.prefix_len() < 31 && edges.contains(&address);
        let within = |ranges: &[Range]| ranges.iter().any(|range| range.contains(address));
        within(&self.ranges) && !within(&self.excluded) && !edge && self.gateway != Some(address)
    }

    /// Every address it lends, beginning with the one at `start` and coming back to it.
    pub fn addresses(&self, start: u64) -> impl Iterator<Item = Ipv4Addr> {
        let len = u64::from(self.len());
        let from = start.checked_rem(len).unwrap_or(0);
        let order = (from..len).chain(0..from);
        order
            .filter_map(|n| self.nth(u32::try_from(n).ok()?))
            .filter(|address| self.lends(*address))
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
    fn a_subnet_lends_its_ranges_without_the_edges_the_gateway_and_what_is_excluded() {
        let subnet = Subnet {
            gateway: Some([192, 0, 2, 1].into()),
            excluded: vec!["192.0.2.3".parse().unwrap()],
            ..subnet(&["192.0.2.0-192.0.2.4", "192.0.2.254-192.0.2.255"])
        };
        let lent: Vec<_> = subnet.addresses(2).map(|address| address.octets()[3]).collect();
        assert_eq!(lent, [2, 4, 254], "and begins where it is told to");
        let lent: Vec<_> = subnet.addresses(12).map(|address| address.octets()[3]).collect();
        assert_eq!(lent, [254, 2, 4]);
        assert_eq!(subnet.check(), Ok(()));
    }

    #[test]
    fn what_cannot_be_served_says_why() {
        let why = |subnet: Subnet| subnet.check().unwrap_err().to_string();
        assert_eq!(
            why(subnet(&["192.0.2.200-192.0.3.10"])),
            "ranges: 192.0.2.200-192.0.3.10 is not in the network"
        );
        assert_eq!(
            why(subnet(&["192.0.2.10-192.0.2.20", "192.0.2.20-192.0.2.30"])),
            "ranges: 192.0.2.10-192.0.2.20 and 192.0.2.20-192.0.2.30 overlap"
        );
        let short = Subnet { lease: Duration::from_secs(5), ..subnet(&["192.0.2.9"]) };
        assert_eq!(why(short), "lease_seconds is 5, 60 to 604800 are allowed");
        let gateway = Subnet { gateway: Some([198, 51, 100, 1].into()), ..subnet(&["192.0.2.9"]) };
        assert_eq!(why(gateway), "gateway: 198.51.100.1 is not in the network");
        assert!("192.0.2.9-192.0.2.1".parse::<Range>().is_err());
    }
}
