//! Every service in one process, connected by in-process gRPC; and the program `tinwright`.
//!
//! - [`config`]: the options of the operator.
//! - [`Server`]: binds ports, opens the store, connects services, runs and stops them.
//! - `services`: one table of the services that own records. `hosted`: these services without their types. `edges`: the services for machines. `gateway`: the doors for clients.
//! - `events`: the events of these services, and the calls that lead to them.
//! - `overdue`: alarms for objects that stay in a state for too long.
//! - `builder_name`: the name of a builder in leases. `sandbox_state`: readiness says how the builder's sandbox is limited.
//! - `endpoints`: the channels to services, here or at a peer. `feed_cache`: the records of other processes on disk.
//! - `site_identity`: the check that a store belongs to this site. `migrations`: from the layouts of older programs to this one's.
//!   `secrets`: the site's, opened or created. `sealing`: the secret fields of records are stored encrypted. `site_keys`: the key for that is replaced while the process runs.
//!   `store_health`: the health of a process follows its store. `store_lock`: the process that uses a store. `capabilities`: those that
//!   are missing.
//! - [`maintenance`]: checks and repairs of the store. [`open_files`]: the limit on open sockets. `api_limits`: the limits on
//!   connections to the API. `certificates`: those of this process, renewed while it runs. `metrics`: those of objects, store
//!   and certificates.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod api_limits;
mod builder_name;
mod capabilities;
mod certificates;
pub mod config;
mod edges;
mod endpoints;
mod events;
mod feed_cache;
mod gateway;
mod hosted;
pub mod maintenance;
mod metrics;
mod migrations;
pub mod open_files;
mod overdue;
mod reflection;
mod restored;
mod sandbox_state;
mod sealing;
mod secrets;
mod services;
mod site_identity;
mod site_keys;
mod store_health;
mod store_lock;
mod subnet_import;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fleet::FleetCache;
use futures_util::FutureExt as _;
use netboot::ImageCache;
use runtime::authority::SiteAuthority;
use runtime::listen::Sockets;
use runtime::overdue_metric::OverdueMetric;
use runtime::revocation::Revocations;
use runtime::serve::{self, ConnectionLimits, Transport};
use runtime::supervise::{self, Tier};
use runtime::telemetry::{Diagnostics, MachineNames, Readiness};
use runtime::{Clock, LocalServices};
use store::Store;
use store::deferred::DeferredStore;
use store::fence::FencedStore;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::certificates::Certificates;
use crate::config::{Config, Images, Service, Storage};
use crate::edges::{EdgeReadiness, Edges, Metadata};
use crate::endpoints::Endpoints;
use crate::events::refusals::Refusals;
use crate::hosted::Followers;
use crate::metrics::{CertificateMetrics, MeasuredStore, ObjectMetrics, StoreSize};
use crate::services::Services;
use crate::site_keys::KeyRotation;
use crate::store_health::Health;

