//! The channels to the services: in this process, or at a peer.

use std::collections::BTreeMap;
use std::io;

use anyhow::Context as _;
use clap::ValueEnum as _;
use futures_util::Stream;
use runtime::access::service_subject;
use runtime::connect::Servers;
use runtime::{Caller, Role};
use tinwright::in_process;
use tokio::io::DuplexStream;
use tonic::transport::{Channel, Uri};

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
    /// The service that leases addresses, if there is one.
    pub(crate) leases: Option<Channel>,
}

/// The endpoints of each calling service. In this process each one has a pipe of its own, so that it makes its own calls only.
#[derive(Clone, Debug)]
pub(crate) struct CallerEndpoints(BTreeMap<Service, Endpoints>);

/// The pipe of one calling service, for [`runtime::serve::in_process`].
pub(crate) struct Pipe<P> {
    pub(crate) caller: Caller,
    pub(crate) connections: P,
}

impl CallerEndpoints {
    /// Returns the endpoints that `config` sets, and the pipes to be served. Channels connect on the first call, because a peer may
    /// start later or restart.
    pub(crate) fn new(
        config: &Config,
        certificates: &Certificates,
    ) -> anyhow::Result<(Self, Vec<Pipe<impl Stream<Item = io::Result<DuplexStream>> + use<>>>)>
    {
        let mut remote = BTreeMap::new();
        for service in Service::value_variants() {
            let peers = config.split.peers(*service);
            if !peers.is_empty() {
                let channel = remote_channel(peers, certificates);
                remote.insert(*service, channel.with_context(|| format!("peers: {service}"))?);
            }
        }
        let has_leases = config.netboot.is_some() || remote.contains_key(&Service::Netboot);
        let (mut endpoints, mut pipes) = (BTreeMap::new(), Vec::new());
        for service in Service::value_variants() {
            let (inside, connections) = in_process::pair();
            pipes.push(Pipe { caller: caller([*service])?, connections });
            endpoints.insert(*service, Endpoints::new(&inside, &remote, has_leases));
        }
        Ok((Self(endpoints), pipes))
    }

    /// Returns endpoints that answer no call.
    pub(crate) fn unconnected() -> Self {
        let nobody = || Endpoints::new(&in_process::pair().0, &BTreeMap::new(), false);
        Self(Service::value_variants().iter().map(|service| (*service, nobody())).collect())
    }

    /// Returns the endpoints that `service` calls.
    pub(crate) fn of(&self, service: Service) -> Endpoints {
        self.0[&service].clone()
    }
}

impl Endpoints {
    /// Services that are not in `remote` are `inside`.
    fn new(inside: &Channel, remote: &BTreeMap<Service, Channel>, has_leases: bool) -> Self {
        let to = |service| remote.get(&service).unwrap_or(inside).clone();
        Self {
            address: to(Service::Address),
            hardware: to(Service::Hardware),
            identity: to(Service::Identity),
            instance: to(Service::Instance),
            workflow: to(Service::Workflow),
            power: to(Service::Power),
            leases: has_leases.then(|| to(Service::Netboot)),
        }
    }

    /// Returns each service that owns objects, with its channel.
    pub(crate) fn owners(&self) -> Vec<(String, Channel)> {
        let Self { address, hardware, identity, instance, workflow, power, leases } = self;
        let owners = [
            (Service::Address, Some(address)),
            (Service::Hardware, Some(hardware)),
            (Service::Identity, Some(identity)),
            (Service::Instance, Some(instance)),
            (Service::Workflow, Some(workflow)),
            (Service::Power, Some(power)),
            (Service::Netboot, leases.as_ref()),
        ];
        let owners = owners.into_iter().filter_map(|(owner, at)| Some((owner, at?.clone())));
        owners.map(|(owner, channel)| (owner.to_string(), channel)).collect()
    }
}

/// Returns the caller that `services` are.
pub(crate) fn caller(services: impl IntoIterator<Item = Service>) -> anyhow::Result<Caller> {
    let names: Vec<_> = services.into_iter().map(|service| service.to_string()).collect();
    Ok(Caller::new(Role::Service, &service_subject(names.iter().map(String::as_str)))?)
}

/// Returns a channel to the first of `peers` that answers, which presents the certificate of this process.
fn remote_channel(peers: &[Uri], certificates: &Certificates) -> anyhow::Result<Channel> {
    let own = certificates.service.as_ref();
    Servers::new(peers, own.map(|own| own.client_config()).transpose()?)?.channel()
}
