//! Which address is asking.
//!
//! The connection's peer; or, if that is a proxy we trust, whom it says it asks for. Everybody can write a forwarding
//! header, so it is read from the right, as far as the proxies that wrote it are trusted, and no further.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies whose word is believed; none by default.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

/// Every machine would be a trusted proxy, and could speak for every other.
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

    /// Whether `address` is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address.to_canonical()))
    }
}

/// A forwarding header of a trusted proxy's makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the forwarding header makes no sense")]
pub struct MalformedForwarding;

/// Who is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Its address, in normal form.
    pub address: IpAddr,
    /// Whether the peer, which we do not trust, says it asks for somebody else.
    pub forwarded: bool,
}

impl ClientAddress {
    /// Who asks through `peer` with these headers.
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
            // A proxy writes one of them, and lets the client's other one pass: no telling which.
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

/// The comma-separated values of a header, over all its lines, the last proxy's last.
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

/// From the right the first who is no trusted proxy; if all are, the one it began with.
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

    /// Who `peer` speaks for with these header lines; an error's status otherwise.
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
    fn a_strangers_forwarding_header_only_shows_that_it_forwards() {
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
    fn what_a_client_wrote_before_its_own_address_is_not_even_read() {
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
    fn a_proxy_that_names_nobody_asks_for_itself() {
        assert_eq!(caller(PROXY, &[]), from(PROXY, false));
        assert_eq!(caller(PROXY, &[("x-forwarded-for", "192.0.2.2")]), from("192.0.2.2", false));
    }

    #[test]
    fn everybody_is_no_proxy() {
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
        fn no_header_makes_a_stranger_somebody_else(value in "[ -~]{0,40}", list: bool) {
            let name = if list { "x-forwarded-for" } else { "forwarded" };
            prop_assert_eq!(caller("198.51.100.9", &[(name, &value)]), from("198.51.100.9", true));
            let _no_panic = caller(PROXY, &[(name, &value)]);
        }
    }
}
