//! The channels to the services: in this process, or at a peer.

use anyhow::Context as _;
use runtime::connect;
use tonic::transport::{Channel, Uri};

use crate::certificates::Certificates;
use crate::config::{Config, Service};

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
        certificates: &Certificates,
        inside: &Channel,
    ) -> anyhow::Result<Self> {
        let to = |service| match config.split.peer(service) {
            Some(peer) => {
                remote(peer, certificates).with_context(|| format!("{service} at {peer}"))
            }
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
fn remote(peer: &Uri, certificates: &Certificates) -> anyhow::Result<Channel> {
    match &certificates.service {
        Some(own) if peer.scheme_str() == Some("https") => connect::tls(peer, own.client_config()?),
        Some(_) | None => Ok(connect::plaintext(peer)),
    }
}
