//! Where each service is asked: in this process, or at a peer.

use std::time::Duration;

use anyhow::Context as _;
use runtime::authority::SiteAuthority;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::config::{Config, Service};

/// How long a peer may take to be there.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a silent peer is left alone before it is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A channel to each service that is asked by another.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub(crate) hardware: Channel,
    pub(crate) instance: Channel,
    pub(crate) workflow: Channel,
    pub(crate) power: Channel,
    /// Whoever lends addresses, if anybody does.
    pub(crate) leases: Option<Channel>,
}

impl Reach {
    /// All of them in this process, at the other end of `inside`.
    pub(crate) fn inside(inside: &Channel) -> Self {
        let inside = || inside.clone();
        let (hardware, instance, workflow, power) = (inside(), inside(), inside(), inside());
        Self { hardware, instance, workflow, power, leases: None }
    }

    /// Each where `config` says. Nobody is called yet: a peer may start later, and come and go.
    pub(crate) fn new(
        config: &Config,
        site: &SiteAuthority,
        inside: &Channel,
    ) -> anyhow::Result<Self> {
        let to = |service| match config.split.peer(service) {
            Some(peer) => remote(peer, site).with_context(|| format!("{service} at {peer}")),
            None => Ok(inside.clone()),
        };
        let lends = config.netboot.is_some() || config.split.peer(Service::Netboot).is_some();
        Ok(Self {
            hardware: to(Service::Hardware)?,
            instance: to(Service::Instance)?,
            workflow: to(Service::Workflow)?,
            power: to(Service::Power)?,
            leases: lends.then(|| to(Service::Netboot)).transpose()?,
        })
    }
}

/// A channel to `peer`, which knows us for one of the site's services.
fn remote(peer: &Uri, site: &SiteAuthority) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from(peer.clone())
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE);
    if peer.scheme_str() == Some("http") {
        return Ok(endpoint.connect_lazy());
    }
    let own = site.service().context("how other processes know this one")?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(site.authority()))
        .identity(Identity::from_pem(&own.certificate, own.key.expose()));
    Ok(endpoint.tls_config(tls)?.connect_lazy())
}
