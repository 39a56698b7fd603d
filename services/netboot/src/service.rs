//! Wires network boot: links, servers, reports and background tasks.

mod link;
mod tftp_files;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fleet::Observer;
use range_cache::Cache;
use runtime::boot_token::BootTokens;
use runtime::neighbour::Neighbours;
use runtime::serve::Transport;
use runtime::site_keys::SiteKeys;
use runtime::{Channel, Clock};
use store::{ScopedStore, Store};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::workflow::v1::NoteBootRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::link::{LinkServer, SharedState};
use crate::allocation::Allocator;
use crate::api::Api;
use crate::bootscripts::BootScripts;
use crate::bootscripts::custom::ScriptReport;
use crate::bootscripts::script_reports::{self, ReportPeers};
use crate::environments::Environments;
use crate::http::images::ImageContent;
use crate::http::phone_home::PhoneHomeSink;
use crate::leases::{self, Leases};
use crate::machine_view::Index;
use crate::metrics::Metrics;
use crate::site::Site;
use crate::timeline::Recorder;
use crate::timeline::records::BootStore;
use crate::timeline::step_reports::{self, StepObserver};
use crate::unknown_clients;

/// New boots that may wait to be reported to the workflow service.
const MAX_WAITING_BOOTS: usize = 256;

/// The time between two updates of the metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// Running tasks, and the signal that stops them. A task that ends before the stop has failed.
struct Tasks {
    /// Tasks that end by themselves at the stop.
    set: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Tasks {
    /// Starts `work`, which is dropped at the stop.
    fn spawn_until_stop(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.set.spawn(async move {
            stop.run_until_cancelled(work).await;
            Ok(())
        });
    }

    /// Waits for all tasks, and fails as soon as one does.
    async fn join(mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.set.join_next().await {
            ended.context("a part of netboot panicked")??;
        }
        Ok(())
    }
}

/// The services that netboot reports to.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The hardware service, which removes one-shot scripts, and stores machines without a record.
    pub hardware: Channel,
    /// The instance service, which takes phone-home calls and the scripts that ran.
    pub instance: Channel,
    /// The workflow service, which takes new boots.
    pub workflow: Channel,
    /// The image service, for the files of images; none where the site has none.
    pub image: Option<Channel>,
    /// The cache of these files. None: the image service is near.
    pub image_cache: Option<ImageCache>,
    /// The address service. Addresses of its grants are not leased.
    pub address: Channel,
}

/// Settings of the cache of images.
#[derive(Clone, Debug)]
pub struct ImageCache {
    /// Its directory, which nothing else uses.
    pub directory: PathBuf,
    /// Maximum size in bytes.
    pub max_bytes: u64,
}

/// Receivers of reports from machines, and the source of images.
#[derive(Clone, Debug)]
pub struct Reports {
    /// Receives the id of a machine when its firmware begins a new boot.
    pub firmware: mpsc::Sender<String>,
    /// Receives reports about scripts.
    pub scripts: mpsc::UnboundedSender<ScriptReport>,
    /// Receives phone-home calls.
    pub home: Arc<dyn PhoneHomeSink>,
    /// The source of images.
    pub content: Option<ImageContent>,
}

/// Network boot on one or more links, with bound sockets.
#[derive(Debug)]
pub struct Netboot {
    /// Never empty. Every link has its settings. Subnets and files come from the first one.
    links: Vec<LinkServer>,
    shared: SharedState,
}

impl Netboot {
    /// Binds the ports of `site`. Its tokens are made with `keys`; its HTTP listens on `http`. The
    /// files and subnets of `site` apply to all links.
    pub async fn bind(
        site: Site,
        keys: impl Into<SiteKeys>,
        http: TcpListener,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let shared = SharedState::new(&site, clock)?;
        let mut boots = BootScripts::new(shared.index.clone(), BootTokens::new(keys)?, site);
        boots.timeline = shared.timeline.clone();
        let first = LinkServer::bind(boots, http, &shared.loader_grants).await?;
        Ok(Self { links: vec![first], shared })
    }