/// The time for which the API is not served while the revoked certificates are not known: without the identity service, machines
/// are served nevertheless.
const REVOCATIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// A server with bound sockets and an open store.
pub struct Server {
    config: Config,
    grpc: Vec<TcpListener>,
    vitals: TcpListener,
    edges: Edges,
    gateway: Option<gateway::Bound>,
    site: Arc<SiteAuthority>,
    /// None if no service of this process stores records.
    store: Option<Arc<dyn Store>>,
    /// Present if edges follow other processes: the cache and its store.
    cache: Option<(FleetCache, Arc<dyn Store>)>,
    /// The names of machines, for the log.
    names: MachineNames,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds every port, then opens the content of the data directory, or creates it.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        let explained = config.clone();
        Box::pin(Self::open_all(config)).await.map_err(|error| {
            // Another server with the same data mostly has the ports, too, which are opened first.
            let other = error.is::<runtime::listen::Error>().then(|| in_use(&explained)).flatten();
            other.unwrap_or_else(|| capabilities::explain(error, &explained))
        })
    }

    async fn open_all(config: Config) -> anyhow::Result<Self> {
        let mut sockets = Sockets::from_env();
        let mut grpc = sockets.inherited("grpc")?;
        for address in &config.listen {
            grpc.push(Sockets::bind("grpc", *address).await?);
        }
        let vitals = sockets.tcp("metrics", config.metrics_listen).await?;
        let gateway = gateway::Bound::bind(&config, &mut sockets).await?;
        secrets::check_new_site(&config).await?;
        let site = Arc::new(secrets::open_site(&config)?);
        let edges = Edges::bind(&config, &site).await?;
        let store =
            if config.split.uses_store() { Some(store_of(&config, &site).await?) } else { None };
        let cache = feed_cache::open(&config, &site, edges.has_metadata()).await?;
        let names = MachineNames::default();
        Ok(Self { config, grpc, vitals, edges, gateway, site, store, cache, names })
    }

    /// Keeps `names` up to date, by which the log calls machines.
    #[must_use]
    pub fn with_machine_names(self, names: MachineNames) -> Self {
        Self { names, ..self }
    }

    /// Builds images in this process, if it serves the builder. The program has to call
    /// [`builder::run_if_sandboxed`] first.
    #[must_use]
    pub fn with_builder(mut self) -> Self {
        self.config.images.builds = true;
        self
    }

    /// Returns the addresses of the API.
    pub fn grpc(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.grpc.iter().map(TcpListener::local_addr).collect()
    }

    /// Returns the addresses of the gateway; empty if it is not served here.
    pub fn gateway(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.gateway.as_ref().map_or_else(|| Ok(Vec::new()), gateway::Bound::addresses)
    }

    /// Returns the address of metrics and health.
    pub fn vitals(&self) -> std::io::Result<SocketAddr> {
        self.vitals.local_addr()
    }

    /// Runs every service until `stop`. It is an error if one ends before.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            config,
            grpc,
            vitals: diagnostics_listener,
            edges: mut edge_services,
            gateway,
            site,
            store,
            cache,
            names,
        } = self;
        let vitals = Diagnostics::default();
        let (mut edges, mut inner) = (Tier::default(), Tier::default());
        // Edges serve machines while their store is out of reach.
        let followed_store = store.clone().filter(|_| config.split.owns_records());
        let store = store.map(|store| measured(store, &vitals));
        let certificates = Certificates::open(&config, &site)?;
        register_metrics(&config, &certificates, store.is_some(), &vitals);
        let local = LocalServices::new(inner.stop.clone());
        let endpoints = Endpoints::new(&config, &certificates, &local)?;
        let revocations = follow_revocations(&config, &endpoints, &vitals, &mut edges);
        let services =
            Services::new(&config, store.as_ref(), &site, &endpoints, &revocations, &edges.stop)?;
        let leases = edge_services.leases(store.as_ref(), &edges.stop);
        let boots = edge_services.boots(store.as_ref(), &edges.stop)?;
        let metadata = edge_services.metadata(&endpoints, &revocations, &vitals);
        let (health, health_service) = Health::starting(&vitals).await;
        let edge_apis = (boots, leases, metadata.as_ref().map(Metadata::api));
        let refusals = Refusals::new(Clock::system());
        let app = services.app(health_service, edge_apis, &vitals, &refusals, &revocations);
        let _local_services = local.start(app.clone());
        services.start(&refusals, &mut inner);
        start_builder(&config, &endpoints, &vitals, &mut edges)?;
        start_on_store(&config, store.as_ref(), &vitals, &mut inner);
        follow_records(&services, &names, &vitals, &mut inner);
        let (cache, cache_store) = cache.unzip();
        store_health::follow([store.clone(), cache_store], &mut inner);

        serve_grpc(&config, grpc, &certificates, app, &revocations, &mut edges)?;
        if let Some(gateway) = gateway {
            gateway.start(&certificates, &endpoints, &revocations, &vitals, &mut edges)?;
        }
        follow_keys(site, followed_store.clone(), certificates, &mut edges);
        let observers = edge_services.observers(metadata.as_ref(), names);
        edge_services.follow_fleet(observers, &endpoints, cache, &vitals, &mut edges);
        let metadata = metadata.map(|metadata| metadata.start(&mut edges)).transpose()?;
        let cache = image_cache(&config);
        let awaited = Awaited {
            services,
            edges: edge_services.start(&endpoints, store, cache, &vitals, &mut edges),
            metadata,
            revocations: Some(revocations).filter(|_| config.split.own_role().is_some()),
        };
        let (answers, until) = (vitals.clone().router(), inner.stop.clone());
        inner.spawn(serve::tcp(diagnostics_listener, Transport::Plaintext, answers, until));
        let reports = awaited.report(health, followed_store);
        edges.spawn(until_stopped(edges.stop.clone(), reports));
        supervise::run([edges, inner], stop, config.drain).await
    }
}

/// Starts what reads the store besides the services.
fn start_on_store(
    config: &Config,
    store: Option<&Arc<dyn Store>>,
    vitals: &Diagnostics,
    tier: &mut Tier,
) {
    subnet_import::start(config, store, vitals, tier);
    restored::start(config, store, vitals, tier);
}

