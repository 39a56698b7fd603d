//! The services for machines: network boot and metadata, if they are configured.

mod metadata;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use dhcp::Mode;
use fleet::{FeedStates, Fleet, FleetCache, FleetFeeds, MachineChange, Observer};
use netboot::ImageCache;
use netboot::decision::Policy;
use netboot::{Netboot, Peers, Site as NetbootSite};
use runtime::Clock;
use runtime::authority::SiteAuthority;
use runtime::listen::Sockets;
use runtime::neighbour::NeighbourTable;
use runtime::revocation::Revocations;
use runtime::serve::Transport;
use runtime::supervise::Tier;
use runtime::telemetry::{Diagnostics, MachineNames};
use store::Store;
use tokio_util::sync::CancellationToken;

pub(crate) use self::metadata::Metadata;
use crate::config::{self, Config, Service};
use crate::endpoints::Endpoints;

/// The edges with bound sockets.
#[derive(Debug)]
pub(crate) struct Edges {
    netboot: Option<Netboot>,
    metadata: Option<metadata::Bound>,
}

/// Observers of the fleet.
pub(crate) struct FleetObservers {
    all: Vec<Arc<dyn Observer>>,
    /// True if one of them observes leases, too.
    need_leases: bool,
}

/// Reports when the edges are ready to serve machines.
#[derive(Clone, Debug)]
pub(crate) struct EdgeReadiness {
    netboot: Option<Arc<netboot::machine_view::Index>>,
    /// Present if addresses are leased.
    leases: Option<netboot::leases::Api>,
}

impl EdgeReadiness {
    /// Resolves once the edges can serve machines.
    pub(crate) async fn ready(&self) {
        if let Some(index) = &self.netboot {
            index.ready().await;
        }
        if let Some(api) = &self.leases {
            api.leases.ready().await;
        }
    }
}

impl Edges {
    /// Binds the ports of the edges in `config`.
    pub(crate) async fn bind(config: &Config, site: &Arc<SiteAuthority>) -> anyhow::Result<Self> {
        let netboot = match &config.netboot {
            Some(options) => bind_netboot(config, options, site).await?,
            None => None,
        };
        Ok(Self { netboot, metadata: metadata::Bound::bind(config, site).await? })
    }

    /// Stores leases in `store` from now on, and returns the service for leases. Its watches end at `stop`.
    pub(crate) fn leases(
        &mut self,
        store: Option<&Arc<dyn Store>>,
        stop: &CancellationToken,
    ) -> Option<netboot::leases::Api> {
        let (netboot, store) = (self.netboot.as_mut()?, store?);
        netboot.enable_leases(store.clone());
        netboot.lease_api(stop.clone())
    }

