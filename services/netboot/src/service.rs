//! Wiring of network boot: links, feeds and background tasks.

mod feeds;
mod link;
mod served;
mod tftp_files;

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use fleet::Observer;
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::clock::Clock;
use runtime::serve::Transport;
use store::{ScopedStore, Store};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::feeds::Peers;
use self::link::{LinkServer, SharedState};
use self::served::Served;
use crate::allocation::Allocator;
use crate::api::Api;
use crate::bootscripts::BootScripts;
use crate::bootscripts::custom::ScriptReport;
use crate::bootscripts::script_reports;
use crate::dhcp_server::link_state::LoaderGrants;
use crate::http::phone_home::PhoneHomeSink;
use crate::leases::{self, Leases};
use crate::machine_view::Index;
use crate::metrics::Metrics;
use crate::site::Site;
use crate::syslog::Lines;
use crate::timeline::records::BootStore;
use crate::timeline::{Queue, Recorder, Timeline};
use crate::unknown_clients::UnknownClients;

/// Boots that may wait to be reported to the workflow service.
const MAX_WAITING_BOOTS: usize = 256;

/// Running tasks. One that ends before the stop has failed.
type Tasks = JoinSet<anyhow::Result<()>>;

/// Receivers of reports by machines.
pub struct Reports {
    /// Receiver of the ids of machines that begin a new boot.
    pub firmware: mpsc::Sender<String>,
    /// Receiver of reports about scripts.
    pub scripts: mpsc::UnboundedSender<ScriptReport>,
    /// Receiver of phone-home calls.
    pub home: Arc<dyn PhoneHomeSink>,
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

/// Network boot on one link or more, with bound sockets. Machines, leases and boots are shared by all links.
#[derive(Debug)]
pub struct Netboot {
    first: LinkServer,
    others: Vec<LinkServer>,
    index: Arc<Index>,
    metrics: Metrics,
    /// Interfaces that were given a loader, on any link.
    chain: Arc<LoaderGrants>,
    /// Events of boots that wait to be merged.
    events: Arc<Queue>,
    unknown: Arc<UnknownClients>,
    allocator: Option<Arc<Allocator>>,
    served: Served,
    lines: Arc<Lines>,
}

impl Netboot {
    /// Binds the ports of `site`; its HTTP listens on `http`. The files of `site` are served on every link, and its subnets
    /// apply to all.
    pub async fn bind(site: Site, key: &SiteKey, http: TcpListener) -> anyhow::Result<Self> {
        let served = Served::open(&site)?;
        let (index, metrics) = (Arc::new(Index::default()), Metrics::default());
        let (timeline, events) = Timeline::new(metrics.clone());
        let boots =
            BootScripts::new(index.clone(), BootTokens::new(key)?, site).with_timeline(timeline);
        let chain = Arc::default();
        let first = LinkServer::bind(boots, http, &chain).await?;
        Ok(Self {
            first,
            others: Vec::new(),
            index,
            metrics,
            chain,
            events,
            unknown: Arc::default(),
            allocator: None,
            served,
            lines: Arc::new(Lines::new(SystemTime::now())),
        })
    }

    /// Binds the ports of another link with the settings `site`; its HTTP listens on `http`.
    pub async fn attach(&mut self, site: Site, http: TcpListener) -> anyhow::Result<()> {
        let boots = self.first.boots.for_link(site);
        self.others.push(LinkServer::bind(boots, http, &self.chain).await?);
        Ok(())
    }

    /// Also serves boot HTTP of the latest link on `listener`, with transport security `door`.
    pub fn listen_too(&mut self, listener: TcpListener, door: Transport) {
        self.others.last_mut().unwrap_or(&mut self.first).listen_too(listener, door);
    }

