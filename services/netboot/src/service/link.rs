//! Network boot on one link: its sockets and servers. A client gets replies from the sockets of its link, with the addresses of
//! that link.

use std::sync::Arc;

use anyhow::Context as _;
use dhcp::architecture::Loaders;
use dhcp::{Link, ListenPort};
use runtime::clock::Clock;
use runtime::serve::{self, ConnectionLimits, Transport};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use super::served::Served;
use super::tftp_files::{LoaderTracker, TftpFiles};
use super::{Reports, Tasks};
use crate::allocation::Allocator;
use crate::bootscripts::BootScripts;
use crate::datagram::Socket;
use crate::dhcp_server::link_state::{LinkState, LoaderGrants};
use crate::dhcp_server::{self, View};
use crate::http::Http;
use crate::machine_view::Index;
use crate::metrics::Metrics;
use crate::ra;
use crate::site::Site;
use crate::syslog::{self, Lines};
use crate::tftp::{FileSource, FinishedRequest, Server, admission, server};

/// Connections that one source may have.
const MAX_CONNECTIONS: usize = 64;
/// Octets of the longest request head.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A link with bound sockets.
#[derive(Debug)]
pub(super) struct LinkServer {
    pub(super) boots: Arc<BootScripts>,
    link_state: Arc<LinkState>,
    sockets: Sockets,
}

/// State that all links share.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) index: Arc<Index>,
    pub(super) metrics: Metrics,
    pub(super) allocator: Option<Arc<Allocator>>,
    pub(super) served: Served,
    pub(super) lines: Arc<Lines>,
    pub(super) reports: Reports,
}

#[derive(Debug)]
struct Sockets {
    dhcp: Option<Socket>,
    boot_service: Option<Socket>,
    tftp: UdpSocket,
    http: Vec<(TcpListener, Transport)>,
    syslog: Option<UdpSocket>,
    advertisements: Option<ra::server::Socket>,
}

impl Sockets {
    async fn bind(site: &Site, http: TcpListener) -> anyhow::Result<Self> {
        let on = |port, wanted: bool| {
            let what = format!("UDP port {port} of {}", site.interface);
            let bind = || dhcp_server::bind(&site.interface, port).with_context(|| what);
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
            http: vec![(http, Transport::Plaintext)],
            syslog,
            advertisements: site.ra_assist.then(|| advertising(site)).flatten(),
        })
    }
}

impl LinkServer {
    /// Binds the ports of the link that `boots` is for; its HTTP listens on `http`. `chain` is shared by all links.
    pub(super) async fn bind(
        boots: BootScripts,
        http: TcpListener,
        chain: &Arc<LoaderGrants>,
    ) -> anyhow::Result<Self> {
        let site = boots.site();
        let sockets = Sockets::bind(site, http).await?;
        let grants = site.dhcp.chain_ipxe.then(|| chain.clone());
        let link_state = Arc::new(LinkState::new(grants));
        Ok(Self { boots: Arc::new(boots), link_state, sockets })
    }

    /// Also serves boot HTTP on `listener`, with transport security `door`.
    pub(super) fn listen_too(&mut self, listener: TcpListener, door: Transport) {
        self.sockets.http.push((listener, door));
    }

    /// True if syslog is received here.
    pub(super) fn hears_syslog(&self) -> bool {
        self.sockets.syslog.is_some()
    }

    /// Returns the DHCP values of the link.
    fn link(&self, served: &Served) -> anyhow::Result<Link> {
        let site = self.boots.site();
        let link = site.dhcp.link.clone();
        let present = served.loaders.names().context("listing the loaders")?;
        Ok(Link {
            id: site.address,
            base_url: site.base_url(),
            loaders: Loaders { present, ..link.loaders },
            log_server: site.log_server(),
            metadata_router: site.metadata_route.then_some(site.address),
            ..link
        })
    }

    /// The state that DHCP requests are answered from.
    pub(super) fn view(&self, served: &Served) -> anyhow::Result<View> {
        let (scripts, link_state) = (self.boots.clone(), self.link_state.clone());
        Ok(View { scripts, link: Arc::new(self.link(served)?), link_state })
    }