    /// Returns the service for boots, with records in `store`. Its streams end at `stop`.
    pub(crate) fn boots(
        &self,
        store: Option<&Arc<dyn Store>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<netboot::Api>> {
        let (Some(netboot), Some(store)) = (&self.netboot, store) else { return Ok(None) };
        netboot.api(store.clone(), stop.clone()).map(Some)
    }

    /// Takes the metadata service, which calls others by `endpoints`, and refuses the tokens of edges in `revocations`. The caller
    /// starts it.
    pub(crate) fn metadata(
        &mut self,
        endpoints: &Endpoints,
        revocations: &Revocations,
        vitals: &Diagnostics,
    ) -> Option<Metadata> {
        self.metadata.take().map(|bound| bound.connect(endpoints, revocations, vitals))
    }

    /// Returns the observers of the fleet: the edges and, beside them, the `names` of machines. None without an edge.
    pub(crate) fn observers(
        &self,
        metadata: Option<&Metadata>,
        names: MachineNames,
    ) -> FleetObservers {
        let mut all = self.netboot.as_ref().map(Netboot::observers).unwrap_or_default();
        all.extend(metadata.map(Metadata::observer));
        if !all.is_empty() {
            all.push(Arc::new(NameObserver(names)));
        }
        FleetObservers { all, need_leases: metadata.is_some() }
    }

    /// Starts to follow the fleet, once for all `observers`, by `endpoints`. The content of `cache` is used until the first snapshot.
    pub(crate) fn follow_fleet(
        &self,
        observers: FleetObservers,
        endpoints: &Endpoints,
        cache: Option<FleetCache>,
        vitals: &Diagnostics,
        tier: &mut Tier,
    ) {
        let FleetObservers { all: observers, need_leases } = observers;
        if observers.is_empty() {
            return;
        }
        let has_netboot = self.netboot.is_some();
        let caller = if has_netboot { Service::Netboot } else { Service::Metadata };
        let to = |service| endpoints.channel(caller, service);
        let feeds = FleetFeeds {
            hardware: to(Service::Hardware),
            instance: to(Service::Instance),
            workflow: has_netboot.then(|| to(Service::Workflow)),
            leases: need_leases
                .then(|| endpoints.find(Service::Metadata, Service::Netboot))
                .flatten(),
        };
        let (fleet, stop) = (Arc::new(Fleet::new(observers)), tier.stop.clone());
        vitals.register(|registry| fleet.register(registry));
        tier.spawn(async { fleet.run(feeds, cache, stop).await.context("the feed cache") });
    }

    /// True if the metadata service is configured.
    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    /// Starts network boot, which reports to services by `endpoints` and stores its records in `store`, and images of another process in
    /// `image_cache`.
    pub(crate) fn start(
        self,
        endpoints: &Endpoints,
        store: Option<Arc<dyn Store>>,
        image_cache: Option<ImageCache>,
        vitals: &Diagnostics,
        tier: &mut Tier,
    ) -> EdgeReadiness {
        let leasing = self.netboot.as_ref().filter(|netboot| netboot.has_pools());
        let leases = leasing.and_then(|netboot| netboot.lease_api(tier.stop.clone()));
        let netboot = self.netboot.zip(store).map(|(netboot, store)| {
            let index = netboot.index();
            let to = |service| endpoints.channel(Service::Netboot, service);
            let peers = Peers {
                hardware: to(Service::Hardware),
                instance: to(Service::Instance),
                workflow: to(Service::Workflow),
                address: to(Service::Address),
                image: endpoints.find(Service::Netboot, Service::Image),
                image_cache,
            };
            vitals.register(|registry| netboot.metrics().register(registry));
            report_environments(&netboot, vitals);
            tier.spawn(netboot.run(peers, store, tier.stop.clone()));
            index
        });
        EdgeReadiness { netboot, leases }
    }
}

/// Keeps the names of machines for the log. A process without the hardware service has them from the fleet only.
#[derive(Debug)]
struct NameObserver(MachineNames);

impl Observer for NameObserver {
    fn machines(&self, changes: &[MachineChange], _: &FeedStates) {
        for MachineChange { id, before: _, after } in changes {
            let name = after.as_ref().map_or("", |machine| machine.hardware.name.as_str());
            self.0.set(&id.to_string(), name);
        }
    }
}

/// Warns if no machine can boot the worker's environment now, or the one of nodes, and lets readiness name it for as long as it is so. Not each
/// site has nodes: readiness names theirs only if a machine is one.
fn report_environments(netboot: &Netboot, vitals: &Diagnostics) {
    let (environments, machines) = (netboot.environments().clone(), netboot.index());
    if let Some(problem) = environments.problem() {
        tracing::warn!(target: "tinwright", "{problem}");
    }
    if let Some(problem) = environments.node_problem() {
        tracing::info!(target: "tinwright", "{problem}");
    }
    vitals.add_details(move || {
        let has_nodes = machines.read().machines().any(|machine| machine.facts.is_node());
        let of_nodes = has_nodes.then(|| environments.node_problem()).flatten();
        environments.problem().into_iter().chain(of_nodes).collect()
    });
}

/// Binds the ports of every link.
async fn bind_netboot(
    config: &Config,
    options: &config::Netboot,
    site: &Arc<SiteAuthority>,
) -> anyhow::Result<Option<Netboot>> {
    let mut bound: Option<Netboot> = None;
    for link in &options.links {
        let http = Sockets::bind("boot HTTP", (link.address, link.http_port).into()).await?;
        let settings = settings(config, options, link, http.local_addr()?.port(), site)?;
        let mut netboot = match bound {
            None => Netboot::bind(settings, site.keys(), http, Clock::system()).await?,
            Some(mut netboot) => {
                netboot.attach(settings, http).await?;
                netboot
            }
        };
        if let Some(https) = &options.boot.https {
            let transport = Transport::from_key_pair(&https.certificate, &https.key)?;
            let listener = Sockets::bind("boot HTTPS", (link.address, https.port).into()).await?;
            netboot.add_http_listener(listener, transport);
        }
        bound = Some(netboot);
    }
    if let Some(netboot) = &mut bound {
        let neighbours = NeighbourTable::open(Clock::system())
            .context("opening the kernel's neighbour table")?;
        netboot.check_neighbours(Arc::new(neighbours));
    }
    Ok(bound)
}

/// Returns the settings of network boot on `link`, with boot HTTP on `http_port`.
fn settings(
    config: &Config,
    options: &config::Netboot,
    link: &config::NetbootLink,
    http_port: u16,
    site: &Arc<SiteAuthority>,
) -> anyhow::Result<NetbootSite> {
    let boot_unknown = link.dhcp.link.mode == Mode::AutoProxy;
    Ok(NetbootSite {
        interface: link.interface.clone(),
        address: link.address,
        http_port,
        dhcp: link.dhcp.clone(),
        subnets: options.subnets.clone(),
        loaders: options.loaders.clone(),
        osie: options.osie.clone(),
        files: options.files.clone(),
        grpc_authority: config.machines_api(link.address),
        grpc_servers: config.further_servers(link.address),
        authority: site.clone(),
        consoles: options.consoles.clone(),
        metadata_route: config.metadata.link_local.is_some()
            || config.metadata_listen.iter().any(is_link_local),
        rate_limits: config.rate_limits,
        policy: Policy { boot_unknown, ..options.boot.policy },
        syslog: options.syslog,
        ra_assist: link.ra_assist,
        serving: options.boot.serving.clone(),
    })
}

fn is_link_local(address: &SocketAddr) -> bool {
    tinwright::check::is_link_local(address.ip())
}
