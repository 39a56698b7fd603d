//! The gateway: binds its sockets, connects its doors to the services, and starts it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use gateway::pages::{self, Document};
use gateway::{Backend, Door, Gateway, GatewaySettings, ial, imageapi, mirror, uploads};
use runtime::Clock;
use runtime::listen::Sockets;
use runtime::revocation::Revocations;
use runtime::serve::{self, AnonymousLimits, ConnectionLimits, Transport};
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use tokio::net::TcpListener;

use crate::certificates::Certificates;
use crate::config::{self, Config, GatewayTransport, Service};
use crate::endpoints::Endpoints;
use crate::open_files;
use crate::revocations_known;

/// The most connections at a time, if the process may have as many open files.
const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of connections from one source.
const MAX_CONNECTIONS_PER_SOURCE: usize = 1024;
/// Prefix length of an IPv6 network that counts as one source: one client may have all of it.
const IPV6_PREFIX_LENGTH: u8 = 64;
/// Maximum number of connections whose clients have not authenticated themselves.
const MAX_ANONYMOUS_CONNECTIONS: usize = 1024;
/// Maximum number of them from one source. A platform may ask for the state of 400 machines at
/// once, over a connection for each, and no client is known during the TLS handshake.
const MAX_ANONYMOUS_CONNECTIONS_PER_SOURCE: usize = 512;
/// Maximum number of bytes of requests that are buffered for an HTTP/2 connection without a client
/// certificate. Connections of clients with an API key keep this limit.
const ANONYMOUS_WINDOW_BYTES: u32 = 256 * 1024;
/// Time within which a client has to authenticate itself, longer than that of each request.
const ANONYMOUS_LIFETIME: Duration = Duration::from_secs(60);
/// The most requests that one HTTP/2 connection may have open.
const MAX_CONCURRENT_STREAMS: u32 = 256;
/// The largest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The longest time for the head of a request, and between two of them on a connection that is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time for which a client's system may not acknowledge what was sent. An answer is known to have arrived after some more.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(8);

/// The gateway with bound sockets.
#[derive(Debug)]
pub(crate) struct Bound {
    listeners: Vec<TcpListener>,
    settings: config::Gateway,
    rate_limits: bool,
}

impl Bound {
    /// Binds the gateway's ports; returns none if it is not served here.
    pub(crate) async fn bind(
        config: &Config,
        sockets: &mut Sockets,
    ) -> anyhow::Result<Option<Self>> {
        let Some(settings) = config.gateway.clone() else { return Ok(None) };
        let mut listeners = sockets.inherited("gateway")?;
        for address in &settings.listen {
            listeners.push(Sockets::bind("gateway", *address).await?);
        }
        Ok(Some(Self { listeners, settings, rate_limits: config.rate_limits }))
    }

    /// Returns its addresses.
    pub(crate) fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Starts to serve the doors, which call the services of `endpoints`.
    pub(crate) fn start(
        self,
        certificates: &Certificates,
        endpoints: &Endpoints,
        revocations: &Revocations,
        vitals: &Diagnostics,
        tier: &mut Tier,
    ) -> anyhow::Result<()> {
        let Self { listeners, settings, rate_limits } = self;
        let transport = transport(&settings.transport, certificates)?;
        let limits = limits(&settings, certificates, revocations);
        let is_catalogue_public = !settings.ial_catalogue_private;
        let trusted_proxies = settings.trusted_proxies;
        let stop = tier.stop.clone();
        let settings =
            GatewaySettings { trusted_proxies, rate_limits, clock: Clock::system(), stop };
        let backend = backend(endpoints);
        let gateway = vitals
            .register(|registry| Gateway::new(backend, revocations.clone(), settings, registry));
        let ial = ial::IalSettings {
            is_catalogue_public,
            has_rate_limits: rate_limits,
            clock: Clock::system(),
        };
        let pages = pages::router(&[Document::mirror()]).merge(imageapi::pages());
        let app = gateway.router(doors(&gateway, ial), pages);
        for listener in listeners {
            let (transport, limits, app) = (transport.clone(), limits.clone(), app.clone());
            let (revocations, stop) = (revocations.clone(), tier.stop.clone());
            tier.spawn(async move {
                revocations_known(&revocations, &stop).await;
                serve::limited_tcp(listener, transport, limits, app, stop).await
            });
        }
        Ok(())
    }
}

/// Returns all doors.
fn doors(gateway: &Gateway, ial: ial::IalSettings) -> Vec<Door> {
    let (ial, imageapi) = (ial::doors(gateway, ial), imageapi::doors(gateway));
    [mirror::door(gateway), uploads::door(gateway)].into_iter().chain(ial).chain(imageapi).collect()
}

fn transport(
    settings: &GatewayTransport,
    certificates: &Certificates,
) -> anyhow::Result<Transport> {
    let own = match settings {
        GatewayTransport::Plaintext => None,
        GatewayTransport::KeyPair { .. } => certificates.gateway.as_ref(),
        GatewayTransport::Site => certificates.server.as_ref(),
    };
    Ok(match own {
        Some(own) => Transport::Tls(Arc::new(own.server_config()?)),
        None => Transport::AnonymousPlaintext,
    })
}

fn limits(
    settings: &config::Gateway,
    certificates: &Certificates,
    revocations: &Revocations,
) -> ConnectionLimits {
    // The API, the store and downloads need the other files.
    let quarter = open_files::limit().and_then(|limit| usize::try_from(limit / 4).ok());
    let total = quarter.map_or(MAX_CONNECTIONS, |quarter| quarter.min(MAX_CONNECTIONS));
    ConnectionLimits {
        total,
        per_source: MAX_CONNECTIONS_PER_SOURCE,
        ipv6_prefix_length: IPV6_PREFIX_LENGTH,
        exempt: settings.trusted_proxies.clone(),
        max_head_bytes: MAX_HEAD_BYTES,
        head_timeout: HEAD_TIMEOUT,
        acknowledge_timeout: Some(ACKNOWLEDGE_TIMEOUT),
        max_concurrent_streams: MAX_CONCURRENT_STREAMS,
        revocations: revocations.clone(),
        authority: Some(certificates.site.clone()),
        // The gateway's doors identify a client with an API key.
        anonymous: Some(anonymous_limits(total)),
        ..ConnectionLimits::default()
    }
}

/// Returns the limits on connections of unknown clients, where `connections` are allowed in all.
fn anonymous_limits(connections: usize) -> AnonymousLimits {
    let total = MAX_ANONYMOUS_CONNECTIONS.min(connections / 2);
    AnonymousLimits {
        total,
        per_source: MAX_ANONYMOUS_CONNECTIONS_PER_SOURCE.min(total / 2),
        max_concurrent_streams: MAX_CONCURRENT_STREAMS,
        window_bytes: ANONYMOUS_WINDOW_BYTES,
        lifetime: ANONYMOUS_LIFETIME,
    }
}

fn backend(endpoints: &Endpoints) -> Backend {
    let services = Service::value_variants().iter();
    Backend::new(
        services
            .map(|service| (service.to_string(), endpoints.channel(Service::Gateway, *service))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_has_at_most_half_of_the_connections_of_unknown_clients() {
        let limits = |connections| {
            let limits = anonymous_limits(connections);
            (limits.total, limits.per_source)
        };
        assert_eq!(limits(4096), (1024, 512));
        assert_eq!(limits(1024), (512, 256));
    }
}
