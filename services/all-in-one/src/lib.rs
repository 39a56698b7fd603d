//! Every service in one process, talking over in-process gRPC; and the program `tinwright`.
//!
//! - [`config`]: what an operator may say.
//! - [`Server`]: binds, opens, wires, runs, ends.
//! - [`maintenance`]: what is done to a store that nobody uses.

pub mod config;
pub mod maintenance;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use hardware::Machines;
use runtime::authority::Site;
use runtime::listen::Sockets;
use runtime::observe::Observe;
use runtime::supervise::{self, Tier};
use runtime::telemetry::Vitals;
use runtime::{access::Access, serve};
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::config::{Config, Engine};

/// A server whose sockets are bound and whose store is open, so that nothing but time can go wrong at its start.
#[derive(Debug)]
pub struct Server {
    config: Config,
    grpc: TcpListener,
    vitals: TcpListener,
    site: Site,
    store: Opened,
}

/// The store, open.
struct Opened(Arc<dyn Store>);

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl Server {
    /// Binds every port, then opens what the data directory holds, or makes it.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        let mut sockets = Sockets::from_env();
        let grpc = sockets.tcp("grpc", config.listen).await?;
        let vitals = sockets.tcp("metrics", config.metrics_listen).await?;
        let site = Site::open(&config.secrets()).context("opening the site's secrets")?;
        site.keep_admin().context("keeping the operator's certificate")?;
        let store = open_store(&config).await?;
        store::schema::settle(&*store).await?;
        Ok(Self { config, grpc, vitals, site, store: Opened(store) })
    }

    /// Where the API listens.
    pub fn grpc(&self) -> std::io::Result<SocketAddr> {
        self.grpc.local_addr()
    }

    /// Where metrics and health are.
    pub fn vitals(&self) -> std::io::Result<SocketAddr> {
        self.vitals.local_addr()
    }

    /// Runs every service until `stop`, or until one ends by itself, which is an error.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, grpc, vitals: metrics, site, store: Opened(store) } = self;
        let vitals = Vitals::default();
        let (mut edges, mut inner) = (Tier::default(), Tier::default());

        let hardware = hardware::Api::new(Machines::new(store), edges.stop.clone());
        inner.tasks.spawn(hardware.clone().run(inner.stop.clone()));

        let (reporter, health) = tonic_health::server::health_reporter();
        let mut routes = Routes::new(health);
        routes = routes.add_service(hardware.clone().into_service());
        let app = reflected(routes)?.layer(Access).layer(vitals.register(Observe::new));

        let tls = config.tls.then(|| site.server(&config.names())).transpose()?.map(Arc::new);
        edges.tasks.spawn(serve::tcp(grpc, tls, app, edges.stop.clone()));
        let (page, until) = (vitals.clone().router(), inner.stop.clone());
        inner.tasks.spawn(serve::tcp(metrics, None, page, until));

        edges.tasks.spawn(until_stopped(edges.stop.clone(), async move {
            hardware.ready().await;
            reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
            vitals.set_ready();
            tracing::info!("ready");
        }));
        supervise::run([edges, inner], stop, config.drain).await
    }
}

/// `routes` and their descriptors, for clients that ask what there is (both versions of the protocol).
fn reflected(routes: Routes) -> anyhow::Result<Router> {
    let about = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tinwright::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let routes = routes.add_service(about().build_v1()?).add_service(about().build_v1alpha()?);
    Ok(routes.into_axum_router())
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

/// Opens the engine that `config` names.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match &config.engine {
        Engine::Memory => Arc::new(store::memory::Memory::default()),
        Engine::Sled => {
            let path = config.data.join("store");
            let opened =
                tokio::task::spawn_blocking(move || store::sled::Sled::open(&path)).await?;
            Arc::new(
                opened
                    .with_context(|| format!("opening the store in {}", config.data.display()))?,
            )
        }
    })
}