    /// What is known: for whoever waits for it to be ready.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// Returns the observers of the fleet: what netboot knows of the machines, and what it remembers of their boots.
    pub fn observers(&self) -> Vec<Arc<dyn Observer>> {
        vec![self.index.clone(), self.first.boots.clone()]
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Lends addresses in the site's subnets, keeping in `store` to whom.
    pub fn keep_leases(&mut self, store: Arc<dyn Store>) {
        let (leases, index, unknown) =
            (Leases::new(store, Clock::system()), self.index.clone(), self.unknown.clone());
        let subnets = self.first.boots.site().subnets.clone();
        let allocator = Arc::new(Allocator::new(subnets, leases, index, unknown));
        for link in std::iter::once(&mut self.first).chain(&mut self.others) {
            link.boots = Arc::new((*link.boots).clone().with_allocator(allocator.clone()));
        }
        self.allocator = Some(allocator);
    }

    /// True if it has addresses to lease.
    pub fn lends(&self) -> bool {
        self.first.boots.site().subnets.iter().any(|subnet| !subnet.is_empty())
    }

    /// What people may ask of leases and of unknown machines, where there are any; watches end at `stop`.
    pub fn lease_api(&self, stop: CancellationToken) -> Option<leases::Api> {
        let leases = self.allocator.as_ref()?.leases().clone();
        Some(leases::Api::new(leases, self.index.clone(), self.unknown.clone(), stop))
    }

    /// What people may ask of it, once it runs; `store` keeps what it records, and streams end at `stop`.
    pub fn api(&self, store: Arc<dyn Store>, stop: CancellationToken) -> anyhow::Result<Api> {
        let first = self.first.view(&self.served)?;
        let others = self.others.iter().map(|link| link.view(&self.served));
        let others = others.collect::<anyhow::Result<Vec<_>>>()?;
        let heard = self.first.hears_syslog().then(|| self.lines.clone());
        Ok(Api::new(first, others, boot_store(store), heard, stop))
    }

    /// Serves until `stop`, or until a socket fails; keeps its records in `store`.
    pub async fn run(
        self,
        peers: Peers,
        store: Arc<dyn Store>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = Tasks::new();
        let recorder = Recorder::new(self.events.clone(), boot_store(store), self.metrics.clone());
        let until = stop.clone();
        tasks.spawn(async move {
            recorder.run(until).await;
            Ok(())
        });
        let (firmware, signs) = mpsc::channel(MAX_WAITING_BOOTS);
        let (noting, until) = (feeds::note_boots(peers.workflow, signs), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(noting).await;
            Ok(())
        });
        let (scripts, reports) = mpsc::unbounded_channel();
        let clear = script_reports::ReportPeers {
            hardware: HardwareServiceClient::new(peers.hardware),
            instance: InstanceServiceClient::new(peers.instance.clone()),
            history: self.first.boots.history.clone(),
        };
        let clear = script_reports::run(clear, reports);
        let until = stop.clone();
        tasks.spawn(async move {
            until.run_until_cancelled(clear).await;
            Ok(())
        });
        let reports = Reports { firmware, scripts, home: Arc::new(peers.instance) };
        tasks.spawn(self.serve(reports, stop));
        all(tasks).await
    }

    /// Serves what is known, which somebody else keeps up to date, until `stop` or until a socket fails; `reports` take
    /// what machines tell.
    pub async fn serve(self, reports: Reports, stop: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = Tasks::new();
        let Self { first, others, index, metrics, allocator, served, lines, .. } = self;
        let (counted, known, until) = (metrics.clone(), index.clone(), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(feeds::update_metrics(&known, &counted)).await;
            Ok(())
        });
        if let Some(allocator) = allocator.clone() {
            tasks.spawn(allocator.leases().clone().run(stop.clone()));
            let (counted, until) = (metrics.clone(), stop.clone());
            tasks.spawn(async move {
                until.run_until_cancelled(allocator.report(counted, Clock::system())).await;
                Ok(())
            });
        }
        if let Some(images) = served.images.clone() {
            let until = stop.clone();
            tasks.spawn(async move {
                until.run_until_cancelled(images.warm()).await;
                Ok(())
            });
        }
        let common = SharedState { index, metrics, allocator, served, lines, reports };
        for link in std::iter::once(first).chain(others) {
            link.serve(&common, &mut tasks, &stop)?;
        }
        all(tasks).await
    }
}

/// Waits for all tasks, and fails as soon as one does.
async fn all(mut tasks: Tasks) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a part of netboot panicked")??;
    }
    Ok(())
}

/// Returns the boots in `store`.
fn boot_store(store: Arc<dyn Store>) -> BootStore {
    BootStore::new(ScopedStore::new(store, "netboot"))
}