/// Conditions for the readiness of a process.
struct Awaited {
    services: Services,
    edges: EdgeReadiness,
    metadata: Option<Arc<metadata::Index>>,
    /// Present if the process has nothing but the gateway or the builder.
    revocations: Option<Revocations>,
}

impl Awaited {
    /// Waits, and says that the process is ready. From then on, its health follows `store`.
    async fn report(self, health: Health, store: Option<Arc<dyn Store>>) {
        self.services.ready().await;
        self.edges.ready().await;
        if let Some(index) = self.metadata {
            index.ready().await;
        }
        if let Some(revocations) = self.revocations {
            revocations.ready().await;
        }
        health.set(Readiness::Ready).await;
        tracing::info!(target: "tinwright", "ready");
        if let Some(store) = store {
            health.follow(&*store).await;
        }
    }
}

/// Registers the metrics of certificates, and of the embedded store if the process has one.
fn register_metrics(
    config: &Config,
    certificates: &Certificates,
    has_store: bool,
    vitals: &Diagnostics,
) {
    vitals.register(|registry| CertificateMetrics::register(certificates.clone(), registry));
    if let (Storage::Sled, true) = (&config.store, has_store) {
        let directory = config.data.join("store");
        vitals.register(|registry| StoreSize::register(directory, registry));
    }
}

/// Returns the cache of images, if another process has these.
fn image_cache(config: &Config) -> Option<ImageCache> {
    config.images.cache.clone().filter(|_| !config.split.serves(Service::Image))
}

/// Starts the builder, if images are built here. It ends before the services that it calls.
fn start_builder(
    config: &Config,
    endpoints: &Endpoints,
    vitals: &Diagnostics,
    edges: &mut Tier,
) -> anyhow::Result<()> {
    let Images { builder: mut settings, builds, service, .. } = config.images.clone();
    let has_images = config.split.serves(Service::Image);
    let has_work = !has_images || service.content.is_some();
    if !builds || !config.split.serves(Service::Builder) || !has_work {
        return Ok(());
    }
    if !has_images || matches!(config.store, Storage::Etcd(_)) {
        settings.holder = format!("{}-{}", settings.holder, builder_name::of(&settings.scratch)?);
    }
    sandbox_state::start(vitals, edges);
    let channel = endpoints.channel(Service::Builder, Service::Image);
    edges.spawn(builder::run(channel, settings, edges.stop.clone()));
    Ok(())
}

/// Starts what follows the records of `services`: metrics, alarms, and the names of machines.
fn follow_records(
    services: &Services,
    names: &MachineNames,
    vitals: &Diagnostics,
    inner: &mut Tier,
) {
    services.start_followers(Followers {
        objects: &vitals.register(ObjectMetrics::new),
        names,
        overdue: &vitals.register(OverdueMetric::new),
        tier: inner,
    });
}

/// Follows a replaced key of the site, and renews certificates.
fn follow_keys(
    site: Arc<SiteAuthority>,
    store: Option<Arc<dyn Store>>,
    certificates: Certificates,
    edges: &mut Tier,
) {
    let rotation = KeyRotation::new(site, store);
    edges.spawn(rotation.run(certificates.clone(), edges.stop.clone()));
    edges.spawn(certificates.keep_renewed(edges.stop.clone()));
}

/// Returns `store` with metrics.
fn measured(store: Arc<dyn Store>, vitals: &Diagnostics) -> Arc<dyn Store> {
    vitals.register(|registry| Arc::new(MeasuredStore::new(store, registry, Clock::system())))
}

/// Serves `app` on the API's listeners, with TLS unless it is disabled.
fn serve_grpc(
    config: &Config,
    listeners: Vec<TcpListener>,
    certificates: &Certificates,
    app: impl serve::App,
    revocations: &Revocations,
    edges: &mut Tier,
) -> anyhow::Result<()> {
    let transport = match certificates.server.as_ref().filter(|_| config.tls) {
        Some(own) => Transport::Tls(Arc::new(own.server_config()?)),
        None => Transport::TrustedPlaintext,
    };
    let limits = api_limits::connections(open_files::limit());
    let authority = Some(certificates.site.clone());
    let limits = ConnectionLimits { revocations: revocations.clone(), authority, ..limits };
    for listener in listeners {
        let (transport, limits, until) = (transport.clone(), limits.clone(), edges.stop.clone());
        let (revocations, app) = (revocations.clone(), app.clone());
        edges.spawn(async move {
            revocations_known(&revocations, &until).await;
            serve::limited_tcp(listener, transport, limits, app, until).await
        });
    }
    Ok(())
}