    /// Binds the ports of another link with the settings `site`; its HTTP listens on `http`.
    pub async fn attach(&mut self, site: Site, http: TcpListener) -> anyhow::Result<()> {
        let boots = self.boots().for_link(site);
        self.links.push(LinkServer::bind(boots, http, &self.shared.loader_grants).await?);
        Ok(())
    }

    /// Also serves boot HTTP of the latest link on `listener` with `transport`.
    pub fn add_http_listener(&mut self, listener: TcpListener, transport: Transport) {
        if let Some(latest) = self.links.last_mut() {
            latest.sockets.http.push((listener, transport));
        }
    }

    /// Returns the machines in memory.
    pub fn index(&self) -> Arc<Index> {
        self.shared.index.clone()
    }

    /// Returns the observers of the fleet: the machines in memory, and the state of their boots.
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        vec![self.index(), self.boots().clone()]
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Returns the in-memory environments.
    pub fn environments(&self) -> &Environments {
        &self.shared.served.osie
    }

    /// Returns the scripts of the first link.
    fn boots(&self) -> &Arc<BootScripts> {
        // There is a first link from `bind` on.
        &self.links[0].boots
    }

    /// Leases addresses of the site's subnets, and stores the leases in `store`.
    pub fn enable_leases(&mut self, store: Arc<dyn Store>) {
        let SharedState { index, unknown, .. } = &self.shared;
        let (leases, subnets) =
            (Leases::new(store, self.shared.clock.clone()), self.boots().site.subnets.clone());
        let allocator = Allocator::new(subnets, leases, index.clone(), unknown.clone());
        let allocator = Arc::new(allocator);
        for link in &mut self.links {
            Arc::make_mut(&mut link.boots).allocator = Some(allocator.clone());
        }
        self.shared.allocator = Some(allocator);
    }

    /// Checks by `neighbours` that the owners of addresses on our links are their machines.
    pub fn check_neighbours(&mut self, neighbours: Arc<dyn Neighbours>) {
        for link in &mut self.links {
            Arc::make_mut(&mut link.boots).neighbours = Some(neighbours.clone());
        }
    }

    /// True if the site has addresses to lease.
    pub fn has_pools(&self) -> bool {
        self.boots().site.subnets.iter().any(|subnet| !subnet.is_empty())
    }

    /// Returns the API of leases, if they are enabled. Its watches end at `stop`.
    pub fn lease_api(&self, stop: CancellationToken) -> Option<leases::Api> {
        let SharedState { allocator, index, .. } = &self.shared;
        let allocator = allocator.as_ref()?;
        let (leases, subnets) = (allocator.leases.clone(), allocator.subnets().into());
        Some(leases::Api { leases, subnets, index: index.clone(), stop })
    }

    /// Returns the API of network boot, which reads boots from `store`. Its streams end at `stop`.
    pub fn api(&self, store: Arc<dyn Store>, stop: CancellationToken) -> anyhow::Result<Api> {
        let views = self.links.iter().map(|link| link.view(&self.shared.served));
        let views = views.collect::<anyhow::Result<Vec<_>>>()?;
        let receives_syslog = self.links.first().is_some_and(|link| link.sockets.syslog.is_some());
        let lines = receives_syslog.then(|| self.shared.lines.clone());
        Ok(Api {
            views: views.into(),
            boots: boot_store(store),
            lines,
            stop,
            clock: self.shared.clock.clone(),
        })
    }

