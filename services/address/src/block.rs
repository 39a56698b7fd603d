//! Blocks and spans of addresses, as values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use tinwright::check;

/// The family of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of `address`.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the number of bits of an address.
    pub fn width(self) -> u32 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Returns the digit of the family in keys.
    pub fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    fn address(self, bits: u128) -> IpAddr {
        match self {
            // The bits of an IPv4 address are the low 32.
            Self::V4 => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into(),
            Self::V6 => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

/// Returns the number of an address in its family.
pub fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// An aligned block of at most half of all addresses of a family. Formatted as `address/bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    family: Family,
    base: u128,
    length: u32,
}

impl Block {
    /// The block of this prefix length around the address number `bits`.
    pub fn around(family: Family, bits: u128, length: u32) -> Self {
        let length = length.clamp(1, family.width());
        let host = family.width() - length;
        Self { family, base: (bits >> host) << host, length }
    }

    /// The block of one address.
    pub fn single(address: IpAddr) -> Self {
        let family = Family::of(address);
        Self::around(family, bits(address), family.width())
    }

    /// Returns its family.
    pub fn family(self) -> Family {
        self.family
    }

    /// Returns its prefix length.
    pub fn length(self) -> u32 {
        self.length
    }

    /// True if it is one address.
    pub fn is_single(self) -> bool {
        self.length == self.family.width()
    }

    /// Returns its addresses.
    pub fn span(self) -> Span {
        let ones =
            1u128.checked_shl(self.family.width() - self.length).map_or(u128::MAX, |it| it - 1);
        Span { family: self.family, first: self.base, last: self.base | ones }
    }

    /// Returns the number of its first address.
    pub fn base(self) -> u128 {
        self.base
    }

    /// Returns its first address.
    pub fn address(self) -> IpAddr {
        self.family.address(self.base)
    }

    /// Returns the key of its claim: the base in hexadecimal digits, so that keys are in the order of addresses.
    pub fn key(self) -> String {
        format!("{}-{}", self.base_key(), self.length)
    }

    /// Returns the part of the key without the length.
    pub fn base_key(self) -> String {
        let digits = usize::try_from(self.family.width() / 4).unwrap_or_default();
        format!("{}{:0digits$x}", self.family.digit(), self.base)
    }

    /// Returns the blocks that have all of its addresses and more, the smallest first.
    pub fn supernets(self) -> impl Iterator<Item = Self> {
        (1..self.length).rev().map(move |length| Self::around(self.family, self.base, length))
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.length)
    }
}

/// The text is not a block.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address nor an aligned block of addresses such as 192.0.2.8/29")]
pub struct InvalidBlock(String);

impl FromStr for Block {
    type Err = InvalidBlock;

    /// Parses an address, or a block without host bits.
    fn from_str(text: &str) -> Result<Self, InvalidBlock> {
        let invalid = || InvalidBlock(text.chars().take(80).collect());
        if let Ok(address) = check::address(text) {
            return Ok(Self::single(address));
        }
        let network: IpNet = text.parse().map_err(|_| invalid())?;
        let is_aligned = network.addr() == network.network() && network.prefix_len() > 0;
        let first = check::address(&network.addr().to_string()).map_err(|_| invalid())?;
        if !is_aligned || Family::of(first) != Family::of(network.addr()) {
            return Err(invalid());
        }
        Ok(Self::around(Family::of(first), bits(first), network.prefix_len().into()))
    }
}

/// The addresses from `first` to `last`, both included, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    family: Family,
    first: u128,
    last: u128,
}

impl Span {
    /// The addresses from `first` to `last`; none if they are of two families or in the wrong order.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let (family, from, to) = (Family::of(first), bits(first), bits(last));
        (family == Family::of(last) && from <= to).then_some(Self { family, first: from, last: to })
    }

    /// Returns its family.
    pub fn family(self) -> Family {
        self.family
    }

    /// Returns the numbers of its first and last address.
    pub fn bounds(self) -> (u128, u128) {
        (self.first, self.last)
    }

    /// True if an address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// True if all addresses of `other` are in it.
    pub fn contains(self, other: Self) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }

    /// True if it is made of whole blocks of this prefix length.
    pub fn is_of_blocks(self, length: u32) -> bool {
        let first = Block::around(self.family, self.first, length);
        let last = Block::around(self.family, self.last, length);
        first.base == self.first && last.span().last == self.last
    }
}

impl FromStr for Span {
    type Err = String;

    /// Parses `FIRST-LAST`, or one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid =
            || format!("{text:?} is not a range of addresses such as 192.0.2.8-192.0.2.15");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| invalid());
        Self::new(parse(first)?, parse(last)?).ok_or_else(invalid)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.family.address(self.first), self.family.address(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_from_an_address_or_an_aligned_prefix() {
        for (text, stored) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("192.0.2.8/29", "192.0.2.8/29"),
            ("2001:db8:0:1::/64", "2001:db8:0:1::/64"),
            ("2001:db8::7", "2001:db8::7/128"),
        ] {
            assert_eq!(text.parse::<Block>().map(|it| it.to_string()), Ok(stored.to_owned()));
        }
        for wrong in ["", "192.0.2.7/29", "0.0.0.0/0", "::/0", "224.0.0.0/4", "192.0.2.0/33", "x"] {
            assert!(wrong.parse::<Block>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_in_the_order_of_addresses() {
        let key = |text: &str| text.parse::<Block>().unwrap().key();
        assert_eq!(key("192.0.2.1"), "4c0000201-32");
        assert_eq!(key("2001:db8::/56"), "620010db8000000000000000000000000-56");
        assert!(key("192.0.2.255") < key("192.0.3.0/24"));
    }

    #[test]
    fn a_span_knows_its_blocks() {
        let span = |text: &str| text.parse::<Span>().unwrap();
        assert!(span("192.0.2.8-192.0.2.15").is_of_blocks(29));
        assert!(!span("192.0.2.8-192.0.2.16").is_of_blocks(29));
        assert!(span("192.0.2.8-192.0.2.16").is_of_blocks(32));
        assert!(span("::1:0-::1:ff").overlaps(span("::1:ff")));
        assert!("192.0.2.9-192.0.2.8".parse::<Span>().is_err());
        assert!("192.0.2.9-::1".parse::<Span>().is_err());
    }
}
