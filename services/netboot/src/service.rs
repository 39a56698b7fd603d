//! Netboot as a whole: sockets, feeds, and the loops over them.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use async_trait::async_trait;
use runtime::boot_token::Tokens;
use runtime::serve::{self, Door};
use runtime::{SiteKey, feed};
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

use crate::boots::{Boots, Refusal};
use crate::datagram::Socket;
use crate::dhcp::architecture::Loaders;
use crate::dhcp::{Link, Port, server};
use crate::http::Http;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::site::Site;
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
    dhcp: Socket,
    boot_service: Socket,
    tftp: UdpSocket,
    http: TcpListener,
    loaders: Directories,
    osie: Option<Directories>,
    files: Option<Directories>,
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
        let loaders = Directories::open(&site.loaders).context("the directories of loaders")?;
        let osie = optional(&site.osie).context("the directory of the OSIE")?;
        let open = |path: &PathBuf| {
            let opened = Directories::open([path]);
            opened.with_context(|| format!("the directory of files {}", path.display()))
        };
        let files = site.files.as_ref().map(open).transpose()?;
        let index = Arc::new(Index::default());
        let boots = Arc::new(Boots::new(index.clone(), Tokens::new(key)?, site.clone()));
        Ok(Self { site, index, boots, dhcp, boot_service, tftp, http, loaders, osie, files })
    }

    /// What is known: for whoever waits for it to be ready.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// Serves until `stop`, or until a socket fails.
    pub async fn run(
        self,
        sources: Sources,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        self.follow(&sources, &mut tasks, &stop);
        let (firmware, signs) = mpsc::channel(SIGNS);
        let (workflow, until) = (sources.workflow.clone(), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(note_boots(workflow, signs)).await;
            Ok(())
        });
        let dhcp = Arc::new(server::Server {
            boots: self.boots.clone(),
            link: self.link()?,
            metrics: metrics.clone(),
            firmware,
            declined: Mutex::new(HashMap::new()),
        });
        tasks.spawn(dhcp.clone().run(self.dhcp, Port::Dhcp, stop.clone()));
        tasks.spawn(dhcp.run(self.boot_service, Port::BootService, stop.clone()));
        let files = TftpFiles { loaders: self.loaders.clone(), boots: self.boots.clone() };
        let counted = metrics.clone();
        let observer = Arc::new(move |ended: tftp::server::Ended| {
            counted.transfer(ended.verdict.label(), ended.octets);
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
        let (client, index, until) = (
            InstanceServiceClient::new(sources.instance.clone()),
            self.index.clone(),
            stop.clone(),
        );
        tasks.spawn(async move {
            let open = || {
                let (mut client, request) =
                    (client.clone(), WatchInstancesRequest { view, ..Default::default() });
                async move { Ok(client.watch_instances(request).await?.into_inner()) }
            };
            feed::follow("instance", open, |news| index.instance(news), until).await;
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
        let now = std::time::SystemTime::now();
        match self.boots.script(Some(*mac), client.into(), now) {
            Ok(served) => Ok(bytes::Bytes::from(served.text).into()),
            Err(Refusal::Nothing(_)) => Err(NoFile::NotFound),
            Err(Refusal::NotYours(_)) => Err(NoFile::NotAllowed),
            Err(Refusal::Later(_) | Refusal::Broken(_)) => Err(NoFile::Later),
        }
    }
}
