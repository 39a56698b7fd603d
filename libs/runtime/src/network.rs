//! Networks as [`ipnet::IpNet`], in the one form in which they are compared: host bits are zero, and an IPv4 network
//! written in IPv6's mapped form is an IPv4 network.
//!
//! Compare addresses in their canonical form too: `network.contains(&address.to_canonical())`. An IPv4 address that
//! arrived on an IPv6 socket is an IPv4 address (RFC 4291 §2.5.5.2).

use std::net::IpAddr;

use ipnet::IpNet;

/// The text is no network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network: address/prefix length, such as 192.0.2.0/24")]
pub struct InvalidNetwork(String);

/// Returns the network of `prefix_length` that holds `address`. A longer prefix than the family has means all of it.
pub fn of(address: IpAddr, prefix_length: u8) -> IpNet {
    let address = address.to_canonical();
    let host = IpNet::from(address);
    IpNet::new(address, prefix_length.min(host.max_prefix_len())).unwrap_or(host).trunc()
}

/// Returns the source that limits on the client at `address` are for: an IPv4 address, or the network of 64 bits of an IPv6
/// address, since a client may have all addresses of it.
pub fn limited_source(address: IpAddr) -> IpAddr {
    source(address, 64)
}

/// Returns the source that limits on the client at `address` are for: an IPv4 address, or the
/// network of `ipv6_prefix_length` bits of an IPv6 address.
pub fn source(address: IpAddr, ipv6_prefix_length: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => of(v6.into(), ipv6_prefix_length).network(),
    }
}

/// Reads a network such as `192.0.2.0/24`; host bits are cut off.
pub fn parse(text: &str) -> Result<IpNet, InvalidNetwork> {
    let invalid = || InvalidNetwork(text.chars().take(64).collect());
    let network: IpNet = text.parse().map_err(|_| invalid())?;
    let prefix_length = match network.addr().is_ipv6() && network.addr().to_canonical().is_ipv4() {
        true => network.prefix_len().checked_sub(96).ok_or_else(invalid)?,
        false => network.prefix_len(),
    };
    Ok(of(network.addr(), prefix_length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> IpNet {
        parse(text).unwrap()
    }

    #[test]
    fn host_bits_are_cut() {
        assert_eq!(network("198.51.100.50/24").to_string(), "198.51.100.0/24");
        assert_eq!(network("2001:db8::7/64").to_string(), "2001:db8::/64");
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        let of = |address: &str, prefix| source(address.parse().unwrap(), prefix).to_string();
        assert_eq!(of("2001:db8::1:7", 64), "2001:db8::");
        assert_eq!(of("2001:db8::1:7", 128), "2001:db8::1:7");
        assert_eq!(of("198.51.100.7", 0), "198.51.100.7");
        assert_eq!(of("::ffff:198.51.100.7", 64), "198.51.100.7");
    }

    #[test]
    fn a_mapped_network_is_an_ipv4_network() {
        assert_eq!(network("::ffff:198.51.100.7/120").to_string(), "198.51.100.0/24");
        assert_eq!(network("::ffff:0.0.0.0/96").to_string(), "0.0.0.0/0");
        assert!(parse("::ffff:198.51.100.7/64").is_err());
    }

    #[test]
    fn an_empty_prefix_holds_its_own_family_only() {
        assert!(network("0.0.0.0/0").contains(&"192.0.2.1".parse::<IpAddr>().unwrap()));
        assert!(!network("0.0.0.0/0").contains(&"2001:db8::1".parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn an_invalid_network_is_refused_with_its_text() {
        for text in ["", "192.0.2.1", "192.0.2.0/33", "192.0.2.0/-1", "a/8", "2001:db8::/129"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a network")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_address_is_in_its_own_network(address: IpAddr, prefix_length: u8) {
            let network = of(address, prefix_length);
            prop_assert!(network.contains(&address.to_canonical()));
            prop_assert_eq!(parse(&network.to_string()), Ok(network));
        }
    }
}
