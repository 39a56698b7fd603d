//! Resolution of the names of hosts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolver of names.
#[derive(Clone, Debug, Default)]
pub(crate) enum Resolver {
    /// The resolver of the host.
    #[default]
    System,
    /// These addresses for each name.
    #[cfg(test)]
    Fixed(std::collections::BTreeMap<String, Vec<IpAddr>>),
}

/// A resolver for one connection: it has the addresses that were checked, whatever the name.
#[derive(Debug)]
pub(crate) struct Pinned(pub(crate) Arc<[SocketAddr]>);

impl Resolver {
    /// Returns the addresses of the host of `url`. None if its name is not resolved in time.
    pub(crate) async fn addresses(&self, url: &Url, timeout: Duration) -> Option<Vec<SocketAddr>> {
        let host = url.host_str()?;
        let port = url.port_or_known_default()?;
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(address) = literal.unwrap_or(host).parse::<IpAddr>() {
            return Some(vec![(address, port).into()]);
        }
        match self {
            Self::System => {
                let resolved = tokio::time::timeout(timeout, tokio::net::lookup_host((host, port)));
                Some(resolved.await.ok()?.ok()?.collect())
            }
            #[cfg(test)]
            Self::Fixed(names) => {
                let addresses = names.get(host)?.iter();
                Some(addresses.map(|address| (*address, port).into()).collect())
            }
        }
    }
}

impl Resolve for Pinned {
    fn resolve(&self, _name: Name) -> Resolving {
        let addresses: Addrs = Box::new(Vec::from(&*self.0).into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}
