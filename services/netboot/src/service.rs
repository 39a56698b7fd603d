//! Netboot as a whole: sockets, feeds, and the loops over them.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use async_trait::async_trait;
use runtime::boot_token::Tokens;
use runtime::serve::{self, Door};
use runtime::{SiteKey, feed};
use store::{Handle, Store};
use tinwright::common::v1::View;
use tinwright::hardware::v1::{
    WatchHardwareRequest, hardware_service_client::HardwareServiceClient,
};
use tinwright::instance::v1::{
    WatchInstancesRequest, instance_service_client::InstanceServiceClient,
};
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tinwright::workflow::v1::{NoteBootRequest, WatchWorkflowsRequest};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::api::Api;
use crate::boots::{Boots, Refusal};
use crate::datagram::Socket;
use crate::dhcp::architecture::Loaders;
use crate::dhcp::{Link, Port, server};
use crate::http::Http;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::ra;
use crate::site::Site;
use crate::syslog::{self, Lines};
use crate::tftp::{self, Directories, files::Refusal as NoFile, name::Name};
use crate::timeline::records::Kept;
use crate::timeline::{Event, Recorder, Timeline};

/// How many signs of new boots may wait to be told.
const SIGNS: usize = 256;
/// How often what is known is counted.
const COUNTING: Duration = Duration::from_secs(1);

/// The services netboot is told by.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Of hardware.
    pub hardware: Channel,
    /// Of instances.
    pub instance: Channel,
    /// Of workflows; told of new boots, too.
    pub workflow: Channel,
}

/// Netboot on one interface, its sockets bound.
#[derive(Debug)]
pub struct Netboot {
    site: Site,
    index: Arc<Index>,
    boots: Arc<Boots>,
    dhcp: Socket,
    boot_service: Socket,
    tftp: UdpSocket,
    http: TcpListener,
    loaders: Directories,
    osie: Option<Directories>,
    files: Option<Directories>,
    metrics: Metrics,
    events: mpsc::Receiver<Event>,
    syslog: Option<(UdpSocket, Arc<Lines>)>,
    ra: Option<ra::server::Socket>,
}

impl Netboot {
    /// Binds every port of `site`; its HTTP listens on `http`.
    pub async fn bind(site: Site, key: &SiteKey, http: TcpListener) -> anyhow::Result<Self> {
        let on = |port| {
            let what = format!("UDP port {port} of {}", site.interface);
            server::bind(&site.interface, port).with_context(|| what)
        };
        let (dhcp, boot_service) = (on(67)?, on(4011)?);
        let tftp = UdpSocket::bind((site.address, 69)).await;
        let tftp = tftp.with_context(|| format!("UDP port 69 of {}", site.address))?;
        let syslog = match site.log_server() {
            Some(address) => {
                let socket = UdpSocket::bind((address, 514)).await;
                let socket = socket.with_context(|| format!("UDP port 514 of {address}"))?;
                Some((socket, Arc::new(Lines::new(SystemTime::now()))))
            }
            None => None,
        };
        let loaders = Directories::open(&site.loaders).context("the directories of loaders")?;
        let osie = optional(&site.osie).context("the directory of the OSIE")?;
        let open = |path: &PathBuf| {
            let opened = Directories::open([path]);
            opened.with_context(|| format!("the directory of files {}", path.display()))
        };
        let files = site.files.as_ref().map(open).transpose()?;
        let index = Arc::new(Index::default());
        let metrics = Metrics::default();
        let (timeline, events) = Timeline::new(metrics.clone());
        let boots = Boots::new(index.clone(), Tokens::new(key)?, site.clone()).telling(timeline);
        let boots = Arc::new(boots);
        Ok(Self {
            index,
            boots,
            dhcp,
            boot_service,
            tftp,
            http,
            loaders,
            osie,
            files,
            metrics,
            events,
            ra: site.ra_assist.then(|| advertising(&site)).flatten(),
            syslog,
            site,
        })
    }

    /// What is known: for whoever waits for it to be ready.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What people may ask of it, once it runs; `store` keeps what it records, and streams end at `stop`.
    pub fn api(&self, store: Arc<dyn Store>, stop: CancellationToken) -> anyhow::Result<Api> {
        let lines = self.syslog.as_ref().map(|(_, lines)| lines.clone());
        Ok(Api::new(self.boots.clone(), self.link()?, kept(store), lines, stop))
    }

