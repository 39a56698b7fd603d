//! The channels to the services: in this process, or at a peer.

use std::time::Duration;

use anyhow::Context as _;
use runtime::authority::SiteAuthority;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::config::{Config, Service};

/// The longest time for connecting to a peer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a silent peer is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// A channel to each service that another one calls.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) hardware: Channel,
    pub(crate) instance: Channel,
    pub(crate) workflow: Channel,
    pub(crate) power: Channel,
    /// The service that leases addresses, if there is one.
    pub(crate) leases: Option<Channel>,
}

impl Endpoints {
    /// Channels to services of this process: each is `inside`.
    pub(crate) fn inside(inside: &Channel) -> Self {
        let inside = || inside.clone();
        let (hardware, instance, workflow, power) = (inside(), inside(), inside(), inside());
        Self { hardware, instance, workflow, power, leases: None }
    }

    /// The channels that `config` sets. They connect on the first call, because a peer may start later or restart.
    pub(crate) fn new(
        config: &Config,
        site: &SiteAuthority,
        inside: &Channel,
    ) -> anyhow::Result<Self> {
        let to = |service| match config.split.peer(service) {
            Some(peer) => remote(peer, site).with_context(|| format!("{service} at {peer}")),
            None => Ok(inside.clone()),
        };
        let has_leases = config.netboot.is_some() || config.split.peer(Service::Netboot).is_some();
        Ok(Self {
            hardware: to(Service::Hardware)?,
            instance: to(Service::Instance)?,
            workflow: to(Service::Workflow)?,
            power: to(Service::Power)?,
            leases: has_leases.then(|| to(Service::Netboot)).transpose()?,
        })
    }
}

/// Returns a channel to `peer` that presents the certificate of the site's services.
fn remote(peer: &Uri, site: &SiteAuthority) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from(peer.clone())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL);
    if peer.scheme_str() == Some("http") {
        return Ok(endpoint.connect_lazy());
    }
    let own = site.service().context("opening the certificate of this process")?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(site.authority()))
        .identity(Identity::from_pem(&own.certificate, own.key.expose()));
    Ok(endpoint.tls_config(tls)?.connect_lazy())
}
