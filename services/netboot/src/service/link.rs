//! Network boot on one link: its sockets and servers. A client gets replies from the sockets of its link, with the link's
//! addresses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use dhcp::architecture::Loaders;
use dhcp::{Link, ListenPort};
use runtime::clock::Clock;
use runtime::serve::{self, ConnectionLimits, Transport};
use tokio::net::{TcpListener, UdpSocket};

use super::tftp_files::{LoaderTracker, TftpFiles};
use super::{Reports, Tasks};
use crate::allocation::Allocator;
use crate::bootscripts::BootScripts;
use crate::datagram::Socket;
use crate::dhcp_server::link_state::{LinkState, LoaderGrants};
use crate::dhcp_server::{self, View};
use crate::environments::Environments;
use crate::http::Http;
use crate::iso::Images;
use crate::machine_view::Index;
use crate::metrics::Metrics;
use crate::ra;
use crate::site::{Serving, Site};
use crate::syslog::{self, Lines};
use crate::tftp::{Directories, FileSource, FinishedRequest, Server, admission, server};
use crate::timeline::Timeline;
use crate::unknown_clients::UnknownClients;

/// Maximum number of connections to a listener of boot HTTP. A rack has one or two per machine when
/// all are switched on at once.
const MAX_CONNECTIONS: usize = 8192;
/// Maximum number of connections from one address.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 64;
/// Maximum number of connections from one IPv6 network of 64 bits. One machine may have many
/// addresses of its network.
const MAX_CONNECTIONS_PER_IPV6_NETWORK: usize = 4096;
/// The size of the longest request head.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A link with bound sockets.
#[derive(Debug)]
pub(super) struct LinkServer {
    pub(super) boots: Arc<BootScripts>,
    link_state: Arc<LinkState>,
    pub(super) sockets: Sockets,
}

/// State that all links share.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) index: Arc<Index>,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    /// The loaders that interfaces were given.
    pub(super) loader_grants: Arc<LoaderGrants>,
    pub(super) timeline: Timeline,
    pub(super) unknown: Arc<UnknownClients>,
    pub(super) allocator: Option<Arc<Allocator>>,
    pub(super) served: Served,
    pub(super) lines: Arc<Lines>,
}

impl SharedState {
    /// Opens the files of `site`.
    pub(super) fn new(site: &Site, clock: Clock) -> anyhow::Result<Self> {
        let (index, loader_grants, unknown, allocator, metrics) = Default::default();
        let timeline = Timeline::new(Metrics::clone(&metrics));
        let (served, lines) = (Served::open(site)?, Arc::new(Lines::new(clock.wall())));
        Ok(Self {
            index,
            metrics,
            clock,
            loader_grants,
            timeline,
            unknown,
            allocator,
            served,
            lines,
        })
    }
}

/// Open directories, which are served on every link.
#[derive(Clone, Debug)]
pub(super) struct Served {
    loaders: Directories,
    tftp: Directories,
    pub(super) images: Option<Arc<Images>>,
    pub(super) osie: Environments,
    files: Option<Directories>,
    platform_files: Option<Directories>,
}

impl Served {
    fn open(site: &Site) -> anyhow::Result<Self> {
        let tftp = site.loaders.iter().chain(&site.serving.tftp_assets);
        let images = site.serving.iso.as_ref().map(Images::open).transpose();
        let private = |path: &Path| {
            check_private(path, site)?;
            Directories::open([path]).context("setting boot.platform_files")
        };
        let files = site.files.as_ref().map(|path| Directories::open([path])).transpose();
        Ok(Self {
            loaders: Directories::open(&site.loaders).context(loaders_setting(site))?,
            tftp: Directories::open(tftp).context("setting boot.tftp_assets")?,
            images: images.context("setting boot.iso")?.map(Arc::new),
            osie: Environments::new(&site.osie),
            files: files.context("setting files")?,
            platform_files: site.serving.platform_files.as_deref().map(private).transpose()?,
        })
    }
}

/// The directory of loaders in Debian's package ipxe, the default.
const DEBIAN_LOADERS: &str = "/usr/lib/ipxe";

/// Returns the name of the setting of loaders for an error, with what may help.
fn loaders_setting(site: &Site) -> &'static str {
    let is_missing = |path: &PathBuf| path == Path::new(DEBIAN_LOADERS) && !path.exists();
    match site.loaders.iter().any(is_missing) {
        true => "setting loaders: install Debian's package ipxe, or set another directory",
        false => "setting loaders",
    }
}

