//! Addresses that downloads may come from.
//!
//! A URL of a tenant must not reach what only this host reaches: its own services, the site's
//! networks, or the metadata service of a cloud. So the address must be public, or in a network
//! that the settings allow. The name is resolved once, and the connection goes to an address that
//! was checked: a second answer of the DNS would change nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use reqwest::Url;

/// Ports of public hosts that downloads may come from.
const PORTS: [u16; 2] = [80, 443];
/// Maximum length of a URL in bytes.
const MAX_URL_BYTES: usize = 2048;

/// IPv4 networks that are not public (RFC 6890, and multicast).
const SPECIAL_IPV4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// The only IPv6 network with public addresses (RFC 4291 §2.4). All forms of IPv4 addresses but
/// those below are outside: mapped, translated by NAT64 (RFC 6052, RFC 8215), and compatible ones.
const GLOBAL_IPV6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// IPv6 networks in that one that are not public: protocols such as Teredo (RFC 2928), 6to4
/// (RFC 3056), and documentation (RFC 3849, RFC 9637).
const SPECIAL_IPV6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Rules for the addresses of downloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Networks that are allowed although they are not public.
    pub(crate) allow: Vec<IpNet>,
    /// Networks that are refused although they are public.
    pub(crate) refuse: Vec<IpNet>,
}

impl Rules {
    /// Returns the problem with one of the `addresses` of a host, if it has one. A host with a
    /// refused address is refused: which one is used would be chance.
    pub(crate) fn check(&self, addresses: &[IpAddr], port: u16) -> Result<(), &'static str> {
        match addresses.iter().all(|address| self.is_allowed(*address) || self.is_open(*address)) {
            _ if addresses.is_empty() => Err("no address"),
            false => Err("not a public address"),
            true if PORTS.contains(&port) => Ok(()),
            true if self.are_allowed(addresses) => Ok(()),
            true => Err("port: neither 80 nor 443"),
        }
    }

    /// True if all `addresses` of a host are in networks that the settings allow.
    pub(crate) fn are_allowed(&self, addresses: &[IpAddr]) -> bool {
        !addresses.is_empty() && addresses.iter().all(|address| self.is_allowed(*address))
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(&address))
    }

    fn is_open(&self, address: IpAddr) -> bool {
        is_public(address) && !self.refuse.iter().any(|network| network.contains(&address))
    }
}

/// Returns the problem with the form of `url`, if it has one.
pub(crate) fn check_form(url: &Url) -> Result<(), &'static str> {
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("has a user or a password: not allowed")
        }
        "http" | "https" if url.as_str().len() > MAX_URL_BYTES => Err("has more than 2048 bytes"),
        "http" | "https" => Ok(()),
        _ => Err("scheme: neither http nor https"),
    }
}

/// True for an address that hosts of the Internet have.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !SPECIAL_IPV4.into_iter().any(|network| contains(network, v4)),
        IpAddr::V6(v6) => {
            contains(GLOBAL_IPV6, v6)
                && !SPECIAL_IPV6.into_iter().any(|network| contains(network, v6))
        }
    }
}

fn contains<A: Into<IpAddr>>((network, prefix): (A, u8), address: A) -> bool {
    IpNet::new(network.into(), prefix).is_ok_and(|network| network.contains(&address.into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(allow: &[&str], refuse: &[&str]) -> Rules {
        let networks = |texts: &[&str]| texts.iter().map(|it| it.parse().unwrap()).collect();
        Rules { allow: networks(allow), refuse: networks(refuse) }
    }

    fn check(rules: &Rules, addresses: &[&str], port: u16) -> Result<(), &'static str> {
        let addresses: Vec<_> = addresses.iter().map(|it| it.parse().unwrap()).collect();
        rules.check(&addresses, port)
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
        ] {
            let refused = Err("not a public address");
            assert_eq!(check(&rules(&[], &[]), &[address], 443), refused, "{address}");
        }
    }

    #[test]
    fn public_addresses_are_accepted() {
        for address in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "198.20.0.1", "2606:4700::1111"] {
            assert_eq!(check(&rules(&[], &[]), &[address], 80), Ok(()), "{address}");
        }
    }

    #[test]
    fn one_refused_address_refuses_the_host() {
        let refused = Err("not a public address");
        assert_eq!(check(&rules(&[], &[]), &["8.8.8.8", "10.0.0.1"], 443), refused);
        assert_eq!(check(&rules(&[], &[]), &[], 443), Err("no address"));
    }

    #[test]
    fn settings_allow_and_refuse_networks() {
        let rules = rules(&["10.0.0.0/24"], &["8.8.8.0/24", "10.0.0.0/8"]);
        assert_eq!(check(&rules, &["10.0.0.9", "9.9.9.9"], 443), Ok(()));
        assert_eq!(check(&rules, &["10.0.1.9"], 443), Err("not a public address"));
        assert_eq!(check(&rules, &["8.8.8.8"], 443), Err("not a public address"));
        // The mapped form is no way around.
        assert_eq!(check(&rules, &["::ffff:10.0.0.9"], 443), Err("not a public address"));
    }

    #[test]
    fn other_ports_need_an_allowed_network() {
        let rules = rules(&["10.0.0.0/24"], &[]);
        assert_eq!(check(&rules, &["10.0.0.9"], 8443), Ok(()));
        assert_eq!(check(&rules, &["8.8.8.8"], 8443), Err("port: neither 80 nor 443"));
        assert_eq!(check(&rules, &["8.8.8.8", "10.0.0.9"], 25), Err("port: neither 80 nor 443"));
    }

    #[test]
    fn urls_of_other_forms_are_refused() {
        let check = |url: &str| check_form(&url.parse().unwrap());
        assert_eq!(check("https://example.org/a?b"), Ok(()));
        assert_eq!(check("file:///etc/passwd"), Err("scheme: neither http nor https"));
        assert!(check("https://anna@example.org/").is_err());
        assert!(check("https://:secret@example.org/").is_err());
        assert!(check(&format!("https://example.org/{}", "x".repeat(2048))).is_err());
    }

    proptest! {
        #[test]
        fn no_ipv6_form_of_an_ipv4_address_is_public(v4: u32) {
            let [a, b, c, d] = v4.to_be_bytes();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for form in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert!(!is_public(form.into()), "{form}");
            }
        }
    }
}
