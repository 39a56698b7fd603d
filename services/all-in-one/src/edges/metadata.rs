//! The metadata service: binds its sockets, connects and starts it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use fleet::Observer;
use metadata::control_plane::InstanceReports;
use metadata::link_local::LinkLocal;
use metadata::metrics::Metrics;
use metadata::token::Tokens;
use metadata::tree::signed::Signer;
use metadata::{Api, Contents, Hegel, Index, Service, serve, serve_calls};
use runtime::Clock;
use runtime::authority::SiteAuthority;
use runtime::boot_token;
use runtime::listen::Sockets;
use runtime::neighbour::NeighbourTable;
use runtime::revocation::Revocations;
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use tinwright::hegel::hegel_server::HegelServer;
use tokio::net::TcpListener;
use tonic::service::Routes;

use crate::config::{self, Config};
use crate::endpoints::Endpoints;
use crate::reflection::with_reflection;
use crate::until_stopped;

/// The metadata service with bound sockets.
#[derive(Debug)]
pub(crate) struct Bound {
    listeners: Vec<TcpListener>,
    grpc: Vec<TcpListener>,
    /// Its addresses are removed when this is dropped.
    link_local: Option<LinkLocal>,
    neighbours: NeighbourTable,
    settings: metadata::Config,
    tokens: Tokens,
    contents: Contents,
}

/// The metadata service with its listeners.
#[derive(Debug)]
pub(crate) struct Metadata {
    listeners: Vec<TcpListener>,
    grpc: Vec<TcpListener>,
    link_local: Option<LinkLocal>,
    index: Arc<Index>,
    service: Arc<Service>,
}

impl Bound {
    /// Binds the sockets in `config`; returns none if there are none.
    pub(super) async fn bind(
        config: &Config,
        site: &SiteAuthority,
    ) -> anyhow::Result<Option<Self>> {
        let mut addresses = config.metadata_listen.clone();
        let link_local = match &config.metadata.link_local {
            Some(interface) => {
                std::fs::create_dir_all(&config.data)
                    .with_context(|| format!("creating {}", config.data.display()))?;
                let set = LinkLocal::add(interface, &config.data.join("metadata-link-local.json"));
                Some(set.context("metadata_link_local")?)
            }
            None => None,
        };
        let own = link_local.iter().flat_map(LinkLocal::addresses);
        addresses.extend(own.map(|address| SocketAddr::from((*address, 80))));
        if addresses.is_empty() && config.metadata.grpc_listen.is_empty() {
            return Ok(None);
        }
        let listeners = bind_all("metadata", &addresses).await?;
        let grpc = bind_all("metadata_grpc", &config.metadata.grpc_listen).await?;
        let neighbours = NeighbourTable::open(Clock::system())
            .context("opening the kernel's neighbour table")?;
        let options = &config.metadata;
        let settings = metadata::Config {
            trusted_proxies: options.trusted_proxies.clone(),
            refuse_forwarded: options.refuse_forwarded,
            allowed_hosts: options.allowed_hosts.clone(),
            source_check: options.source_check,
            rate_limits: config.rate_limits,
        };
        let tokens = Tokens::new(site.keys())?;
        let contents = contents(site, config)?;
        Ok(Some(Self { listeners, grpc, link_local, neighbours, settings, tokens, contents }))
    }

    /// Connects the service: it calls others by `endpoints`, refuses the boot tokens of edges in `revocations`, and registers its
    /// metrics in `vitals`.
    pub(super) fn connect(
        self,
        endpoints: &Endpoints,
        revocations: &Revocations,
        vitals: &Diagnostics,
    ) -> Metadata {
        let Self { listeners, grpc, link_local, neighbours, settings, tokens, contents } = self;
        let boot_tokens = contents.boot_tokens.map(|it| it.accepting_edges(revocations.clone()));
        let index = Arc::new(Index::default());
        let instance = endpoints.channel(config::Service::Metadata, config::Service::Instance);
        let reports = Arc::new(InstanceReports(instance));
        let clock = Clock::system();
        let mut service = Service::new(index.clone(), tokens, reports, settings, clock.clone());
        service.neighbours = Some(Arc::new(neighbours));
        service.metrics = vitals.register(|registry| Metrics::new(registry, index.clone(), clock));
        service.contents = Contents { boot_tokens, ..contents };
        Metadata { listeners, grpc, link_local, index, service: Arc::new(service) }
    }
}

impl Metadata {
    /// Returns the service for operators.
    pub(crate) fn api(&self) -> Api {
        Api(self.service.clone())
    }

    /// Returns the observer that updates its index of machines.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        self.index.clone()
    }

    /// Starts the service. Returns its index of machines.
    pub(crate) fn start(self, tier: &mut Tier) -> anyhow::Result<Arc<Index>> {
        let Self { listeners, grpc, link_local, index, service } = self;
        let calls = match grpc.is_empty() {
            true => Router::new(),
            false => calls(&service, index.clone(), tier),
        };
        for listener in grpc {
            let (service, calls, until) = (service.clone(), calls.clone(), tier.stop.clone());
            tier.spawn(async move { serve_calls(listener, &service, calls, until).await });
        }
        for listener in listeners {
            let (service, until) = (service.clone(), tier.stop.clone());
            tier.spawn(serve(listener, service, until));
        }
        let stop = tier.stop.clone();
        tier.spawn(async move {
            stop.cancelled().await;
            drop(link_local);
            Ok(())
        });
        Ok(index)
    }
}

async fn bind_all(
    name: &'static str,
    addresses: &[SocketAddr],
) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        listeners.push(Sockets::bind(name, *address).await?);
    }
    Ok(listeners)
}

/// Returns the router of Hegel's calls, their health and reflection. It has no call of the API.
fn calls(service: &Arc<Service>, index: Arc<Index>, tier: &mut Tier) -> Router {
    let (reporter, health) = tonic_health::server::health_reporter();
    let (stop, until) = (tier.stop.clone(), tier.stop.clone());
    tier.spawn(until_stopped(until, async move {
        index.ready().await;
        reporter.set_serving::<HegelServer<Hegel>>().await;
    }));
    let mut routes = Routes::builder();
    routes.add_service(Hegel::new(service.clone(), stop).into_service());
    routes.add_service(health);
    let descriptors = [tinwright::hegel::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
    with_reflection(routes.routes().into_axum_router(), descriptors)
}

/// Returns the site's own content: signed identity documents, boot tokens and custom endpoints. Without the key for identity
/// documents they are unsigned.
fn contents(site: &SiteAuthority, config: &Config) -> anyhow::Result<Contents> {
    let key = site.document_key().context("opening the key for identity documents")?;
    let signer = key.map(|key| Signer::new(&key)).transpose()?;
    let boot_tokens = Some(boot_token::BootTokens::new(site.keys())?);
    let endpoints = config.metadata.endpoints.clone();
    Ok(Contents { signer, boot_tokens, endpoints })
}