    /// Starts the servers of the link, which run until `stop`.
    pub(super) fn serve(
        self,
        common: &SharedState,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let view = self.view(&common.served)?;
        let Self { boots, link_state, sockets } = self;
        if let Some(socket) = sockets.syslog {
            let debug = boots.site().syslog.is_some_and(|syslog| syslog.debug);
            let (index, allocator) = (common.index.clone(), common.allocator.clone());
            let (lines, metrics) = (common.lines.clone(), common.metrics.clone());
            let receiver = syslog::server::Server { index, allocator, lines, metrics, debug };
            tasks.spawn(receiver.run(socket, stop.clone()));
        }
        if let Some(socket) = sockets.advertisements {
            let (link_state, metrics) = (link_state.clone(), common.metrics.clone());
            let advertiser = ra::server::Server { link_state, metrics, clock: Clock::system() };
            tasks.spawn(advertiser.run(socket, stop.clone()));
        }
        let loaders = view.link.loaders.present.clone();
        let tracker = LoaderTracker {
            index: common.index.clone(),
            loaders,
            link_state,
            clock: Clock::system(),
        };
        let (metrics, signs) = (common.metrics.clone(), common.reports.firmware.clone());
        let dhcp = Arc::new(dhcp_server::Server::new(view, metrics, signs));
        for (socket, port) in
            [(sockets.dhcp, ListenPort::Dhcp), (sockets.boot_service, ListenPort::BootService)]
        {
            if let Some(socket) = socket {
                tasks.spawn(dhcp.clone().run(socket, port, stop.clone()));
            }
        }
        let tftp_files = serve_tftp(&boots, common, tracker, sockets.tftp, tasks, stop)?;
        serve_http(http(boots, tftp_files, common), sockets.http, tasks, stop);
        Ok(())
    }
}

/// Starts the TFTP server on `socket`. Returns its files.
fn serve_tftp(
    boots: &Arc<BootScripts>,
    common: &SharedState,
    tracker: LoaderTracker,
    socket: UdpSocket,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> anyhow::Result<Arc<dyn FileSource>> {
    let single_port = boots.site().serving.tftp_single_port;
    let mut settings = server::Settings { single_port, ..Default::default() };
    if !boots.site().rate_limits {
        settings.limits = admission::Limits::NONE;
    }
    let clock = settings.clock.clone();
    let files: Arc<dyn FileSource> = Arc::new(TftpFiles {
        files: common.served.tftp.clone(),
        boots: boots.clone(),
        clock: clock.clone(),
    });
    let (metrics, timelines) = (common.metrics.clone(), boots.clone());
    let observer = Arc::new(move |request: FinishedRequest| {
        metrics.transfer(request.result.label(), request.acknowledged_bytes);
        tracker.record(&request);
        timelines.record_transfer(&request, clock.wall());
    });
    let server = Server::new(socket, files.clone(), settings, observer)?;
    let until = stop.clone();
    tasks.spawn(async move { Ok(server.run(until).await?) });
    Ok(files)
}

fn http(boots: Arc<BootScripts>, tftp: Arc<dyn FileSource>, common: &SharedState) -> Http {
    let Served { loaders, tftp: _, images, osie, files } = common.served.clone();
    let Reports { firmware: _, scripts, home } = &common.reports;
    let (scripts, home, metrics) = (scripts.clone(), home.clone(), common.metrics.clone());
    Http { boots, loaders, osie, files, tftp, images, home, scripts, metrics }
}

/// Starts boot HTTP on `listeners`.
fn serve_http(
    http: Http,
    listeners: Vec<(TcpListener, Transport)>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) {
    let site = http.boots.site();
    let of_one = if site.rate_limits { MAX_CONNECTIONS } else { usize::MAX };
    let bounds = ConnectionLimits {
        per_address: of_one,
        exempt: site.serving.trusted_proxies.clone(),
        max_head_bytes: MAX_HEAD_BYTES,
        ..ConnectionLimits::default()
    };
    let front = http.into_service();
    for (listener, door) in listeners {
        let (bounds, front, until) = (bounds.clone(), front.clone(), stop.clone());
        tasks.spawn(serve::limited_tcp(listener, door, bounds, front, until));
    }
}

/// Opens the socket for router advertisements. Without one machines boot, only later.
fn advertising(site: &Site) -> Option<ra::server::Socket> {
    let opened = ra::server::Socket::open(&site.interface);
    opened
        .inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, "no router advertisements: iPXE waits 16 s longer at each boot");
        })
        .ok()
}
