//! The metadata service: bound, wired, started.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use metadata::control_plane::{CallsHome, follow};
use metadata::link_local::LinkLocal;
use metadata::metrics::Metrics;
use metadata::neighbour::Kernel;
use metadata::token::Tokens;
use metadata::tree::signed::Signer;
use metadata::{Api, Contents, Index, Service, serve};
use runtime::authority::Site;
use runtime::boot_token;
use runtime::listen::Sockets;
use runtime::supervise::Tier;
use runtime::telemetry::Vitals;
use tokio::net::TcpListener;

use crate::config::Config;
use crate::copies::Copies;
use crate::reach::Reach;

/// Its sockets.
#[derive(Debug)]
pub(crate) struct Bound {
    listeners: Vec<TcpListener>,
    /// Taken away once nobody listens there.
    link_local: Option<LinkLocal>,
    neighbours: Kernel,
    settings: metadata::Config,
    tokens: Tokens,
    contents: Contents,
}

/// The service, and where it listens.
#[derive(Debug)]
pub(crate) struct Metadata {
    listeners: Vec<TcpListener>,
    link_local: Option<LinkLocal>,
    index: Arc<Index>,
    service: Service,
}

impl Bound {
    /// Binds what `config` asks for; nothing where it asks for nothing.
    pub(super) async fn bind(config: &Config, site: &Site) -> anyhow::Result<Option<Self>> {
        let mut addresses = config.metadata_listen.clone();
        let link_local = match &config.metadata.link_local {
            Some(interface) => {
                std::fs::create_dir_all(&config.data)
                    .with_context(|| format!("making {}", config.data.display()))?;
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
        let said = &config.metadata;
        let settings = metadata::Config {
            trusted_proxies: said.trusted_proxies.clone(),
            refuse_forwarded: said.refuse_forwarded,
            allowed_hosts: said.allowed_hosts.clone(),
            source_check: said.source_check,
            rate_limits: config.rate_limits,
        };
        let tokens = Tokens::new(site.key().expose());
        let contents = contents(site)?;
        Ok(Some(Self { listeners, link_local, neighbours, settings, tokens, contents }))
    }

    /// The service, which calls those that `reach` reaches and counts in `vitals`.
    pub(super) fn wire(self, reach: &Reach, vitals: &Vitals) -> Metadata {
        let Self { listeners, link_local, neighbours, settings, tokens, contents } = self;
        let index = Arc::new(Index::new());
        let calls = Arc::new(CallsHome(reach.instance.clone()));
        let metrics = vitals.register(|registry| Metrics::new(registry, index.clone()));
        let service = Service::new(index.clone(), tokens, calls, settings);
        let service = service.watching(Arc::new(neighbours)).counted(metrics).with(contents);
        Metadata { listeners, link_local, index, service }
    }
}

impl Metadata {
    /// What people may ask of it.
    pub(crate) fn api(&self) -> Api {
        Api::new(self.service.clone())
    }

    /// Starts it, fed by the services that `reach` reaches, and by `copies` until these are reached. Answers what it knows.
    pub(crate) fn start(
        self,
        reach: &Reach,
        copies: Option<&Copies>,
        tier: &mut Tier,
    ) -> Arc<Index> {
        let Self { listeners, link_local, index, service } = self;
        for listener in listeners {
            let (service, until) = (service.clone(), tier.stop.clone());
            tier.tasks.spawn(async { Ok(serve(listener, service, until).await?) });
        }
        let (hardware, instance) = (reach.hardware.clone(), reach.instance.clone());
        let (copies, until, known) =
            (copies.map(Copies::metadata), tier.stop.clone(), index.clone());
        tier.tasks.spawn(async move {
            let followed = follow(index, hardware, instance, copies, until).await;
            drop(link_local);
            followed.context("what was kept of the feeds")
        });
        known
    }
}

/// What the site adds to what machines are told. An edge without the key for identity documents tells them unsigned.
fn contents(site: &Site) -> anyhow::Result<Contents> {
    let key = site.document_key().context("opening the key for identity documents")?;
    let signer = key.map(|key| Signer::new(&key)).transpose()?;
    let boot_tokens = Some(boot_token::Tokens::new(site.key())?);
    Ok(Contents { signer, boot_tokens })
}
