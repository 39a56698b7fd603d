//! Every service in one process, talking over in-process gRPC; and the program `tinwright`.
//!
//! - [`config`]: what an operator may say.
//! - [`Server`]: binds, opens, wires, runs, ends. `services` are those that own nouns, `edges` what machines see of them;
//!   `reach` is where each is asked, here or at a peer, `feed_cache` the records of those elsewhere, on disk.
//! - [`maintenance`]: what is done to a store that nobody uses. [`open_files`]: how many sockets there may be.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod config;
mod edges;
mod feed_cache;
pub mod maintenance;
pub mod open_files;
mod reach;
mod same_site;
mod services;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use fleet::FleetCache;
use runtime::authority::SiteAuthority;
use runtime::listen::Sockets;
use runtime::serve::{self, Transport};
use runtime::supervise::{self, Tier};
use runtime::telemetry::Diagnostics;
use store::Store;
use store::deferred::DeferredStore;
use tinwright::in_process;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Storage};
use crate::edges::{Edges, Metadata};
use crate::reach::Reach;
use crate::services::Services;

/// A server whose sockets are bound and whose store is open, so that nothing but time can go wrong at its start.
pub struct Server {
    config: Config,
    grpc: Vec<TcpListener>,
    vitals: TcpListener,
    edges: Edges,
    site: Arc<SiteAuthority>,
    /// None where no service keeps records.
    store: Option<Arc<dyn Store>>,
    /// Only where edges follow other processes.
    cache: Option<FleetCache>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds every port, then opens what the data directory holds, or makes it.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        let mut sockets = Sockets::from_env();
        let mut grpc = sockets.inherited("grpc")?;
        for address in &config.listen {
            grpc.push(Sockets::bind("grpc", *address).await?);
        }
        let vitals = sockets.tcp("metrics", config.metrics_listen).await?;
        let site = open_site(&config)?;
        let edges = Edges::bind(&config, &site).await?;
        let keeps = config.split.uses_store();
        let site = Arc::new(site);
        let store = if keeps { Some(store_of(&config, &site).await?) } else { None };
        let cache = feed_cache::open(&config, &site, edges.has_metadata()).await?;
        Ok(Self { config, grpc, vitals, edges, site, store, cache })
    }

    /// Where the API listens.
    pub fn grpc(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.grpc.iter().map(TcpListener::local_addr).collect()
    }

    /// Where metrics and health are.
    pub fn vitals(&self) -> std::io::Result<SocketAddr> {
        self.vitals.local_addr()
    }

    /// Runs every service until `stop`, or until one ends by itself, which is an error.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, grpc, vitals: page, edges: mut doors, site, store, cache } = self;
        let vitals = Diagnostics::default();
        let (mut edges, mut inner) = (Tier::default(), Tier::default());
        let (inside, pipes) = in_process::pair();

        let reach = Reach::new(&config, &site, &inside)?;
        let services = match &store {
            Some(store) => Services::new(&config, store, &site, &reach, &edges.stop)?,
            None => Services::default(),
        };
        let leases = doors.leases(store.as_ref(), &edges.stop);
        let boots = doors.boots(store.as_ref(), &edges.stop)?;
        let metadata = doors.metadata(&reach, &vitals);
        let (reporter, health) = tonic_health::server::health_reporter();
        let told = (boots, leases, metadata.as_ref().map(Metadata::api));
        let app = services.app(health, told, &vitals)?;
        inner.tasks.spawn(serve::in_process(pipes, app.clone(), inner.stop.clone()));
        services.start(&mut inner);

        if !grpc.is_empty() {
            let door = match config.tls {
                true => Transport::Tls(Arc::new(site.server(&config.names())?)),
                false => Transport::TrustedPlaintext,
            };
            for listener in grpc {
                let until = edges.stop.clone();
                edges.tasks.spawn(serve::tcp(listener, door.clone(), app.clone(), until));
            }
        }
        doors.follow_fleet(metadata.as_ref(), &reach, cache, &vitals, &mut edges);
        let told = metadata.map(|metadata| metadata.start(&mut edges)).transpose()?;
        let known = doors.start(&reach, store, &vitals, &mut edges);
        let (answers, until) = (vitals.clone().router(), inner.stop.clone());
        inner.tasks.spawn(serve::tcp(page, Transport::Plaintext, answers, until));

        edges.tasks.spawn(until_stopped(edges.stop.clone(), async move {
            services.ready().await;
            known.ready().await;
            if let Some(told) = told {
                told.ready().await;
            }
            reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
            vitals.set_ready();
            tracing::info!("ready");
        }));
        supervise::run([edges, inner], stop, config.drain).await
    }
}

/// Does `work`, then waits: a task that ends is taken for a service that failed.
async fn until_stopped(
    stop: CancellationToken,
    work: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    stop.run_until_cancelled(work).await;
    stop.cancelled().await;
    Ok(())
}

/// Opens the site's secrets. The first process makes them; edges are given a copy.
fn open_site(config: &Config) -> anyhow::Result<SiteAuthority> {
    let folder = config.secrets();
    let owns = config.split.owns_records();
    anyhow::ensure!(
        owns || folder.join("ca.pem").exists(),
        "{} has no ca.pem: copy site.key, service-key.pem, service.pem and ca.pem from a process that has them",
        folder.display()
    );
    let site = SiteAuthority::open(&folder).context("opening the site's secrets")?;
    if owns {
        site.ensure_admin_certificate().context("keeping the operator's certificate")?;
        site.ensure_document_key().context("keeping the key for identity documents")?;
        site.ensure_service_certificate(&config.names())
            .context("keeping the certificate of split-off processes")?;
    }
    Ok(site)
}

/// The store of this process. An edge starts without it where it is out of reach: machines are answered from what the feeds
/// told, and boots are recorded later.
async fn store_of(config: &Config, site: &Arc<SiteAuthority>) -> anyhow::Result<Arc<dyn Store>> {
    let away = match open_store(config, site).await {
        Err(error) if !config.split.owns_records() && is_away(&error) => error,
        outcome => return outcome,
    };
    tracing::warn!(
        error = AsRef::<dyn std::error::Error>::as_ref(&away),
        "starting without the store"
    );
    let (config, site) = (config.clone(), site.clone());
    Ok(Arc::new(DeferredStore::new(move || {
        let (config, site) = (config.clone(), site.clone());
        async move { open_store(&config, &site).await }
    })))
}

/// Whether the store may be there later.
fn is_away(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(store::Error::is_retryable))
}

/// Opens what keeps the records, as `config` says.
pub(crate) async fn open_store(
    config: &Config,
    site: &SiteAuthority,
) -> anyhow::Result<Arc<dyn Store>> {
    let store: Arc<dyn Store> = match config.store.clone() {
        Storage::Memory => Arc::new(store::memory::MemoryStore::default()),
        Storage::Sled => {
            let path = config.data.join("store");
            let opened =
                tokio::task::spawn_blocking(move || store::sled::Sled::open(&path)).await?;
            let opening = || format!("opening the store in {}", config.data.display());
            Arc::new(opened.with_context(opening)?)
        }
        Storage::Etcd(options) => {
            let opened = store::etcd::Etcd::connect(options).await;
            let store = opened.context("opening the store in etcd")?;
            same_site::settle(&store, site).await?;
            Arc::new(store)
        }
    };
    store::schema::check_or_create(&*store).await?;
    Ok(store)
}
