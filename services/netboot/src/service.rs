//! Netboot as a whole: sockets, feeds, and the loops over them.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use async_trait::async_trait;
use runtime::boot_token::Tokens;
use runtime::serve::{self, Door};
use runtime::{SiteKey, feed};
use store::Store;
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
use crate::copies::{Copies, Told};
use crate::datagram::Socket;
use crate::dhcp::architecture::Loaders;
use crate::dhcp::chain::Chain;
use crate::dhcp::{Link, Port, server};
use crate::http::Http;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::site::Site;
use crate::tftp::server::Verdict;
use crate::tftp::transfer::Outcome;
use crate::tftp::{self, Directories, admission::Limits, files::Refusal as NoFile, name::Name};

/// How many signs of new boots may wait to be told.
const SIGNS: usize = 256;

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
    dhcp: Option<Socket>,
    boot_service: Option<Socket>,
    tftp: UdpSocket,
    http: TcpListener,
    loaders: Directories,
    osie: Option<Directories>,
    files: Option<Directories>,
    copies: Option<Arc<Copies>>,
}

impl Netboot {
    /// Binds every port of `site`; its HTTP listens on `http`.
    pub async fn bind(site: Site, key: &SiteKey, http: TcpListener) -> anyhow::Result<Self> {
        let on = |port, wanted: bool| {
            let what = format!("UDP port {port} of {}", site.interface);
            let bind = || server::bind(&site.interface, port).with_context(|| what);
            (wanted && site.dhcp.is_on()).then(bind).transpose()
        };
        let dhcp = on(67, site.dhcp.port_67)?;
        let boot_service = on(4011, site.dhcp.port_4011)?;
        let tftp = UdpSocket::bind((site.address, 69)).await;
        let tftp = tftp.with_context(|| format!("UDP port 69 of {}", site.address))?;
        let loaders = Directories::open(&site.loaders).context("the directories of loaders")?;
        let osie = optional(&site.osie).context("the directory of the OSIE")?;
        let open = |path: &PathBuf| {
            let opened = Directories::open([path]);
            opened.with_context(|| format!("the directory of files {}", path.display()))
        };
        let files = site.files.as_ref().map(open).transpose()?;
        let index = Arc::new(Index::default());
        let boots = Arc::new(Boots::new(index.clone(), Tokens::new(key)?, site.clone()));
        let copies = None;
        Ok(Self {
            site,
            index,
            boots,
            dhcp,
            boot_service,
            tftp,
            http,
            loaders,
            osie,
            files,
            copies,
        })
    }

    /// Keeps `copies` of what it is told, and begins with them.
    pub fn keeping(self, copies: Copies) -> Self {
        Self { copies: Some(Arc::new(copies)), ..self }
    }

    /// What is known: for whoever waits for it to be ready.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// What people may ask of it, once it runs; `store` keeps what it records.
    pub fn api(&self, _store: Arc<dyn Store>, _stop: CancellationToken) -> anyhow::Result<Api> {
        Ok(Api::new(self.boots.clone(), self.link()?))
    }

