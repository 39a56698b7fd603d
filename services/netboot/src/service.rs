//! Netboot as a whole: sockets, feeds, and the loops over them.

mod by_tftp;
mod feeds;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use runtime::SiteKey;
use runtime::boot_token::Tokens;
use runtime::serve::{self, Bounds, Door};
use store::{Handle, Store};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::by_tftp::Fetched;
pub use self::feeds::Sources;
use crate::api::Api;
use crate::boots::Boots;
use crate::boots::clearing::{self, Started};
use crate::copies::{Copies, Told};
use crate::datagram::Socket;
use crate::dhcp::architecture::Loaders;
use crate::dhcp::{Link, Port, server};
use crate::http::Http;
use crate::http::home::Home;
use crate::index::Index;
use crate::iso::Images;
use crate::leases::{self, Leases};
use crate::lending::Lending;
use crate::metrics::Metrics;
use crate::ra::{self, Booting};
use crate::site::Site;
use crate::syslog::{self, Lines};
use crate::tftp::{self, Directories, admission};
use crate::timeline::records::Kept;
use crate::timeline::{Event, Recorder, Timeline};
use crate::unknown::Machines;

/// How many connections one source may have (netboot specification, H12).
const CONNECTIONS: usize = 64;
/// How many octets a request's head may have.
const HEAD: usize = 16 * 1024;
/// How many signs of new boots may wait to be told.
const SIGNS: usize = 256;

/// What runs; any that ends before it is told to has failed.
type Tasks = JoinSet<anyhow::Result<()>>;

/// Where goes what machines tell.
pub struct Reports {
    /// Told which machine shows itself in a new boot.
    pub firmware: mpsc::Sender<String>,
    /// Told of one-time scripts that were started.
    pub started: mpsc::UnboundedSender<Started>,
    /// Where calls home go.
    pub home: Arc<dyn Home>,
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

/// Netboot on one interface, its sockets bound.
#[derive(Debug)]
pub struct Netboot {
    site: Site,
    index: Arc<Index>,
    boots: Arc<Boots>,
    metrics: Metrics,
    events: mpsc::Receiver<Event>,
    copies: Option<Arc<Copies>>,
    unknown: Arc<Machines>,
    lending: Option<Arc<Lending>>,
    sockets: Sockets,
    served: Served,
    lines: Option<Arc<Lines>>,
}

/// The files it serves.
#[derive(Debug)]
struct Served {
    loaders: Directories,
    by_tftp: Directories,
    images: Option<Arc<Images>>,
    osie: Option<Directories>,
    files: Option<Directories>,
}

impl Served {
    fn open(site: &Site) -> anyhow::Result<Self> {
        let by_tftp = site.loaders.iter().chain(&site.serving.tftp_assets);
        let images = site.serving.iso.as_ref().map(Images::open).transpose();
        let files = |path: &PathBuf| {
            let opened = Directories::open([path]);
            opened.with_context(|| format!("the directory of files {}", path.display()))
        };
        Ok(Self {
            loaders: Directories::open(&site.loaders).context("the directories of loaders")?,
            by_tftp: Directories::open(by_tftp).context("the directory of TFTP's files")?,
            images: images.context("the directory of images")?.map(Arc::new),
            osie: optional(&site.osie).context("the directory of the OSIE")?,
            files: site.files.as_ref().map(files).transpose()?,
        })
    }
}

#[derive(Debug)]
struct Sockets {
    dhcp: Option<Socket>,
    boot_service: Option<Socket>,
    tftp: UdpSocket,
    http: Vec<(TcpListener, Door)>,
    syslog: Option<UdpSocket>,
    advertisements: Option<ra::server::Socket>,
}

impl Sockets {
    async fn bind(site: &Site, http: TcpListener) -> anyhow::Result<Self> {
        let on = |port, wanted: bool| {
            let what = format!("UDP port {port} of {}", site.interface);
            let bind = || server::bind(&site.interface, port).with_context(|| what);
            (wanted && site.dhcp.is_on()).then(bind).transpose()
        };
        let udp = async |address, port: u16| {
            let bound = UdpSocket::bind((address, port)).await;
            bound.with_context(|| format!("UDP port {port} of {address}"))
        };
        let syslog = match site.log_server() {
            Some(address) => Some(udp(address, 514).await?),
            None => None,
        };
        Ok(Self {
            dhcp: on(67, site.dhcp.port_67)?,
            boot_service: on(4011, site.dhcp.port_4011)?,
            tftp: udp(site.address, 69).await?,
            http: vec![(http, Door::Open)],
            syslog,
            advertisements: site.ra_assist.then(|| advertising(site)).flatten(),
        })
    }
}

impl Netboot {
    /// Binds every port of `site`; its HTTP listens on `http`.
    pub async fn bind(site: Site, key: &SiteKey, http: TcpListener) -> anyhow::Result<Self> {
        let sockets = Sockets::bind(&site, http).await?;
        let served = Served::open(&site)?;
        let (index, metrics) = (Arc::new(Index::default()), Metrics::default());
        let (timeline, events) = Timeline::new(metrics.clone());
        let boots = Boots::new(index.clone(), Tokens::new(key)?, site.clone()).telling(timeline);
        let lines = sockets.syslog.as_ref().map(|_| Arc::new(Lines::new(SystemTime::now())));
        Ok(Self {
            site,
            index,
            boots: Arc::new(boots),
            metrics,
            events,
            copies: None,
            unknown: Arc::default(),
            lending: None,
            sockets,
            served,
            lines,
        })
    }

