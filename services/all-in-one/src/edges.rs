//! What machines see: network boot and metadata, where they are asked for.

mod metadata;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use dhcp::Mode;
use fleet::{Fleet, FleetCache, FleetFeeds};
use netboot::decision::Policy;
use netboot::{Netboot, Peers, Site as NetbootSite};
use runtime::Clock;
use runtime::authority::SiteAuthority;
use runtime::listen::Sockets;
use runtime::serve::Transport;
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use store::Store;
use tokio_util::sync::CancellationToken;

pub(crate) use self::metadata::Metadata;
use crate::config::{self, Config};
use crate::reach::Reach;

/// The edges, their sockets bound.
#[derive(Debug)]
pub(crate) struct Edges {
    netboot: Option<Netboot>,
    metadata: Option<metadata::Bound>,
}

/// Reports when the edges can answer machines.
#[derive(Clone, Debug)]
pub(crate) struct EdgeReadiness {
    netboot: Option<Arc<netboot::machine_view::Index>>,
    /// Only where addresses are lent.
    leases: Option<netboot::leases::Api>,
}

impl EdgeReadiness {
    /// Resolves once machines can be answered.
    pub(crate) async fn ready(&self) {
        if let Some(index) = &self.netboot {
            index.ready().await;
        }
        if let Some(leases) = &self.leases {
            leases.ready().await;
        }
    }
}

impl Edges {
    /// Binds the ports of what `config` asks for.
    pub(crate) async fn bind(config: &Config, site: &SiteAuthority) -> anyhow::Result<Self> {
        let netboot = match &config.netboot {
            Some(wanted) => bind_netboot(config, wanted, site).await?,
            None => None,
        };
        Ok(Self { netboot, metadata: metadata::Bound::bind(config, site).await? })
    }

    /// What people may ask of leases, which are kept in `store` from now on; watches end at `stop`.
    pub(crate) fn leases(
        &mut self,
        store: Option<&Arc<dyn Store>>,
        stop: &CancellationToken,
    ) -> Option<netboot::leases::Api> {
        let (netboot, store) = (self.netboot.as_mut()?, store?);
        netboot.enable_leases(store.clone());
        netboot.lease_api(stop.clone())
    }

    /// What people may ask network boot, whose records are in `store`; its streams end at `stop`.
    pub(crate) fn boots(
        &self,
        store: Option<&Arc<dyn Store>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<netboot::Api>> {
        let (Some(netboot), Some(store)) = (&self.netboot, store) else { return Ok(None) };
        netboot.api(store.clone(), stop.clone()).map(Some)
    }

    /// The metadata service, which calls those that `reach` reaches; it is started by itself.
    pub(crate) fn metadata(&mut self, reach: &Reach, vitals: &Diagnostics) -> Option<Metadata> {
        self.metadata.take().map(|bound| bound.wire(reach, vitals))
    }

    /// Starts following the fleet, once for all edges, at the services that `reach` reaches, and from `cache` until these are
    /// reached.
    pub(crate) fn follow_fleet(
        &self,
        metadata: Option<&Metadata>,
        reach: &Reach,
        cache: Option<FleetCache>,
        vitals: &Diagnostics,
        tier: &mut Tier,
    ) {
        let mut observers = self.netboot.as_ref().map(Netboot::observers).unwrap_or_default();
        observers.extend(metadata.map(Metadata::observer));
        if observers.is_empty() {
            return;
        }
        let Reach { hardware, instance, workflow, leases, .. } = reach.clone();
        let workflow = self.netboot.is_some().then_some(workflow);
        let leases = leases.filter(|_| metadata.is_some());
        let feeds = FleetFeeds { hardware, instance, workflow, leases };
        let (fleet, stop) = (Arc::new(Fleet::new(observers)), tier.stop.clone());
        vitals.register(|registry| fleet.register(registry));
        tier.tasks.spawn(async { fleet.run(feeds, cache, stop).await.context("the feed cache") });
    }

    /// True if the metadata service is among them.
    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    /// Starts the others, which report to the services that `reach` reaches; `store` keeps what they record.
    pub(crate) fn start(
        self,
        reach: &Reach,
        store: Option<Arc<dyn Store>>,
        vitals: &Diagnostics,
        tier: &mut Tier,
    ) -> EdgeReadiness {
        let lending = self.netboot.as_ref().filter(|netboot| netboot.has_pools());
        let leases = lending.and_then(|netboot| netboot.lease_api(tier.stop.clone()));
        let netboot = self.netboot.zip(store).map(|(netboot, store)| {
            let index = netboot.index();
            let peers = Peers {
                hardware: reach.hardware.clone(),
                instance: reach.instance.clone(),
                workflow: reach.workflow.clone(),
            };
            vitals.register(|registry| netboot.metrics().register(registry));
            tier.tasks.spawn(netboot.run(peers, store, tier.stop.clone()));
            index
        });
        EdgeReadiness { netboot, leases }
    }
}

/// Binds every link's ports.
async fn bind_netboot(
    config: &Config,
    wanted: &config::Netboot,
    site: &SiteAuthority,
) -> anyhow::Result<Option<Netboot>> {
    let mut bound: Option<Netboot> = None;
    for link in &wanted.links {
        let http = Sockets::bind("boot HTTP", (link.address, link.http_port).into()).await?;
        let settings = settings(config, wanted, link, http.local_addr()?.port(), site)?;
        let mut netboot = match bound {
            None => Netboot::bind(settings, site.key(), http, Clock::system()).await?,
            Some(mut netboot) => {
                netboot.attach(settings, http).await?;
                netboot
            }
        };
        if let Some(https) = &wanted.boot.https {
            let door = Transport::from_key_pair(&https.certificate, &https.key)?;
            let listener = Sockets::bind("boot HTTPS", (link.address, https.port).into()).await?;
            netboot.add_http_listener(listener, door);
        }
        bound = Some(netboot);
    }
    Ok(bound)
}

/// What netboot is told of `link`, where its HTTP listens on `http_port`.
fn settings(
    config: &Config,
    wanted: &config::Netboot,
    link: &config::Link,
    http_port: u16,
    site: &SiteAuthority,
) -> anyhow::Result<NetbootSite> {
    let boot_unknown = link.dhcp.link.mode == Mode::AutoProxy;
    Ok(NetbootSite {
        interface: link.interface.clone(),
        address: link.address,
        http_port,
        dhcp: link.dhcp.clone(),
        subnets: wanted.subnets.clone(),
        loaders: wanted.loaders.clone(),
        osie: wanted.osie.clone(),
        files: wanted.files.clone(),
        grpc_authority: config.machines_api(link.address),
        authority: site.authority().to_owned(),
        authority_sha256: site.fingerprint()?,
        consoles: wanted.consoles.clone(),
        metadata_route: config.metadata.link_local.is_some()
            || config.metadata_listen.iter().any(is_link_local),
        rate_limits: config.rate_limits,
        policy: Policy { boot_unknown, ..wanted.boot.policy },
        syslog: wanted.syslog,
        ra_assist: link.ra_assist,
        serving: wanted.boot.serving.clone(),
    })
}

fn is_link_local(address: &SocketAddr) -> bool {
    tinwright::check::is_link_local(address.ip())
}
