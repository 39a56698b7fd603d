//! The listeners. All are bound before any work begins, so that a port in use is an error at the start.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, lookup_host};

use crate::arguments::{Arguments, Scheme};
use crate::tls;
use crate::unix_socket::{self, UnixSocket};

/// The bound listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) http: Option<TcpListener>,
    pub(crate) https: Option<(TcpListener, Arc<ServerConfig>)>,
    pub(crate) unix: Option<UnixSocket>,
}

impl Listeners {
    /// Binds the listeners that the arguments ask for.
    pub(crate) async fn bind(arguments: &Arguments) -> anyhow::Result<Self> {
        let wanted = |scheme| arguments.schemes.contains(&scheme);
        let (http, tls) = (&arguments.http, &arguments.tls);
        let mut listeners = Self::default();
        // Certificates first: nothing is bound if one is missing.
        let config = wanted(Scheme::Https).then(|| tls::server_config(tls)).transpose()?;
        if wanted(Scheme::Unix) {
            listeners.unix = Some(unix_socket::bind(&http.socket_path)?);
            tracing::info!("serving imageapi at unix://{}", http.socket_path.display());
        }
        if wanted(Scheme::Http) {
            let addresses = resolve(&http.host, http.port).await?;
            check_insecure(&addresses, http.allow_insecure_http)?;
            let listener = listen(&addresses, http.keep_alive).await?;
            tracing::info!("serving imageapi at http://{}", listener.local_addr()?);
            listeners.http = Some(listener);
        }
        if let Some(config) = config {
            let host = tls.tls_host.as_deref().unwrap_or(&http.host);
            let addresses = resolve(host, tls.tls_port).await?;
            let keep_alive = tls.tls_keep_alive.unwrap_or(http.keep_alive);
            let listener = listen(&addresses, keep_alive).await?;
            tracing::info!("serving imageapi at https://{}", listener.local_addr()?);
            listeners.https = Some((listener, config));
        }
        Ok(listeners)
    }
}

/// Returns the addresses of a host: those of IPv4 first, as the original prefers them.
async fn resolve(host: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let bare = if bare.is_empty() { "0.0.0.0" } else { bare };
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = lookup_host((bare, port)).await.with_context(|| format!("resolving {host}"))?;
    let mut addresses: Vec<_> = found.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    anyhow::ensure!(!addresses.is_empty(), "{host} has no address");
    Ok(addresses)
}

/// Refuses plaintext where others could reach it: every caller is root on this node.
fn check_insecure(addresses: &[SocketAddr], allowed: bool) -> anyhow::Result<()> {
    for address in addresses {
        anyhow::ensure!(
            allowed || address.ip().to_canonical().is_loopback(),
            "http on {address}, which is not loopback, needs --allow-insecure-http"
        );
    }
    Ok(())
}

/// Binds the first of `addresses` that can be bound.
async fn listen(addresses: &[SocketAddr], keep_alive: Duration) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(addresses).await;
    let listener = listener.with_context(|| format!("listening on {addresses:?}"))?;
    if !keep_alive.is_zero() {
        // Accepted sockets inherit it on Linux.
        let probes = TcpKeepalive::new().with_time(keep_alive).with_interval(keep_alive);
        SockRef::from(&listener).set_tcp_keepalive(&probes)?;
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_is_for_loopback_unless_it_is_allowed_elsewhere() {
        let at = |text: &str| [text.parse().unwrap()];
        for loopback in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(check_insecure(&at(loopback), false).is_ok(), "{loopback}");
        }
        for other in ["0.0.0.0:80", "198.51.100.1:80", "[::]:80"] {
            assert!(check_insecure(&at(other), false).is_err(), "{other}");
            assert!(check_insecure(&at(other), true).is_ok(), "{other}");
        }
    }

    #[tokio::test]
    async fn hosts_are_names_and_addresses() {
        assert_eq!(resolve("[::1]", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        assert_eq!(resolve("", 7).await.unwrap(), ["0.0.0.0:7".parse().unwrap()]);
        let local = resolve("localhost", 7).await.unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback()));
    }
}