    /// Serves until `stop`, or until a socket fails. Records in `store`, if there is one.
    pub async fn run(
        self,
        sources: Sources,
        _store: Option<Arc<dyn Store>>,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        if let Some(copies) = self.copies.clone() {
            copies.restore(&self.index).await.context("what was kept of the feeds")?;
            let until = stop.clone();
            tasks.spawn(async move {
                copies.run(until).await;
                Ok(())
            });
        }
        self.follow(&sources, &mut tasks, &stop);
        let (firmware, signs) = mpsc::channel(SIGNS);
        let (workflow, until) = (sources.workflow, stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(note_boots(workflow, signs)).await;
            Ok(())
        });
        tasks.spawn(self.serve(firmware, metrics, stop));
        all(tasks).await
    }

    /// Serves what is known, which somebody else keeps up to date, until `stop` or until a socket fails; tells `firmware`
    /// which machine shows itself in a new boot.
    pub async fn serve(
        self,
        firmware: mpsc::Sender<String>,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let link = self.link()?;
        let fetched = Fetched {
            index: self.index.clone(),
            loaders: link.loaders.present.clone(),
            chain: self.site.dhcp.chain_ipxe.then(Arc::default),
        };
        let chain = fetched.chain.clone();
        let (boots, counted) = (self.boots.clone(), metrics.clone());
        let dhcp = Arc::new(server::Server::new(boots, link, counted, firmware, chain));
        for (socket, port) in [(self.dhcp, Port::Dhcp), (self.boot_service, Port::BootService)] {
            if let Some(socket) = socket {
                tasks.spawn(dhcp.clone().run(socket, port, stop.clone()));
            }
        }
        let files = TftpFiles { loaders: self.loaders.clone(), boots: self.boots.clone() };
        let counted = metrics.clone();
        let observer = Arc::new(move |ended: tftp::server::Ended| {
            counted.transfer(ended.verdict.label(), ended.octets);
            fetched.note(&ended);
        });
        let limits = if self.site.rate_limits { Limits::default() } else { Limits::NONE };
        let settings = tftp::server::Settings { limits, ..Default::default() };
        let tftp = tftp::Server::new(self.tftp, Arc::new(files), settings, observer)?;
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
        all(tasks).await
    }

    fn link(&self) -> anyhow::Result<Link> {
        let link = self.site.dhcp.link.clone();
        let present = self.loaders.names().context("listing the loaders")?;
        Ok(Link {
            id: self.site.address,
            base_url: self.site.base_url(),
            loaders: Loaders { present, ..link.loaders },
            metadata_router: self.site.metadata_route.then_some(self.site.address),
            ..link
        })
    }

    /// Keeps the index and the copies fed.
    fn follow(
        &self,
        sources: &Sources,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) {
        let view = View::Full.into();
        let all = Told { index: self.index.clone(), copies: self.copies.clone() };
        let (client, told, until) =
            (HardwareServiceClient::new(sources.hardware.clone()), all.clone(), stop.clone());
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) =
                    (client.clone(), WatchHardwareRequest { view, ..Default::default() });
                async move { Ok(client.watch_hardware(request).await?.into_inner()) }
            };
            feed::follow("hardware", open, |news| told.hardware(news), until).await;
            Ok(())
        });
        let (client, told, until) =
            (InstanceServiceClient::new(sources.instance.clone()), all.clone(), stop.clone());
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) =
                    (client.clone(), WatchInstancesRequest { view, ..Default::default() });
                async move { Ok(client.watch_instances(request).await?.into_inner()) }
            };
            feed::follow("instance", open, |news| told.instance(news), until).await;
            Ok(())
        });
        let (client, told, until) =
            (WorkflowServiceClient::new(sources.workflow.clone()), all.clone(), stop.clone());
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) = (client.clone(), WatchWorkflowsRequest::default());
                async move { Ok(client.watch_workflows(request).await?.into_inner()) }
            };
            feed::follow("workflow", open, |news| told.workflow(news), until).await;
            Ok(())
        });
    }
}

/// Waits for every part, and fails as soon as one does.
async fn all(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a part of netboot panicked")??;
    }
    Ok(())
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

/// What a finished transfer tells DHCP: who has a loader of ours and needs none again.
struct Fetched {
    index: Arc<Index>,
    loaders: BTreeSet<String>,
    chain: Option<Arc<Mutex<Chain>>>,
}

impl Fetched {
    fn note(&self, ended: &tftp::server::Ended) {
        let Some(chain) = &self.chain else { return };
        let complete = ended.verdict == Verdict::Served(Outcome::Complete);
        let Ok(Name::File { mac, path }) = Name::try_from(ended.name.as_bytes()) else { return };
        if !complete || !self.loaders.contains(&path) {
            return;
        }
        // Without a record of the address, the name may tell; a false one only makes a script of a loader.
        let known = self.index.by_address((*ended.client.ip()).into());
        let Some(mac) = known.map(|known| known.mac).or(mac) else { return };
        chain.lock().unwrap_or_else(PoisonError::into_inner).fetched(mac, Instant::now());
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
        let now = std::time::SystemTime::now();
        match self.boots.script(Some(*mac), client.into(), now) {
            Ok(served) => Ok(bytes::Bytes::from(served.text).into()),
            Err(Refusal::Nothing(_)) => Err(NoFile::NotFound),
            Err(Refusal::NotYours(_)) => Err(NoFile::NotAllowed),
            Err(Refusal::Later(_) | Refusal::Broken(_)) => Err(NoFile::Later),
        }
    }
}
