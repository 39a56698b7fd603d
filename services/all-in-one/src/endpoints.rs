//! The channels to the services: in this process, or at a peer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum as _;
use runtime::access::service_subject;
use runtime::authority::RenewableCertificate;
use runtime::connect::Servers;
use runtime::{Caller, Channel, LocalServices, Role};
use tonic::transport::Uri;

use crate::certificates::Certificates;
use crate::config::{Config, Service};

/// The channels from each service to each other. In this process each service is a caller of its
/// own, so that it makes its own calls only.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    /// The channels into this process, by caller.
    local: BTreeMap<Service, Channel>,
    /// The channels to other processes.
    remote: BTreeMap<Service, Channel>,
    /// The same channels for the gateway.
    remote_of_door: BTreeMap<Service, Channel>,
    /// The same channels for the builder.
    remote_of_builder: BTreeMap<Service, Channel>,
    /// The services that run here or at a configured peer.
    present: BTreeSet<Service>,
}

impl Endpoints {
    /// Returns the endpoints that `config` sets: `local` services, and those of other processes.
    /// Channels connect on the first call, because a peer may start later or restart.
    pub(crate) fn new(
        config: &Config,
        certificates: &Certificates,
        local: &LocalServices,
    ) -> anyhow::Result<Self> {
        let local = |service: Service| {
            let caller = caller([service])?.context("a service is a caller")?;
            Ok((service, local.channel(caller)))
        };
        let all = || Service::value_variants().iter().copied();
        let has_peer = |service| !config.split.peers(service).is_empty();
        // Network boot needs an interface.
        let is_bound = |service| service != Service::Netboot || config.netboot.is_some();
        let is_here = |service| config.split.serves(service) && is_bound(service);
        Ok(Self {
            local: all().map(local).collect::<anyhow::Result<_>>()?,
            remote: remote_channels(config, certificates.service.as_ref())?,
            remote_of_door: remote_channels(config, certificates.door.as_ref())?,
            remote_of_builder: remote_channels(config, certificates.builder.as_ref())?,
            present: all().filter(|service| is_here(*service) || has_peer(*service)).collect(),
        })
    }

    /// Returns endpoints that answer no call.
    pub(crate) fn unconnected() -> Self {
        let all = Service::value_variants().iter();
        let local = all.map(|service| (*service, Channel::unconnected())).collect();
        let remote = BTreeMap::new();
        let (remote_of_door, remote_of_builder) = (remote.clone(), remote.clone());
        Self { local, remote, remote_of_door, remote_of_builder, present: BTreeSet::new() }
    }

    /// Returns the channel from `caller` to `service`, whether or not there is such a service.
    pub(crate) fn channel(&self, caller: Service, service: Service) -> Channel {
        let remote = if caller == Service::Gateway {
            &self.remote_of_door
        } else if caller == Service::Builder {
            &self.remote_of_builder
        } else {
            &self.remote
        };
        remote.get(&service).unwrap_or(&self.local[&caller]).clone()
    }

    /// Returns the channel from `caller` to `service`, if there is such a service.
    pub(crate) fn find(&self, caller: Service, service: Service) -> Option<Channel> {
        self.present.contains(&service).then(|| self.channel(caller, service))
    }
}

/// Returns the caller that `services` are; none if they are none. The gateway is a door: it calls as its clients. The
/// builder has a role, too.
pub(crate) fn caller(
    services: impl IntoIterator<Item = Service>,
) -> anyhow::Result<Option<Caller>> {
    let services: Vec<_> = services.into_iter().collect();
    let role = match services.as_slice() {
        [] => return Ok(None),
        [Service::Gateway] => Role::Door,
        [Service::Builder] => Role::Builder,
        _ => Role::Service,
    };
    let names: Vec<_> = services.iter().map(ToString::to_string).collect();
    Ok(Some(Caller::new(role, &service_subject(names.iter().map(String::as_str)))?))
}

/// Returns channels to the services of other processes, which present the certificate `own`. There are none if a peer needs one and
/// there is none: nothing of this process calls with it.
fn remote_channels(
    config: &Config,
    own: Option<&Arc<RenewableCertificate>>,
) -> anyhow::Result<BTreeMap<Service, Channel>> {
    let mut channels = BTreeMap::new();
    if own.is_none() && config.split.has_tls_peers() {
        return Ok(channels);
    }
    for service in Service::value_variants() {
        let peers = config.split.peers(*service);
        if !peers.is_empty() {
            let channel = remote_channel(peers, own);
            channels.insert(*service, channel.with_context(|| format!("peers: {service}"))?);
        }
    }
    Ok(channels)
}

/// Returns a channel to the first of `peers` that answers, which presents the certificate `own`.
fn remote_channel(
    peers: &[Uri],
    own: Option<&Arc<RenewableCertificate>>,
) -> anyhow::Result<Channel> {
    Servers::new(peers, own.map(|own| own.client_config()).transpose()?)?.channel()
}