    /// Serves what its HTTP serves to those who come through `door` to `listener`, too.
    pub fn listen_too(&mut self, listener: TcpListener, door: Door) {
        self.sockets.http.push((listener, door));
    }

    /// Keeps `copies` of what it is told, and begins with them.
    pub fn keeping(self, copies: Copies) -> Self {
        Self { copies: Some(Arc::new(copies)), ..self }
    }

    /// What is known: for whoever waits for it to be ready.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Lends addresses in the site's subnets, keeping in `store` to whom.
    pub fn keep_leases(&mut self, store: Arc<dyn Store>) {
        let (leases, index, unknown) =
            (Leases::new(store), self.index.clone(), self.unknown.clone());
        let lending = Lending::new(self.site.subnets.clone(), leases, index, unknown);
        let lending = Arc::new(lending);
        self.boots.lend(lending.clone());
        self.lending = Some(lending);
    }

    /// Whether it has addresses to lend.
    pub fn lends(&self) -> bool {
        self.site.subnets.iter().any(|subnet| !subnet.is_empty())
    }

    /// What people may ask of leases and of unknown machines, where there are any.
    pub fn lease_api(&self) -> Option<leases::Api> {
        let leases = self.lending.as_ref()?.leases().clone();
        Some(leases::Api::new(leases, self.index.clone(), self.unknown.clone()))
    }

    /// What people may ask of it, once it runs; `store` keeps what it records, and streams end at `stop`.
    pub fn api(&self, store: Arc<dyn Store>, stop: CancellationToken) -> anyhow::Result<Api> {
        Ok(Api::new(self.boots.clone(), self.link()?, kept(store), self.lines.clone(), stop))
    }

    /// Serves until `stop`, or until a socket fails; keeps its records in `store`.
    pub async fn run(
        mut self,
        sources: Sources,
        store: Arc<dyn Store>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = Tasks::new();
        if let Some(copies) = self.copies.clone() {
            copies.restore(&self.index).await.context("what was kept of the feeds")?;
            let until = stop.clone();
            tasks.spawn(async move {
                copies.run(until).await;
                Ok(())
            });
        }
        let (_, none) = mpsc::channel(1);
        let events = std::mem::replace(&mut self.events, none);
        let recorder = Recorder::new(events, kept(store), self.metrics.clone());
        let until = stop.clone();
        tasks.spawn(async move {
            recorder.run(until).await;
            Ok(())
        });
        let told = Told { index: self.index.clone(), copies: self.copies.clone() };
        feeds::follow(&sources, &told, self.boots.clone(), &mut tasks, &stop);
        let (firmware, signs) = mpsc::channel(SIGNS);
        let (noting, until) = (feeds::note_boots(sources.workflow, signs), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(noting).await;
            Ok(())
        });
        let (started, used) = mpsc::unbounded_channel();
        let clear = clearing::run(sources.hardware, self.boots.once.clone(), used);
        let until = stop.clone();
        tasks.spawn(async move {
            until.run_until_cancelled(clear).await;
            Ok(())
        });
        let reports = Reports { firmware, started, home: Arc::new(sources.instance) };
        tasks.spawn(self.serve(reports, stop));
        all(tasks).await
    }

