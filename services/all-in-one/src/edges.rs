//! What machines see: network boot and metadata, where they are asked for.

use std::sync::Arc;

use anyhow::Context as _;
use metadata::control_plane::{CallsHome, follow};
use netboot::{Metrics, Netboot, Site as NetbootSite, Sources};
use runtime::authority::Site;
use runtime::listen::Sockets;
use runtime::supervise::Tier;
use runtime::telemetry::Vitals;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::copies::Copies;
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
    config: metadata::Config,
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
        let mut listeners = Vec::new();
        for address in &config.metadata_listen {
            listeners.push(Sockets::bind("metadata", *address).await?);
        }
        let tokens = metadata::token::Tokens::new(site.key().expose());
        let settings =
            metadata::Config { rate_limits: config.rate_limits, ..metadata::Config::default() };
        let metadata =
            (!listeners.is_empty()).then_some(Metadata { listeners, config: settings, tokens });
        Ok(Self { netboot, metadata })
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

    /// Starts them, fed by the services that `reach` reaches, and by `copies` until these are reached; `store` keeps what
    /// they record.
    pub(crate) fn start(
        self,
        reach: &Reach,
        store: Option<Arc<dyn Store>>,
        copies: Option<&Copies>,
        vitals: &Vitals,
        tier: &mut Tier,
    ) -> Known {
        let netboot = self.netboot.map(|netboot| {
            let netboot = match copies {
                Some(copies) => netboot.keeping(copies.netboot()),
                None => netboot,
            };
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
        if let Some(Metadata { listeners, config, tokens }) = self.metadata {
            let index = Arc::new(metadata::Index::new());
            let calls = Arc::new(CallsHome(reach.instance.clone()));
            let service = metadata::Service::new(index.clone(), tokens, calls, config);
            for listener in listeners {
                let (service, until) = (service.clone(), tier.stop.clone());
                tier.tasks.spawn(async { Ok(metadata::serve(listener, service, until).await?) });
            }
            let (hardware, instance) = (reach.hardware.clone(), reach.instance.clone());
            let (copies, until) = (copies.map(Copies::metadata), tier.stop.clone());
            tier.tasks.spawn(async move {
                let followed = follow(index, hardware, instance, copies, until).await;
                followed.context("what was kept of the feeds")
            });
        }
        Known { netboot }
    }
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
        metadata_route: config.metadata_listen.iter().any(is_link_local),
        rate_limits: config.rate_limits,
        policy: netboot::decision::Policy::default(),
    };
    Netboot::bind(settings, site.key(), http).await
}

fn is_link_local(address: &std::net::SocketAddr) -> bool {
    tinwright::check::is_link_local(address.ip())
}
