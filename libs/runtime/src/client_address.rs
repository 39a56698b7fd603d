//! The address of the client behind a request.
//!
//! It is the connection's peer; or, if that is a trusted proxy, the address that the proxy's forwarding header names. Everybody
//! can write such a header, so it is read from the right, as far as the proxies that wrote it are trusted, and no further.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The networks of proxies whose forwarding headers are believed; none by default.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

/// A network of all addresses: every machine would be a trusted proxy, and could speak for every other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} would trust everybody: name the proxies themselves")]
pub struct TrustsEveryone(IpNet);

impl TrustedProxies {
    /// The proxies in these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Result<Self, TrustsEveryone> {
        let networks: Vec<_> = networks.into_iter().collect();
        match networks.iter().find(|network| network.prefix_len() == 0) {
            Some(everyone) => Err(TrustsEveryone(*everyone)),
            None => Ok(Self(networks)),
        }
    }

    /// True if `address` is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address.to_canonical()))
    }
}

/// The forwarding header of a trusted proxy cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the forwarding header makes no sense")]
pub struct MalformedForwarding;

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Its address, in canonical form.
    pub address: IpAddr,
    /// True if the peer is no trusted proxy and sends a forwarding header.
    pub forwarded: bool,
}

impl ClientAddress {
    /// The client of a request that came from `peer` with these headers.
    pub fn of(
        peer: IpAddr,
        headers: &HeaderMap,
        trusted: &TrustedProxies,
    ) -> Result<Self, MalformedForwarding> {
        let by_list = headers.contains_key(X_FORWARDED_FOR);
        let by_element = headers.contains_key(header::FORWARDED);
        let address = peer.to_canonical();
        if !trusted.contains(address) {
            return Ok(Self { address, forwarded: by_list || by_element });
        }
        let chain = match (by_list, by_element) {
            (false, false) => return Ok(Self { address, forwarded: false }),
            // A proxy writes one of them and may pass on the client's other one: the two cannot be told apart.
            (true, true) => return Err(MalformedForwarding),
            (true, false) => values(headers, X_FORWARDED_FOR)?,
            (false, true) => {
                let elements = values(headers, header::FORWARDED)?;
                let nodes =
                    elements.into_iter().map(|element| node(element).ok_or(MalformedForwarding));
                nodes.collect::<Result<_, _>>()?
            }
        };
        Ok(Self { address: furthest(&chain, trusted)?, forwarded: false })
    }
}

/// The comma-separated values of all lines of a header, the last proxy's last.
fn values(headers: &HeaderMap, name: HeaderName) -> Result<Vec<&str>, MalformedForwarding> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str());
    let lines = lines.collect::<Result<Vec<_>, _>>().map_err(|_| MalformedForwarding)?;
    Ok(lines.into_iter().flat_map(|line| line.split(',')).map(str::trim).collect())
}

/// The `for` of a `Forwarded` element (RFC 7239 §4).
fn node(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, node) =
        pairs.map(|(k, v)| (k.trim(), v)).find(|(k, _)| k.eq_ignore_ascii_case("for"))?;
    Some(node.trim().trim_matches('"'))
}

/// The first address from the right that is no trusted proxy; the leftmost if all are.
fn furthest(chain: &[&str], trusted: &TrustedProxies) -> Result<IpAddr, MalformedForwarding> {
    let mut last = Err(MalformedForwarding);
    for hop in chain.iter().rev() {
        let hop = address(hop).ok_or(MalformedForwarding)?;
        last = Ok(hop);
        if !trusted.contains(hop) {
            break;
        }
    }
    last
}