/// Waits for the revoked certificates, for at most [`REVOCATIONS_TIMEOUT`].
async fn revocations_known(revocations: &Revocations, stop: &CancellationToken) {
    let known = tokio::time::timeout(REVOCATIONS_TIMEOUT, revocations.ready());
    if let Some(Err(_)) = stop.run_until_cancelled(known).await {
        tracing::warn!(target: "tinwright", "revoked certificates are not known yet; serving without");
    }
}

/// What `/readyz` says while the revocations are not followed. The process is ready nevertheless: what it knows stays refused, and a service
/// that restarts must not take all others with it.
const REVOCATIONS_CUT: &str = "revoked certificates are not followed: see \"feed cut\" in the log";

/// Follows the revoked certificates.
fn follow_revocations(
    config: &Config,
    endpoints: &Endpoints,
    vitals: &Diagnostics,
    edges: &mut Tier,
) -> Revocations {
    let revocations = Revocations::default();
    // A process with nothing but the gateway has the certificate of a door only, and so has a builder.
    let caller = config.split.own_role().unwrap_or(Service::Identity);
    let identity = endpoints.channel(caller, Service::Identity);
    let followed = revocations.clone();
    vitals.add_details(move || {
        followed.is_cut().then(|| REVOCATIONS_CUT.to_owned()).into_iter().collect()
    });
    let (feed, until) = (revocations.clone(), edges.stop.clone());
    edges.spawn(async move {
        feed.follow(identity, until).await;
        Ok(())
    });
    revocations
}

/// Does `work`, then waits for `stop`: a task that ends before would be reported as a failed service.
async fn until_stopped(
    stop: CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    stop.run_until_cancelled(work.boxed()).await;
    stop.cancelled().await;
    Ok(())
}

/// Opens the store of this process. An edge starts without a store that is not reachable: it serves machines from the feeds,
/// and records boots later.
async fn store_of(config: &Config, site: &Arc<SiteAuthority>) -> anyhow::Result<Arc<dyn Store>> {
    let unreachable = match open_store(config, site).await {
        Err(error) if !config.split.owns_records() && is_unreachable(&error) => error,
        outcome => return outcome,
    };
    tracing::warn!(
        target: "tinwright",
        error = AsRef::<dyn std::error::Error>::as_ref(&unreachable),
        "starting without the store"
    );
    let (config, site) = (config.clone(), site.clone());
    Ok(Arc::new(DeferredStore::new(move || {
        let (config, site) = (config.clone(), site.clone());
        async move { open_store(&config, &site).await }
    })))
}

/// True if the store may be reachable later.
fn is_unreachable(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(store::Error::is_retryable))
}

/// Opens the store that is set in `config`.
pub(crate) async fn open_store(
    config: &Config,
    site: &SiteAuthority,
) -> anyhow::Result<Arc<dyn Store>> {
    let store = open_engine(config).await?;
    site_identity::claim_store(&*store, site).await?;
    let store = sealing::sealed(store, site)?;
    let schema = store::schema::migrate(&store, &migrations::all()).await?;
    // Only etcd has other processes, which may be of a newer version.
    Ok(match config.store {
        Storage::Etcd(_) => Arc::new(FencedStore::new(store, schema)),
        Storage::Memory | Storage::Sled => store,
    })
}

/// Returns the error that another process uses the embedded store of `config`; none if nobody does.
fn in_use(config: &Config) -> Option<anyhow::Error> {
    let is_embedded = config.split.uses_store() && matches!(config.store, Storage::Sled);
    let holder = is_embedded.then(|| store_lock::holder(&config.data.join("store"))).flatten();
    let (pid, directory) = (holder?, config.data.display());
    Some(anyhow::anyhow!("a server is using {directory} (pid {pid}): stop it first"))
}

/// Opens the engine that is set in `config`, whatever is in it.
pub(crate) async fn open_engine(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match config.store.clone() {
        Storage::Memory => Arc::new(store::memory::MemoryStore::default()),
        Storage::Sled => {
            let path = config.data.join("store");
            let opened =
                tokio::task::spawn_blocking(move || store::sled::Sled::open(&path)).await?;
            let opening = || format!("opening the store in {}", config.data.display());
            let opened = opened.with_context(opening);
            Arc::new(opened.map_err(|error| in_use(config).unwrap_or(error))?)
        }
        Storage::Etcd(options) => {
            let opened = store::etcd::Etcd::connect(options).await;
            Arc::new(opened.context("opening the store in etcd")?)
        }
    })
}