    /// Serves until `stop`, or until a socket fails. Stores boots in `store`, and reports to `peers`.
    pub async fn run(
        self,
        peers: Peers,
        store: Arc<dyn Store>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = Tasks { set: JoinSet::new(), stop: stop.clone() };
        let SharedState { timeline, clock, unknown, .. } = &self.shared;
        let mut recorder = Recorder::new(timeline.clone(), boot_store(store), clock.clone());
        let (observer, steps) = StepObserver::new(self.index());
        recorder.steps = Some(observer);
        tasks.spawn_until_stop(step_reports::run(peers.workflow.clone(), steps, clock.clone()));
        tasks.spawn_until_stop(unknown_clients::run(
            peers.hardware.clone(),
            unknown.clone(),
            self.index(),
            clock.clone(),
        ));
        let stopped = stop.clone();
        tasks.set.spawn(async move {
            recorder.run(stopped).await;
            Ok(())
        });
        if let Some(allocator) = self.shared.allocator.clone().filter(|_| self.has_pools()) {
            let (address, stop) = (peers.address, stop.clone());
            tasks.spawn_until_stop(async move { allocator.grants.follow(address, stop).await });
        }
        let (firmware, boot_signs) = mpsc::channel(MAX_WAITING_BOOTS);
        tasks.spawn_until_stop(note_boots(peers.workflow, boot_signs));
        let (scripts, script_reports) = mpsc::unbounded_channel();
        let report_peers = ReportPeers {
            hardware: HardwareServiceClient::new(peers.hardware),
            instance: InstanceServiceClient::new(peers.instance.clone()),
            history: self.boots().history.clone(),
        };
        tasks.spawn_until_stop(script_reports::run(report_peers, script_reports));
        let content = match peers.image {
            Some(channel) => {
                let cache = open_cache(peers.image_cache).await;
                if let Some(cache) = cache.clone() {
                    let metrics = self.metrics().clone();
                    tasks.spawn_until_stop(update_cache_metrics(cache, metrics));
                }
                Some(ImageContent { channel, cache })
            }
            None => None,
        };
        let reports = Reports { firmware, scripts, home: Arc::new(peers.instance), content };
        tasks.set.spawn(self.serve(reports, stop));
        tasks.join().await
    }

    /// Serves until `stop`, or until a socket fails. Only reads the machines in memory; reports of machines go to `reports`.
    pub async fn serve(self, reports: Reports, stop: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = Tasks { set: JoinSet::new(), stop: stop.clone() };
        let Self { links, shared } = self;
        let SharedState { index, metrics, clock, .. } = &shared;
        tasks.spawn_until_stop(update_metrics(index.clone(), metrics.clone(), clock.clone()));
        if let Some(allocator) = shared.allocator.clone() {
            tasks.set.spawn(allocator.leases.clone().run(stop));
            let (metrics, clock) = (metrics.clone(), clock.clone());
            tasks.spawn_until_stop(async move { allocator.report(metrics, clock).await });
        }
        if let Some(images) = shared.served.images.clone() {
            tasks.spawn_until_stop(async move { images.warm().await });
        }
        for link in links {
            link.serve(&shared, &reports, &mut tasks)?;
        }
        tasks.join().await
    }
}

/// Returns the boots in `store`.
fn boot_store(store: Arc<dyn Store>) -> BootStore {
    BootStore::new(ScopedStore::new(store, "netboot"))
}

/// Opens the cache with these settings. Without one, files come from the image service each time.
async fn open_cache(settings: Option<ImageCache>) -> Option<Cache> {
    let ImageCache { directory, max_bytes } = settings?;
    match Cache::open(&directory, max_bytes).await {
        Ok(cache) => Some(cache),
        Err(error) => {
            let directory = directory.display();
            tracing::warn!(%error, %directory, "no cache of images; requesting each file anew");
            None
        }
    }
}

/// Updates the metrics of `cache` once a second. Never resolves.
async fn update_cache_metrics(cache: Cache, metrics: Metrics) {
    let mut tick = tokio::time::interval(METRICS_INTERVAL);
    loop {
        tick.tick().await;
        metrics.image_cache(cache.usage());
    }
}

/// Reports new boots to the workflow service.
async fn note_boots(workflow: Channel, mut signs: mpsc::Receiver<String>) {
    let mut client = WorkflowServiceClient::new(workflow);
    while let Some(hardware_id) = signs.recv().await {
        let request = NoteBootRequest { hardware_id, ..NoteBootRequest::default() };
        if let Err(status) = client.note_boot(request).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not noted");
        }
    }
}

/// Updates the metrics of `index` once a second. Never resolves.
async fn update_metrics(index: Arc<Index>, metrics: Metrics, clock: Clock) {
    let (mut tick, mut live) = (tokio::time::interval(METRICS_INTERVAL), clock.monotonic());
    loop {
        tick.tick().await;
        let (now, disconnected) = (clock.monotonic(), index.disconnected_feeds());
        if disconnected.is_empty() {
            live = now;
        }
        metrics.feeds(
            index.read().machines().len(),
            &disconnected,
            now.saturating_duration_since(live),
        );
    }
}
