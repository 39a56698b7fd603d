//! The channels to the services: in this process, or at a peer.

use std::collections::BTreeMap;
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

/// The channels of one calling service to each service that another one calls.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) address: Channel,
    pub(crate) hardware: Channel,
    pub(crate) identity: Channel,
    pub(crate) instance: Channel,
    pub(crate) workflow: Channel,
    pub(crate) power: Channel,
    /// The service of nodes, whether or not there is one.
    pub(crate) node: Channel,
    /// True if there is one.
    pub(crate) has_node: bool,
    /// The service that leases addresses, if there is one.
    pub(crate) leases: Option<Channel>,
    /// For the gateway, which passes on calls whether or not there is such a service.
    pub(crate) netboot: Channel,
    pub(crate) metadata: Channel,
}

/// The endpoints of each calling service. In this process each one is a caller of its own, so that
/// it makes its own calls only.
#[derive(Clone, Debug)]
pub(crate) struct CallerEndpoints(BTreeMap<Service, Endpoints>);

impl CallerEndpoints {
    /// Returns the endpoints that `config` sets: `local` services, and those of other processes.
    /// Channels connect on the first call, because a peer may start later or restart.
    pub(crate) fn new(
        config: &Config,
        certificates: &Certificates,
        local: &LocalServices,
    ) -> anyhow::Result<Self> {
        let by_service = remote_channels(config, certificates.service.as_ref())?;
        let by_door = remote_channels(config, certificates.door.as_ref())?;
        let has_leases =
            config.netboot.is_some() || !config.split.peers(Service::Netboot).is_empty();
        let has_node =
            config.split.serves(Service::Node) || !config.split.peers(Service::Node).is_empty();
        Self::of_each(|service| {
            let inside = local.channel(caller([service])?.context("a service is a caller")?);
            let remote = if service == Service::Gateway { &by_door } else { &by_service };
            Ok(Endpoints::new(&inside, remote, has_leases, has_node))
        })
    }

    /// Returns endpoints that answer no call.
    pub(crate) fn unconnected() -> anyhow::Result<Self> {
        let nobody = Channel::unconnected();
        Self::of_each(|_| Ok(Endpoints::new(&nobody, &BTreeMap::new(), false, false)))
    }

    fn of_each(endpoints: impl Fn(Service) -> anyhow::Result<Endpoints>) -> anyhow::Result<Self> {
        let services = Service::value_variants().iter();
        let each = services.map(|service| Ok((*service, endpoints(*service)?)));
        Ok(Self(each.collect::<anyhow::Result<_>>()?))
    }

    /// Returns the endpoints that `service` calls.
    pub(crate) fn of(&self, service: Service) -> Endpoints {
        self.0[&service].clone()
    }
}

impl Endpoints {
    /// Services that are not in `remote` are `inside`.
    fn new(
        inside: &Channel,
        remote: &BTreeMap<Service, Channel>,
        has_leases: bool,
        has_node: bool,
    ) -> Self {
        let to = |service| remote.get(&service).unwrap_or(inside).clone();
        Self {
            address: to(Service::Address),
            hardware: to(Service::Hardware),
            identity: to(Service::Identity),
            instance: to(Service::Instance),
            workflow: to(Service::Workflow),
            power: to(Service::Power),
            node: to(Service::Node),
            has_node,
            leases: has_leases.then(|| to(Service::Netboot)),
            netboot: to(Service::Netboot),
            metadata: to(Service::Metadata),
        }
    }

    /// Returns each service that owns objects, with its channel.
    pub(crate) fn owners(&self) -> Vec<(String, Channel)> {
        let Self { address, hardware, identity, instance, workflow, power, leases, .. } = self;
        let node = Some(&self.node).filter(|_| self.has_node);
        let owners = [
            (Service::Address, Some(address)),
            (Service::Hardware, Some(hardware)),
            (Service::Identity, Some(identity)),
            (Service::Instance, Some(instance)),
            (Service::Workflow, Some(workflow)),
            (Service::Power, Some(power)),
            (Service::Node, node),
            (Service::Netboot, leases.as_ref()),
        ];
        let owners = owners.into_iter().filter_map(|(owner, at)| Some((owner, at?.clone())));
        owners.map(|(owner, channel)| (owner.to_string(), channel)).collect()
    }
}

/// Returns the caller that `services` are; none if they are none. The gateway is a door: it calls as its clients.
pub(crate) fn caller(
    services: impl IntoIterator<Item = Service>,
) -> anyhow::Result<Option<Caller>> {
    let services: Vec<_> = services.into_iter().collect();
    let role = match services.as_slice() {
        [] => return Ok(None),
        [Service::Gateway] => Role::Door,
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