    /// Serves what is known, which somebody else keeps up to date, until `stop` or until a socket fails; `reports` take
    /// what machines tell.
    pub async fn serve(self, reports: Reports, stop: CancellationToken) -> anyhow::Result<()> {
        let Reports { firmware, started, home } = reports;
        let (mut tasks, link) = (Tasks::new(), self.link()?);
        let Self { site, index, boots, metrics, lending, sockets, served, lines, .. } = self;
        let (counted, known, until) = (metrics.clone(), index.clone(), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(feeds::count(&known, &counted)).await;
            Ok(())
        });
        let (receiving, booting) = (sockets.syslog.zip(lines), Booting::default());
        if let Some((socket, lines)) = receiving {
            let debug = site.syslog.is_some_and(|syslog| syslog.debug);
            let (index, metrics) = (index.clone(), metrics.clone());
            let receiver = syslog::server::Server { index, lines, metrics, debug };
            tasks.spawn(receiver.run(socket, stop.clone()));
        }
        if let Some(socket) = sockets.advertisements {
            let (booting, metrics) = (booting.clone(), metrics.clone());
            let advertiser = ra::server::Server { booting, metrics };
            tasks.spawn(advertiser.run(socket, stop.clone()));
        }
        let chain = site.dhcp.chain_ipxe.then(Arc::default);
        let fetched = Fetched { index, loaders: link.loaders.present.clone(), chain };
        let (known, counted, chain) = (boots.clone(), metrics.clone(), fetched.chain.clone());
        let dhcp = server::Server::new(known, link, counted, firmware, chain).telling(booting);
        let dhcp = Arc::new(dhcp.with_lending(lending.clone()));
        if let Some(lending) = lending {
            tasks.spawn(lending.leases().clone().run(stop.clone()));
            let (counted, until) = (metrics.clone(), stop.clone());
            tasks.spawn(async move {
                until.run_until_cancelled(lending.tell(counted)).await;
                Ok(())
            });
        }
        for (socket, port) in
            [(sockets.dhcp, Port::Dhcp), (sockets.boot_service, Port::BootService)]
        {
            if let Some(socket) = socket {
                tasks.spawn(dhcp.clone().run(socket, port, stop.clone()));
            }
        }
        let Served { loaders, by_tftp, images, osie, files } = served;
        let by_tftp: Arc<dyn tftp::Files> =
            Arc::new(by_tftp::Files { files: by_tftp, boots: boots.clone() });
        let (counted, noting) = (metrics.clone(), boots.clone());
        let observer = Arc::new(move |ended: tftp::server::Ended| {
            counted.transfer(ended.verdict.label(), ended.octets);
            fetched.note(&ended);
            noting.note_transfer(&ended, SystemTime::now());
        });
        let mut settings = site.serving.tftp();
        if !site.rate_limits {
            settings.limits = admission::Limits::NONE;
        }
        let tftp = tftp::Server::new(sockets.tftp, by_tftp.clone(), settings, observer)?;
        let until = stop.clone();
        tasks.spawn(async move { Ok(tftp.run(until).await?) });
        let tftp = by_tftp;
        let http = Http { boots, loaders, osie, files, tftp, images, home, started, metrics };
        serve_http(http, sockets.http, &mut tasks, &stop);
        all(tasks).await
    }

    fn link(&self) -> anyhow::Result<Link> {
        let link = self.site.dhcp.link.clone();
        let present = self.served.loaders.names().context("listing the loaders")?;
        Ok(Link {
            id: self.site.address,
            base_url: self.site.base_url(),
            loaders: Loaders { present, ..link.loaders },
            log_server: self.site.log_server(),
            metadata_router: self.site.metadata_route.then_some(self.site.address),
            ..link
        })
    }
}

/// Starts answering on `listeners`, and looking through the images.
fn serve_http(
    http: Http,
    listeners: Vec<(TcpListener, Door)>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) {
    if let Some(images) = http.images.clone() {
        let until = stop.clone();
        tasks.spawn(async move {
            until.run_until_cancelled(images.warm()).await;
            Ok(())
        });
    }
    let site = http.boots.site();
    let of_one = if site.rate_limits { CONNECTIONS } else { usize::MAX };
    let bounds = Bounds { of_one, exempt: site.serving.trusted_proxies.clone(), head: HEAD };
    let router = http.router();
    for (listener, door) in listeners {
        let (bounds, router, until) = (bounds.clone(), router.clone(), stop.clone());
        tasks.spawn(serve::bounded(listener, door, bounds, router, until));
    }
}

/// Waits for every part, and fails as soon as one does.
async fn all(mut tasks: Tasks) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a part of netboot panicked")??;
    }
    Ok(())
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

/// The directory at `path`, if it is there: the environment may be built later, before the next start.
fn optional(path: &std::path::Path) -> io::Result<Option<Directories>> {
    if path.is_dir() { Directories::open([path]).map(Some) } else { Ok(None) }
}
