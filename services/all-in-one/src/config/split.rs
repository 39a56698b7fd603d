//! The services of this process, and the addresses of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;
use tinwright::calls::CALLS;
use tonic::codegen::http::uri::Authority;
use tonic::transport::Uri;

use super::Options;

/// The most further servers for machines: they are in the kernel's command line.
pub(super) const MAX_MACHINES_API_SERVERS: usize = 4;
/// The most addresses of one service.
const MAX_PEERS: usize = 8;

/// A service that another process can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Subnets and the addresses in them.
    Address,
    /// Hardware records.
    Hardware,
    /// Tenants, and the identities of callers.
    Identity,
    /// Disk images.
    Image,
    /// Conversion of disk images.
    Builder,
    /// Instances on the hardware.
    Instance,
    /// Workflows on the hardware.
    Workflow,
    /// BMCs and power jobs.
    Power,
    /// Nodes and their stacks.
    Node,
    /// DHCP, TFTP and boot HTTP.
    Netboot,
    /// Metadata for installed systems.
    Metadata,
    /// The doors for clients that speak JSON.
    Gateway,
}

impl Service {
    /// The services that own objects, and so events.
    pub const OWNERS: [Self; 9] = [
        Self::Address,
        Self::Hardware,
        Self::Identity,
        Self::Image,
        Self::Instance,
        Self::Workflow,
        Self::Power,
        Self::Node,
        Self::Netboot,
    ];

    /// The services that a site can be without.
    const OPTIONAL: [Self; 6] =
        [Self::Image, Self::Builder, Self::Node, Self::Netboot, Self::Metadata, Self::Gateway];
    /// The services whose calls are made with a role of their own.
    const WITH_OWN_ROLE: [Self; 2] = [Self::Gateway, Self::Builder];

    /// Returns the services that this one always calls, as the contract says. Those of
    /// [`OPTIONAL`](Self::OPTIONAL) are called, too, if they are here or their addresses are
    /// configured.
    fn calls(self) -> impl Iterator<Item = Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(move |called| *called != self && self.always_calls(*called))
    }

    /// True if this service calls `called` on every site. The contract names the calls of the builder
    /// by its role.
    fn always_calls(self, called: Self) -> bool {
        if self == Self::Builder {
            return matches!(called, Self::Image | Self::Identity);
        }
        !Self::OPTIONAL.contains(&called) && self.may_call(called)
    }

    /// True if the service makes its calls with a role of its own.
    pub fn has_own_role(self) -> bool {
        Self::WITH_OWN_ROLE.contains(&self)
    }

    /// Returns the services that a site can be without, and that this one calls at the unnamed peers:
    /// it does with a peer that has no such service.
    fn looks_for(self) -> &'static [Self] {
        if self == Self::Gateway {
            return &[Self::Image, Self::Node];
        }
        if self == Self::Netboot { &[Self::Image] } else { &[] }
    }

    /// True if the contract names this service as a caller of `called`. The gateway makes the calls
    /// of its clients.
    fn may_call(self, called: Self) -> bool {
        let caller = self.to_string();
        let events = "/tinwright.event.v1.OwnerEventService/";
        let own = format!("/tinwright.{called}.v1.");
        let is_of = |path: &str| {
            path.starts_with(&own) || path.starts_with(events) && Self::OWNERS.contains(&called)
        };
        let mut calls = CALLS.iter().filter(|call| call.services.contains(&caller.as_str()));
        self == Self::Gateway || calls.any(|call| is_of(call.path))
    }

    /// True if the service owns records that others watch. The others are edges.
    fn owns_records(self) -> bool {
        self.uses_store() && self != Self::Netboot
    }

    /// True if the service uses the store.
    fn uses_store(self) -> bool {
        Self::OWNERS.contains(&self)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The address of one service, or of all services that are not named.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Peer {
    /// The service; none stands for all others.
    pub service: Option<Service>,
    /// Scheme, host and port.
    pub url: Uri,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (service, url) = match text.split_once('=') {
            Some((name, url)) => (Some(Service::from_str(name, false)?), url),
            None => (None, text),
        };
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("https" | "http")) {
            return Err(format!("{url} is neither https:// nor http://"));
        }
        match uri.path_and_query().map(|path| path.as_str()) {
            None | Some("/") => Ok(Self { service, url: uri }),
            Some(_) => Err(format!("{url} has a path: only scheme, host and port are expected")),
        }
    }
}

impl TryFrom<String> for Peer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The services of this process, and the addresses of the others.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// The services of this process; none stands for all.
    pub only: Option<BTreeSet<Service>>,
    /// The addresses of each other service that is called from here.
    peers: BTreeMap<Service, Vec<Uri>>,
}

