//! What machines see: network boot and metadata, where they are asked for.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use metadata::control_plane::{CallsHome, follow};
use metadata::link_local::LinkLocal;
use metadata::neighbour::Kernel;
use netboot::{Metrics, Netboot, Site as NetbootSite, Sources};
use runtime::authority::Site;
use runtime::listen::Sockets;
use runtime::supervise::Tier;
use runtime::telemetry::Vitals;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::reach::Reach;

/// The edges, their sockets bound.
#[derive(Debug)]
pub(crate) struct Edges {
    netboot: Option<Netboot>,
    metadata: Option<Metadata>,
}

#[derive(Debug)]
struct Metadata {
    listeners: Vec<TcpListener>,
    neighbours: Kernel,
    settings: metadata::Config,
    /// Taken away when the last listener has ended.
    link_local: Option<LinkLocal>,
    tokens: metadata::token::Tokens,
}

/// What the edges know, for whoever waits until they know it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    netboot: Option<Arc<netboot::index::Index>>,
}

impl Known {
    /// Resolves once machines can be answered.
    pub(crate) async fn ready(&self) {
        if let Some(index) = &self.netboot {
            index.ready().await;
        }
    }
}

impl Edges {
    /// Binds the ports of what `config` asks for.
    pub(crate) async fn bind(config: &Config, site: &Site) -> anyhow::Result<Self> {
        let netboot = match &config.netboot {
            Some(wanted) => Some(bind_netboot(config, wanted, site).await?),
            None => None,
        };
        Ok(Self { netboot, metadata: bind_metadata(config, site).await? })
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

    /// Starts them, fed by the services that `reach` reaches; `store` keeps what they record.
    pub(crate) fn start(
        self,
        reach: &Reach,
        store: Option<Arc<dyn Store>>,
        vitals: &Vitals,
        tier: &mut Tier,
    ) -> Known {
        let netboot = self.netboot.map(|netboot| {
            let index = netboot.index();
            let sources = Sources {
                hardware: reach.hardware.clone(),
                instance: reach.instance.clone(),
                workflow: reach.workflow.clone(),
            };
            let metrics = vitals.register(Metrics::new);
            tier.tasks.spawn(netboot.run(sources, store, metrics, tier.stop.clone()));
            index
        });
        if let Some(Metadata { listeners, neighbours, settings, link_local, tokens }) =
            self.metadata
        {
            let index = Arc::new(metadata::Index::new());
            let calls = Arc::new(CallsHome(reach.instance.clone()));
            let service = metadata::Service::new(index.clone(), tokens, calls, settings);
            let service = service.watching(Arc::new(neighbours)).counted(
                vitals
                    .register(|registry| metadata::metrics::Metrics::new(registry, index.clone())),
            );
            for listener in listeners {
                let (service, until) = (service.clone(), tier.stop.clone());
                tier.tasks.spawn(async { Ok(metadata::serve(listener, service, until).await?) });
            }
            let (hardware, instance) = (reach.hardware.clone(), reach.instance.clone());
            let until = tier.stop.clone();
            tier.tasks.spawn(async move {
                follow(index, hardware, instance, until).await;
                drop(link_local);
                Ok(())
            });
        }
        Known { netboot }
    }
}

/// Nothing where nobody asked for the service.
async fn bind_metadata(config: &Config, site: &Site) -> anyhow::Result<Option<Metadata>> {
    let mut addresses = config.metadata_listen.clone();
    let link_local = match &config.metadata.link_local {
        Some(interface) => {
            std::fs::create_dir_all(&config.data)?;
            let set = LinkLocal::set(interface, &config.data.join("metadata-link-local.json"));
            Some(set.context("metadata_link_local")?)
        }
        None => None,
    };
    let own = link_local.iter().flat_map(LinkLocal::addresses);
    addresses.extend(own.map(|address| SocketAddr::from((*address, 80))));
    if addresses.is_empty() {
        return Ok(None);
    }
    let mut listeners = Vec::new();
    for address in addresses {
        listeners.push(Sockets::bind("metadata", address).await?);
    }
    let neighbours = Kernel::open().context("looking at the kernel's neighbours")?;
    let source_check = config.metadata.source_check;
    let settings = metadata::Config { source_check, ..metadata::Config::default() };
    let tokens = metadata::token::Tokens::new(site.key().expose());
    Ok(Some(Metadata { listeners, neighbours, settings, link_local, tokens }))
}

async fn bind_netboot(
    config: &Config,
    wanted: &config::Netboot,
    site: &Site,
) -> anyhow::Result<Netboot> {
    let api = config.machines_api().context("where machines find the API")?;
    let http = Sockets::bind("boot HTTP", (wanted.address, wanted.http_port).into()).await?;
    let settings = NetbootSite {
        interface: wanted.interface.clone(),
        address: wanted.address,
        http_port: http.local_addr()?.port(),
        dhcp: wanted.dhcp.clone(),
        loaders: wanted.loaders.clone(),
        osie: wanted.osie.clone(),
        files: wanted.files.clone(),
        grpc_authority: api,
        authority: site.authority().to_owned(),
        authority_sha256: site.fingerprint()?,
        consoles: wanted.consoles.clone(),
        metadata_route: config.metadata.link_local.is_some()
            || config.metadata_listen.iter().any(is_link_local),
        policy: netboot::decision::Policy::default(),
    };
    Netboot::bind(settings, site.key(), http).await
}

fn is_link_local(address: &SocketAddr) -> bool {
    tinwright::check::is_link_local(address.ip())
}
