//! What machines see: network boot and metadata, where they are asked for.

mod metadata;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use netboot::decision::Policy;
use netboot::dhcp::site::Mode;
use netboot::{Netboot, Site as NetbootSite, Sources};
use runtime::authority::Site;
use runtime::listen::Sockets;
use runtime::serve::Door;
use runtime::supervise::Tier;
use runtime::telemetry::Vitals;
use store::Store;
use tokio_util::sync::CancellationToken;

pub(crate) use self::metadata::Metadata;
use crate::config::{self, Config};
use crate::copies::Copies;
use crate::reach::Reach;

/// The edges, their sockets bound.
#[derive(Debug)]
pub(crate) struct Edges {
    netboot: Option<Netboot>,
    metadata: Option<metadata::Bound>,
}

/// What the edges know, for whoever waits until they know it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    netboot: Option<Arc<netboot::index::Index>>,
    /// Only where addresses are lent.
    leases: Option<netboot::leases::Api>,
}

impl Known {
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
    pub(crate) async fn bind(config: &Config, site: &Site) -> anyhow::Result<Self> {
        let netboot = match &config.netboot {
            Some(wanted) => Some(bind_netboot(config, wanted, site).await?),
            None => None,
        };
        Ok(Self { netboot, metadata: metadata::Bound::bind(config, site).await? })
    }

    /// What people may ask of leases, which are kept in `store` from now on.
    pub(crate) fn leases(
        &mut self,
        store: Option<&Arc<dyn Store>>,
    ) -> Option<netboot::leases::Api> {
        let (netboot, store) = (self.netboot.as_mut()?, store?);
        netboot.keep_leases(store.clone());
        netboot.lease_api()
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
    pub(crate) fn metadata(&mut self, reach: &Reach, vitals: &Vitals) -> Option<Metadata> {
        self.metadata.take().map(|bound| bound.wire(reach, vitals))
    }

    /// Starts the others, fed by the services that `reach` reaches, and by `copies` until these are reached; `store` keeps
    /// what they record.
    pub(crate) fn start(
        self,
        reach: &Reach,
        store: Option<Arc<dyn Store>>,
        copies: Option<&Copies>,
        vitals: &Vitals,
        tier: &mut Tier,
    ) -> Known {
        let lending = self.netboot.as_ref().filter(|netboot| netboot.lends());
        let leases = lending.and_then(Netboot::lease_api);
        let netboot = self.netboot.zip(store).map(|(netboot, store)| {
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
            vitals.register(|registry| netboot.metrics().register(registry));
            tier.tasks.spawn(netboot.run(sources, store, tier.stop.clone()));
            index
        });
        Known { netboot, leases }
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
        subnets: wanted.subnets.clone(),
        loaders: wanted.loaders.clone(),
        osie: wanted.osie.clone(),
        files: wanted.files.clone(),
        grpc_authority: api,
        authority: site.authority().to_owned(),
        authority_sha256: site.fingerprint()?,
        consoles: wanted.consoles.clone(),
        metadata_route: config.metadata.link_local.is_some()
            || config.metadata_listen.iter().any(is_link_local),
        rate_limits: config.rate_limits,
        policy: Policy {
            boot_unknown: wanted.dhcp.link.mode == Mode::AutoProxy,
            ..wanted.boot.policy
        },
        syslog: wanted.observe.syslog,
        ra_assist: wanted.observe.ra_assist,
        serving: wanted.boot.serving.clone(),
    };
    let mut netboot = Netboot::bind(settings, site.key(), http).await?;
    if let Some(https) = &wanted.boot.https {
        let door = Door::from_key_pair(&https.certificate, &https.key)?;
        let listener = Sockets::bind("boot HTTPS", (wanted.address, https.port).into()).await?;
        netboot.listen_too(listener, door);
    }
    Ok(netboot)
}

fn is_link_local(address: &SocketAddr) -> bool {
    tinwright::check::is_link_local(address.ip())
}