/// Refuses a directory of private files that has files in common with a public one.
fn check_private(private: &Path, site: &Site) -> anyhow::Result<()> {
    let Serving { tftp_assets, iso, .. } = &site.serving;
    let iso = iso.as_ref().map(|iso| &iso.directory);
    let public = site.loaders.iter().chain([&site.osie]).chain(&site.files);
    let public = public.chain(tftp_assets).chain(iso);
    let real = |path: &Path| path.canonicalize().ok();
    let Some(own) = real(private) else { return Ok(()) };
    for other in public.filter_map(|path| real(path)) {
        anyhow::ensure!(
            !own.starts_with(&other) && !other.starts_with(&own),
            "the directory of private files {} overlaps with {}, which is public",
            own.display(),
            other.display()
        );
    }
    Ok(())
}

/// The bound sockets of a link.
#[derive(Debug)]
pub(super) struct Sockets {
    dhcp: Option<Socket>,
    boot_service: Option<Socket>,
    tftp: UdpSocket,
    pub(super) http: Vec<(TcpListener, Transport)>,
    pub(super) syslog: Option<UdpSocket>,
    advertisements: Option<socket2::Socket>,
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
    /// Binds the ports of the link of `boots`; its HTTP listens on `http`.
    pub(super) async fn bind(
        boots: BootScripts,
        http: TcpListener,
        grants: &Arc<LoaderGrants>,
    ) -> anyhow::Result<Self> {
        let site = &boots.site;
        let sockets = Sockets::bind(site, http).await?;
        let grants = site.dhcp.chain_ipxe.then(|| grants.clone());
        let link_state = Arc::new(LinkState::new(grants));
        Ok(Self { boots: Arc::new(boots), link_state, sockets })
    }

    /// Returns the DHCP values of the link.
    fn link(&self, served: &Served) -> anyhow::Result<Link> {
        let site = &self.boots.site;
        let link = site.dhcp.link.clone();
        let present = served.loaders.names().with_context(|| {
            let paths: Vec<_> = site.loaders.iter().map(|path| path.to_string_lossy()).collect();
            format!("setting loaders: listing the files in {}", paths.join(", "))
        })?;
        Ok(Link {
            id: site.address,
            base_url: site.base_url(),
            loaders: Loaders { present, ..link.loaders },
            log_server: site.log_server(),
            metadata_router: site.metadata_route.then_some(site.address),
            ..link
        })
    }

    /// Returns the state that DHCP requests are answered from.
    pub(super) fn view(&self, served: &Served) -> anyhow::Result<View> {
        let (scripts, link_state) = (self.boots.clone(), self.link_state.clone());
        Ok(View { scripts, link: Arc::new(self.link(served)?), link_state })
    }

    /// Starts the servers of the link as `tasks`.
    pub(super) fn serve(
        self,
        shared: &SharedState,
        reports: &Reports,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        let view = self.view(&shared.served)?;
        let Self { boots, link_state, sockets } = self;
        let stop = tasks.stop.clone();
        let SharedState { index, metrics, clock, allocator, lines, .. } = shared;
        let (index, metrics) = (index.clone(), metrics.clone());
        if let Some(socket) = sockets.syslog {
            let debug = boots.site.syslog.is_some_and(|syslog| syslog.debug);
            let (index, allocator, lines) = (index.clone(), allocator.clone(), lines.clone());
            let (metrics, clock) = (metrics.clone(), clock.clone());
            let server = syslog::server::Server { index, allocator, lines, metrics, debug, clock };
            tasks.set.spawn(server.run(socket, stop.clone()));
        }
        if let Some(socket) = sockets.advertisements {
            let (link_state, metrics) = (link_state.clone(), metrics.clone());
            let advertiser = ra::Server { link_state, metrics, clock: clock.clone() };
            tasks.set.spawn(advertiser.run(socket, stop.clone()));
        }
        let loaders = view.link.loaders.present.clone();
        let tracker = LoaderTracker { index, loaders, link_state };
        let signs = reports.firmware.clone();
        let dhcp = Arc::new(dhcp_server::Server::new(view, metrics, signs));
        for (socket, port) in
            [(sockets.dhcp, ListenPort::Dhcp), (sockets.boot_service, ListenPort::BootService)]
        {
            if let Some(socket) = socket {
                tasks.set.spawn(dhcp.clone().run(socket, port, stop.clone()));
            }
        }
        let tftp_files = serve_tftp(&boots, shared, tracker, sockets.tftp, tasks)?;
        serve_http(boots, tftp_files, shared, reports, sockets.http, tasks);
        Ok(())
    }
}

