//! Names of servers.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::{Deadline, Error, Result, bounded::bounded};

/// Returns the first address of `host`, a name or an address, IPv6 also in brackets.
///
/// # Errors
/// [`Error::Invalid`] if it has none, [`Error::Failed`] if the name service does not answer before the deadline.
pub(crate) fn resolve(host: &str, port: u16, deadline: Deadline) -> Result<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    if host.is_empty()
        || host.contains(|letter: char| letter.is_whitespace() || letter.is_control())
    {
        return Err(Error::Invalid(format!("{host:?} is not a host name")));
    }
    let name = host.to_owned();
    let look_up = move || {
        let found = (name.as_str(), port).to_socket_addrs().ok().and_then(|mut list| list.next());
        found.ok_or_else(|| Error::Invalid(format!("host {name} has no address")))
    };
    bounded(&format!("resolve host {host}"), deadline, look_up, drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn addresses_are_taken_as_they_are_and_impossible_names_refused() {
        let limit = Deadline::after(Duration::from_secs(60));
        let address = |host| resolve(host, 2049, limit).unwrap().to_string();
        assert_eq!(address("198.51.100.1"), "198.51.100.1:2049");
        assert_eq!(address("[2001:db8::1]"), "[2001:db8::1]:2049");
        assert_eq!(address("2001:db8::1"), "[2001:db8::1]:2049");
        for host in ["", "a b", "a\nb", "a..b"] {
            assert!(matches!(resolve(host, 1, limit), Err(Error::Invalid(_))), "{host:?}");
        }
    }
}
