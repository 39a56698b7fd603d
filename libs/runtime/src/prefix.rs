//! Networks as address and prefix length, and addresses in the one form they are compared in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: its base address and how many leading bits its members share with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    base: IpAddr,
    bits: u8,
}

/// The text is no network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: address/bits is wanted, such as 192.0.2.0/24")]
pub struct NoPrefix(String);

/// `address` as it is compared: an IPv4 address that arrived on an IPv6 socket is an IPv4 address (RFC 4291 §2.5.5.2).
pub fn normal(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

impl Prefix {
    /// The network of `bits` that `address` is in. More bits than the family has mean all of them.
    pub fn of(address: IpAddr, bits: u8) -> Self {
        match normal(address) {
            IpAddr::V4(address) => {
                let bits = bits.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Self { base: Ipv4Addr::from_bits(address.to_bits() & mask).into(), bits }
            }
            IpAddr::V6(address) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self { base: Ipv6Addr::from_bits(address.to_bits() & mask).into(), bits }
            }
        }
    }

    /// The mask that cuts `bits` leading bits off an address.
    pub fn netmask(v4: bool, bits: u8) -> IpAddr {
        let ones: IpAddr =
            if v4 { Ipv4Addr::BROADCAST.into() } else { Ipv6Addr::from_bits(u128::MAX).into() };
        Self::of(ones, bits).base
    }

    /// Its first address.
    pub fn base(&self) -> IpAddr {
        self.base
    }

    /// How many leading bits its members share.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether `address` is a member.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = normal(address);
        address.is_ipv4() == self.base.is_ipv4() && Self::of(address, self.bits) == *self
    }

    /// Whether it holds every address of its family.
    pub fn is_everyone(&self) -> bool {
        self.bits == 0
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let no = || NoPrefix(text.chars().take(64).collect());
        let (address, bits) = text.split_once('/').ok_or_else(no)?;
        let (address, bits): (IpAddr, u8) =
            (address.parse().map_err(|_| no())?, bits.parse().map_err(|_| no())?);
        // A mapped network is the IPv4 network in its last 32 bits.
        let mapped = address.is_ipv6() && normal(address).is_ipv4();
        let bits = if mapped { bits.checked_sub(96).ok_or_else(no)? } else { bits };
        let widest = if normal(address).is_ipv4() { 32 } else { 128 };
        if bits > widest { Err(no()) } else { Ok(Self::of(address, bits)) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn host_bits_are_cut() {
        assert_eq!(prefix("198.51.100.50/24").to_string(), "198.51.100.0/24");
        assert_eq!(prefix("2001:db8::7/64").to_string(), "2001:db8::/64");
    }

    #[test]
    fn a_mapped_address_is_a_member_of_its_ipv4_network() {
        assert!(prefix("198.51.100.0/24").contains("::ffff:198.51.100.7".parse().unwrap()));
        assert!(!prefix("198.51.100.0/24").contains("198.51.101.7".parse().unwrap()));
    }

    #[test]
    fn a_mapped_network_is_an_ipv4_network() {
        assert_eq!(prefix("::ffff:198.51.100.7/120").to_string(), "198.51.100.0/24");
        assert!(prefix("::ffff:0.0.0.0/96").is_everyone());
        assert!("::ffff:198.51.100.7/64".parse::<Prefix>().is_err());
    }

    #[test]
    fn an_empty_prefix_holds_its_own_family_only() {
        assert!(prefix("0.0.0.0/0").contains("192.0.2.1".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_refused_by_name() {
        for text in ["", "192.0.2.1", "192.0.2.0/33", "192.0.2.0/-1", "a/8", "2001:db8::/129"] {
            assert!(
                text.parse::<Prefix>()
                    .unwrap_err()
                    .to_string()
                    .starts_with(&format!("{text:?} is"))
            );
        }
    }

    proptest! {
        #[test]
        fn every_address_is_in_its_own_network(address: IpAddr, bits: u8) {
            let network = Prefix::of(address, bits);
            prop_assert!(network.contains(address));
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }
    }
}