/// Starts the TFTP server on `socket`. Returns its files.
fn serve_tftp(
    boots: &Arc<BootScripts>,
    shared: &SharedState,
    tracker: LoaderTracker,
    socket: UdpSocket,
    tasks: &mut Tasks,
) -> anyhow::Result<Arc<dyn FileSource>> {
    let single_port = boots.site.serving.tftp_single_port;
    let mut settings = server::Settings { single_port, ..Default::default() };
    if !boots.site.rate_limits {
        settings.limits = admission::Limits::NONE;
    }
    let clock = settings.clock.clone();
    let (files, boots) = (shared.served.tftp.clone(), boots.clone());
    let files = TftpFiles { files, boots: boots.clone(), clock: clock.clone() };
    let files: Arc<dyn FileSource> = Arc::new(files);
    let metrics = shared.metrics.clone();
    let observer = Arc::new(move |request: FinishedRequest| {
        metrics.transfers.get_or_create(&[("result", request.result.label())]).inc();
        metrics.transferred_bytes.inc_by(request.acknowledged_bytes);
        tracker.record(&request, clock.monotonic());
        boots.record_transfer(&request, clock.wall());
    });
    let server = Server::new(socket, files.clone(), settings, observer)?;
    let stop = tasks.stop.clone();
    tasks.set.spawn(async move { Ok(server.run(stop).await?) });
    Ok(files)
}

/// Starts boot HTTP on `listeners`.
fn serve_http(
    boots: Arc<BootScripts>,
    tftp: Arc<dyn FileSource>,
    shared: &SharedState,
    reports: &Reports,
    listeners: Vec<(TcpListener, Transport)>,
    tasks: &mut Tasks,
) {
    let site = &boots.site;
    let if_limited = |max| if site.rate_limits { max } else { usize::MAX };
    let limits = ConnectionLimits {
        total: if_limited(MAX_CONNECTIONS),
        per_source: if_limited(MAX_CONNECTIONS_PER_ADDRESS),
        per_ipv6_network: if_limited(MAX_CONNECTIONS_PER_IPV6_NETWORK),
        exempt: site.serving.trusted_proxies.clone(),
        max_head_bytes: MAX_HEAD_BYTES,
        ..ConnectionLimits::default()
    };
    let Served { loaders, tftp: _, images, osie, files, platform_files } = shared.served.clone();
    let Reports { firmware: _, scripts, home, content } = reports.clone();
    let metrics = shared.metrics.clone();
    let http = Http {
        boots,
        loaders,
        osie,
        files,
        platform_files,
        tftp,
        images,
        content,
        home,
        scripts,
        metrics,
    };
    let service = http.into_service();
    for (listener, transport) in listeners {
        let (limits, service, stop) = (limits.clone(), service.clone(), tasks.stop.clone());
        tasks.set.spawn(serve::limited_tcp(listener, transport, limits, service, stop));
    }
}

/// Opens the socket for router advertisements. Machines boot without them, but later.
fn advertising(site: &Site) -> Option<socket2::Socket> {
    let opened = ra::open(&site.interface);
    let opened = opened.inspect_err(|error| {
        let error = runtime::cause(error);
        tracing::warn!(
            error,
            "no router advertisements, which need CAP_NET_RAW: iPXE waits 16 s longer at each boot"
        );
    });
    opened.ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn private_files_are_apart_from_all_public_ones() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in ["public/inside", "private/inside", "other"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::os::unix::fs::symlink(at("public"), at("link")).unwrap();
        let with = |private: &str, change: fn(&mut Site, PathBuf), public: &str| {
            let mut site = crate::bootscripts::tests::site();
            site.serving.platform_files = Some(at(private));
            change(&mut site, at(public));
            Served::open(&site).map(drop).map_err(|error| error.to_string())
        };
        let files: fn(&mut Site, PathBuf) = |site, path| site.files = Some(path);
        let changes: [fn(&mut Site, PathBuf); 5] = [
            files,
            |site, path| site.loaders.push(path),
            |site, path| site.osie = path,
            |site, path| site.serving.tftp_assets = Some(path),
            |site, path| site.serving.iso = Some(path.into()),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(with("private", change, "public"), Ok(()), "{number}");
            for (private, public) in [
                ("public", "public"),
                ("public/inside", "public"),
                ("private", "private/inside"),
                ("link", "public"),
            ] {
                let error = with(private, change, public).unwrap_err();
                assert!(error.contains("which is public"), "{number} {private} {public}: {error}");
            }
        }
    }

    #[test]
    fn a_directory_that_cannot_be_opened_is_named_with_its_setting() {
        type Set = fn(&mut Site, PathBuf);
        let root = tempfile::tempdir().unwrap();
        let changes: [(&str, Set); 5] = [
            ("loaders", |site, path| site.loaders.push(path)),
            ("files", |site, path| site.files = Some(path)),
            ("boot.tftp_assets", |site, path| site.serving.tftp_assets = Some(path)),
            ("boot.iso", |site, path| site.serving.iso = Some(path.into())),
            ("boot.platform_files", |site, path| site.serving.platform_files = Some(path)),
        ];
        let missing = root.path().join("missing");
        for (setting, change) in changes {
            let mut site = crate::bootscripts::tests::site();
            change(&mut site, missing.clone());
            let error = format!("{:#}", Served::open(&site).unwrap_err());
            let expected = format!(
                "setting {setting}: opening the directory {}: No such file or directory (os error 2)",
                missing.display()
            );
            assert_eq!(error, expected);
        }
    }
}