impl Split {
    /// Checks the options. Peers may be called without TLS only if the API is served without it.
    pub(super) fn new(options: &Options) -> anyhow::Result<Self> {
        let only = options.only.clone().map(|only| only.into_iter().collect::<BTreeSet<_>>());
        anyhow::ensure!(only.as_ref().is_none_or(|only| !only.is_empty()), "only is empty");
        let (peers, tls) = (options.peers.clone(), !options.insecure);
        let unused = only.is_none() && !peers.is_empty();
        anyhow::ensure!(!unused, "peers is given, but only is not: every service is served here");
        let (mut split, mut others) = (Self { only, peers: BTreeMap::new() }, Vec::new());
        for Peer { service, url } in peers {
            let clear = url.scheme_str() == Some("http");
            anyhow::ensure!(!(clear && tls), "peers: {url} has no TLS: set insecure to allow this");
            let addresses = match service {
                None => &mut others,
                Some(service) => {
                    anyhow::ensure!(
                        !service.has_own_role(),
                        "peers names {service}, which no service calls"
                    );
                    split.peers.entry(service).or_default()
                }
            };
            let name = service.map_or_else(|| "all others".into(), |service| service.to_string());
            let is_new = !addresses.contains(&url);
            anyhow::ensure!(is_new, "peers has the address {url} for {name} twice");
            addresses.push(url);
            anyhow::ensure!(
                addresses.len() <= MAX_PEERS,
                "peers has over {MAX_PEERS} addresses for {name}"
            );
        }
        // Services of this process are called here: one file may configure several processes.
        let Self { only, peers } = &mut split;
        peers.retain(|service, _| only.as_ref().is_some_and(|only| !only.contains(service)));
        split.with_default(&others)
    }

    /// Adds `others` as the addresses of services that are called from here and not named.
    fn with_default(mut self, others: &[Uri]) -> anyhow::Result<Self> {
        let here: Vec<_> = self.served().collect();
        for caller in here {
            for called in caller.calls() {
                if self.serves(called) || self.peers.contains_key(&called) {
                    continue;
                }
                anyhow::ensure!(
                    !others.is_empty(),
                    "{caller} calls {called}, which is not served here: set its address in peers"
                );
                self.peers.insert(called, others.to_vec());
            }
            for called in caller.looks_for() {
                if !others.is_empty() && !self.serves(*called) {
                    self.peers.entry(*called).or_insert_with(|| others.to_vec());
                }
            }
        }
        Ok(self)
    }

    /// True if this process serves `service`.
    pub fn serves(&self, service: Service) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&service))
    }

    /// Returns the services that this process serves.
    pub fn served(&self) -> impl Iterator<Item = Service> {
        let all = Service::value_variants().iter().copied();
        all.filter(|service| self.serves(*service))
    }

    /// True if a service of this process owns records that others watch.
    pub fn owns_records(&self) -> bool {
        let mut all = Service::value_variants().iter();
        all.any(|service| service.owns_records() && self.serves(*service))
    }

    /// True if a service of this process uses the store.
    pub fn uses_store(&self) -> bool {
        let mut all = Service::value_variants().iter();
        all.any(|service| service.uses_store() && self.serves(*service))
    }

    /// True if the gateway is all that this process serves.
    pub fn is_gateway_only(&self) -> bool {
        self.served().all(|service| service == Service::Gateway)
    }

    /// True if the builder is all that this process serves.
    pub fn is_builder_only(&self) -> bool {
        self.served().all(|service| service == Service::Builder)
    }

    /// Returns the first service of this process if all of them have a role of their own: the process
    /// has no certificate of the role service.
    pub fn own_role(&self) -> Option<Service> {
        self.served().all(Service::has_own_role).then(|| self.served().next()).flatten()
    }

    /// Returns the addresses of `service`, of which the first that answers is called; none if it is not called from here, or is
    /// served here.
    pub fn peers(&self, service: Service) -> &[Uri] {
        self.peers.get(&service).map_or(&[], Vec::as_slice)
    }

    /// True if a service is called with TLS.
    pub fn has_tls_peers(&self) -> bool {
        self.peers.values().flatten().any(|peer| peer.scheme_str() == Some("https"))
    }

    /// Fails if workers on machines could not reach the workflow service.
    pub(super) fn check_reachable_by_machines(&self) -> anyhow::Result<()> {
        let local = self.peers(Service::Workflow).iter().find(|peer| super::is_local(peer));
        let Some(host) = local.map(|peer| peer.host().unwrap_or_default()) else { return Ok(()) };
        anyhow::bail!("peers: machines that netboot boots do not reach workflow at {host}")
    }
}

/// Checks the further servers of the API for machines.
pub(super) fn machines_api(servers: Vec<String>) -> anyhow::Result<Vec<String>> {
    let count = servers.len();
    anyhow::ensure!(
        count <= MAX_MACHINES_API_SERVERS,
        "machines_api has {count} servers, over {MAX_MACHINES_API_SERVERS}"
    );
    for server in &servers {
        let parsed: Option<Authority> = server.parse().ok();
        let parsed = parsed.filter(|it| it.port_u16().is_some() && !server.contains('@'));
        let uri = parsed.map(Uri::from);
        anyhow::ensure!(uri.is_some(), "machines_api: {server:?} is not HOST:PORT");
        let is_local = uri.is_some_and(|uri| super::is_local(&uri));
        anyhow::ensure!(!is_local, "machines_api: machines do not reach {server}");
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_says_which_services_one_calls() {
        use Service::{Address, Hardware, Identity, Instance, Power, Workflow};
        let expected: [(Service, &[Service]); 6] = [
            (Address, &[Hardware, Identity, Instance]),
            (Identity, &[Address, Hardware, Instance, Workflow, Power]),
            (Service::Netboot, &[Address, Hardware, Identity, Instance, Workflow]),
            (Service::Metadata, &[Hardware, Identity, Instance]),
            (Service::Gateway, &[Address, Hardware, Identity, Instance, Workflow, Power]),
            (Service::Builder, &[Identity, Service::Image]),
        ];
        for (service, called) in expected {
            assert_eq!(service.calls().collect::<Vec<_>>(), called, "{service}");
        }
    }
}