    /// Serves until `stop`, or until a socket fails; keeps its records in `store`.
    pub async fn run(
        mut self,
        sources: Sources,
        store: Arc<dyn Store>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let metrics = self.metrics.clone();
        let (_, none) = mpsc::channel(1);
        let events = std::mem::replace(&mut self.events, none);
        let (recorder, until) = (Recorder::new(events, kept(store), metrics.clone()), stop.clone());
        tasks.spawn(async move {
            recorder.run(until).await;
            Ok(())
        });
        let (index, counted, until) = (self.index.clone(), metrics.clone(), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(count(&index, &counted)).await;
            Ok(())
        });
        self.follow(&sources, &mut tasks, &stop);
        let (firmware, signs) = mpsc::channel(SIGNS);
        let (workflow, until) = (sources.workflow.clone(), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(note_boots(workflow, signs)).await;
            Ok(())
        });
        if let Some((socket, lines)) = self.syslog.take() {
            let (index, metrics) = (self.index.clone(), metrics.clone());
            let debug = self.site.syslog.is_some_and(|syslog| syslog.debug);
            let receiver = syslog::server::Server { index, lines, metrics, debug };
            tasks.spawn(receiver.run(socket, stop.clone()));
        }
        let booting = ra::Booting::default();
        if let Some(socket) = self.ra.take() {
            let advertiser =
                ra::server::Server { booting: booting.clone(), metrics: metrics.clone() };
            tasks.spawn(advertiser.run(socket, stop.clone()));
        }
        let dhcp = Arc::new(server::Server {
            boots: self.boots.clone(),
            link: self.link()?,
            metrics: metrics.clone(),
            firmware,
            booting: booting.clone(),
            declined: Mutex::new(HashMap::new()),
        });
        tasks.spawn(dhcp.clone().run(self.dhcp, Port::Dhcp, stop.clone()));
        tasks.spawn(dhcp.run(self.boot_service, Port::BootService, stop.clone()));
        let files = TftpFiles { loaders: self.loaders.clone(), boots: self.boots.clone() };
        let (counted, boots) = (metrics.clone(), self.boots.clone());
        let observer = Arc::new(move |ended: tftp::server::Ended| {
            counted.transfer(ended.verdict.label(), ended.octets);
            boots.note_transfer(&ended, SystemTime::now());
        });
        let tftp = tftp::Server::new(self.tftp, Arc::new(files), Default::default(), observer)?;
        let until = stop.clone();
        tasks.spawn(async move { Ok(tftp.run(until).await?) });
        let http = Http {
            osie: self.osie,
            files: self.files,
            boots: self.boots,
            loaders: self.loaders,
            metrics,
        };
        tasks.spawn(serve::tcp(self.http, Door::Open, http.router(), stop));
        while let Some(ended) = tasks.join_next().await {
            ended.context("a part of netboot panicked")??;
        }
        Ok(())
    }

    fn link(&self) -> anyhow::Result<Link> {
        let present = self.loaders.names().context("listing the loaders")?;
        Ok(Link {
            mode: self.site.mode,
            loaders: Loaders { present, ..Loaders::default() },
            log_server: self.site.log_server(),
            metadata_router: self.site.metadata_route.then_some(self.site.address),
            ..Link::new(self.site.address, self.site.base_url())
        })
    }

    /// Keeps the index fed.
    fn follow(
        &self,
        sources: &Sources,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) {
        let view = View::Full.into();
        let (client, index, until) = (
            HardwareServiceClient::new(sources.hardware.clone()),
            self.index.clone(),
            stop.clone(),
        );
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) =
                    (client.clone(), WatchHardwareRequest { view, ..Default::default() });
                async move { Ok(client.watch_hardware(request).await?.into_inner()) }
            };
            feed::follow("hardware", open, |news| index.hardware(news), until).await;
            Ok(())
        });
        let (client, boots, until) = (
            InstanceServiceClient::new(sources.instance.clone()),
            self.boots.clone(),
            stop.clone(),
        );
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) =
                    (client.clone(), WatchInstancesRequest { view, ..Default::default() });
                async move { Ok(client.watch_instances(request).await?.into_inner()) }
            };
            let tell = |news| {
                boots.note_home(&news, SystemTime::now());
                boots.index().instance(news);
            };
            feed::follow("instance", open, tell, until).await;
            Ok(())
        });
        let (client, index, until) = (
            WorkflowServiceClient::new(sources.workflow.clone()),
            self.index.clone(),
            stop.clone(),
        );
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) = (client.clone(), WatchWorkflowsRequest::default());
                async move { Ok(client.watch_workflows(request).await?.into_inner()) }
            };
            feed::follow("workflow", open, |news| index.workflow(news), until).await;
            Ok(())
        });
    }
}

/// A socket for router advertisements. Machines boot without one, too, only later.
fn advertising(site: &Site) -> Option<ra::server::Socket> {
    let opened = ra::server::Socket::open(&site.interface);
    opened
        .inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, "no router advertisements: iPXE waits 16 s longer at each boot");
        })
        .ok()
}

/// The boots that are kept in `store`.
fn kept(store: Arc<dyn Store>) -> Kept {
    Kept::new(Handle::new(store, "netboot"))
}

/// Counts what `index` knows, for ever.
async fn count(index: &Index, metrics: &Metrics) {
    let (mut tick, mut live) = (tokio::time::interval(COUNTING), Instant::now());
    loop {
        let now = tick.tick().await.into_std();
        if index.cut().is_empty() {
            live = now;
        }
        metrics.known(index, now.saturating_duration_since(live));
    }
}

/// The directory at `path`, if it is there: the environment may be built later, before the next start.
fn optional(path: &std::path::Path) -> io::Result<Option<Directories>> {
    if path.is_dir() { Directories::open([path]).map(Some) } else { Ok(None) }
}

/// Tells the workflow service which machines show themselves in a new boot.
async fn note_boots(workflow: Channel, mut signs: mpsc::Receiver<String>) {
    let mut client = WorkflowServiceClient::new(workflow);
    while let Some(hardware_id) = signs.recv().await {
        if let Err(status) = client.note_boot(NoteBootRequest { hardware_id }).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not noted");
        }
    }
}

/// Loaders, and scripts for iPXE builds without HTTP.
#[derive(Debug)]
struct TftpFiles {
    loaders: Directories,
    boots: Arc<Boots>,
}

#[async_trait]
impl tftp::Files for TftpFiles {
    async fn open(&self, name: &Name, client: Ipv4Addr) -> Result<tftp::files::File, NoFile> {
        let Name::Script(mac) = name else { return self.loaders.open(name, client).await };
        let now = SystemTime::now();
        match self.boots.script(Some(*mac), client.into(), now) {
            Ok(served) => Ok(bytes::Bytes::from(served.text).into()),
            Err(Refusal::Nothing(_)) => Err(NoFile::NotFound),
            Err(Refusal::NotYours(_)) => Err(NoFile::NotAllowed),
            Err(Refusal::Later(_) | Refusal::Broken(_)) => Err(NoFile::Later),
        }
    }
}