/// An address as proxies write it: bare, in brackets, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROXY: &str = "192.0.2.1";

    fn trusted() -> TrustedProxies {
        TrustedProxies::new(["192.0.2.0/30".parse().unwrap()]).unwrap()
    }

    /// The client of a request from `peer` with these header lines.
    fn caller(
        peer: &str,
        lines: &[(&'static str, &str)],
    ) -> Result<ClientAddress, MalformedForwarding> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        ClientAddress::of(peer.parse().unwrap(), &headers, &trusted())
    }

    fn from(address: &str, forwarded: bool) -> Result<ClientAddress, MalformedForwarding> {
        Ok(ClientAddress { address: address.parse().unwrap(), forwarded })
    }

    #[test]
    fn the_header_of_an_untrusted_peer_only_sets_the_flag() {
        let lines = [("x-forwarded-for", "198.51.100.50")];
        assert_eq!(caller("198.51.100.9", &lines), from("198.51.100.9", true));
        assert_eq!(caller("198.51.100.9", &[("forwarded", "for=x")]), from("198.51.100.9", true));
        assert_eq!(caller("::ffff:198.51.100.9", &[]), from("198.51.100.9", false));
    }

    #[test]
    fn a_trusted_proxy_is_believed_from_the_right() {
        let lines = [("x-forwarded-for", "10.9.9.9, 198.51.100.50, 192.0.2.2")];
        assert_eq!(caller(PROXY, &lines), from("198.51.100.50", false));
        let lines = [("x-forwarded-for", "10.9.9.9"), ("x-forwarded-for", "198.51.100.50")];
        assert_eq!(caller(PROXY, &lines), from("198.51.100.50", false));
    }

    #[test]
    fn addresses_left_of_the_client_are_not_read() {
        let lines = [("x-forwarded-for", "nonsense, 198.51.100.50")];
        assert_eq!(caller(PROXY, &lines), from("198.51.100.50", false));
    }

    #[test]
    fn a_forwarded_element_names_its_client() {
        for value in [
            "for=198.51.100.50",
            "For=\"198.51.100.50:4711\";proto=http",
            "by=x; for=198.51.100.50",
        ] {
            assert_eq!(
                caller(PROXY, &[("forwarded", value)]),
                from("198.51.100.50", false),
                "{value}"
            );
        }
        let v6 = [("forwarded", "for=\"[2001:db8::50]:80\"")];
        assert_eq!(caller(PROXY, &v6), from("2001:db8::50", false));
    }

    #[test]
    fn a_chain_that_cannot_be_read_is_malformed() {
        for value in ["", "unknown", "198.51.100.50,", "198.51.100.50, 300.1.1.1"] {
            let lines = [("x-forwarded-for", value)];
            assert_eq!(caller(PROXY, &lines), Err(MalformedForwarding), "{value}");
        }
        assert_eq!(caller(PROXY, &[("forwarded", "for=_hidden")]), Err(MalformedForwarding));
        assert_eq!(caller(PROXY, &[("forwarded", "by=192.0.2.1")]), Err(MalformedForwarding));
    }

    #[test]
    fn two_kinds_of_header_at_once_are_malformed() {
        let lines = [("forwarded", "for=198.51.100.50"), ("x-forwarded-for", "198.51.100.60")];
        assert_eq!(caller(PROXY, &lines), Err(MalformedForwarding));
    }

    #[test]
    fn a_proxy_without_a_header_is_the_client_itself() {
        assert_eq!(caller(PROXY, &[]), from(PROXY, false));
        assert_eq!(caller(PROXY, &[("x-forwarded-for", "192.0.2.2")]), from("192.0.2.2", false));
    }

    #[test]
    fn a_network_of_all_addresses_is_refused() {
        for everyone in ["0.0.0.0/0", "::/0"] {
            let error = TrustedProxies::new([everyone.parse().unwrap()]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{everyone} would trust everybody: name the proxies themselves")
            );
        }
    }

    proptest! {
        #[test]
        fn no_header_changes_the_address_of_an_untrusted_peer(value in "[ -~]{0,40}", list: bool) {
            let name = if list { "x-forwarded-for" } else { "forwarded" };
            prop_assert_eq!(caller("198.51.100.9", &[(name, &value)]), from("198.51.100.9", true));
            let _no_panic = caller(PROXY, &[(name, &value)]);
        }
    }
}
