//! The configuration: the options as an operator gives them, and the checked values that the program uses.
//!
//! A flag takes precedence over its environment variable, that over the file, and that over the default. An unknown key in
//! the file is an error, because a misspelt key must not silently become a default.
//!
//! - [`command_line`]: merges all sources. [`Options`]: the options that are not in a section of the file.
//! - `boot_http`, `dhcp`, `etcd`, `gateway`, `images`, `links`, `metadata`, `pools`: check the options of these subjects.
//! - `help`: groups of options in the help. `split`: the services of this process, and the addresses of the others.

mod boot_http;
pub mod command_line;
mod dhcp;
mod etcd;
mod gateway;
mod help;
mod images;
mod links;
mod metadata;
mod pools;
mod split;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use netboot::site::Syslog;
use runtime::neighbour::SourceCheck;
use runtime::telemetry::Format;
use serde::Deserialize;
use tonic::transport::Uri;
use workflow::lifecycle::WorkerTimeouts;

pub use self::command_line::{CommandLine, StoreOptions, full_help};
pub use self::gateway::{Gateway, GatewayTransport};
pub use self::images::Images;
pub use self::links::NetbootLink;
pub use self::metadata::{Metadata, Paths, Source};
pub use self::split::{Peer, Service, Split};

/// The port of the API, unless another one is configured.
const API_PORT: u16 = 42113;

/// The options outside of sections. [`command_line`] derives flags and variables from the names of the fields.
#[derive(Clone, Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Read this configuration file (TOML) [default: /etc/tinwright/tinwright.toml, if it exists]; its keys are the names of
    /// these flags, with underscores
    #[arg(value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Store records and the site's secrets in this directory
    #[arg(value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Serve the gRPC API at these addresses, besides inherited sockets named grpc [default: 127.0.0.1:42113, and port 42113 of
    /// the addresses that machines boot from]
    #[arg(value_name = "ADDRESS:PORT", value_delimiter = ',')]
    pub listen: Option<Vec<SocketAddr>>,
    /// Serve metrics and health at this address
    #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464")]
    pub metrics_listen: SocketAddr,
    /// Add these names and addresses of this server to its certificate, besides those it listens on
    #[arg(value_name = "NAME", value_delimiter = ',')]
    #[serde(default)]
    pub advertise: Vec<String>,
    /// Name these servers of the API to machines, besides the one of this process or of --peers; their workers call the next
    /// one if a server does not answer; at most 4
    #[arg(value_name = "HOST:PORT", value_delimiter = ',')]
    #[serde(default)]
    pub machines_api: Vec<String>,
    /// Serve gRPC without TLS, which is allowed on loopback only; every client is admin
    pub insecure: bool,
    /// Serve only these services [default: all that are configured]; the others are called at --peers
    #[arg(value_name = "SERVICE", value_delimiter = ',')]
    pub only: Option<Vec<Service>>,
    /// Call services of other processes at SERVICE=URL, or at URL for all that are not named (except netboot, which
    /// metadata and address call for leases, and metadata, which the gateway calls). Of several URLs for one service the first that answers is called. Besides its own data directory each process needs a copy of the secrets (site.key, ca.pem,
    /// service.pem, service-key.pem; ca-key.pem unless it serves netboot and metadata only). In a less trusted place, netboot and
    /// metadata have the secrets of an edge instead: tinwright identity issue --role edge; gateway has those of a door (--role door), and
    /// builder those of a builder (--role builder)
    #[arg(value_name = "[SERVICE=]URL", value_delimiter = ',')]
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// Store records with this engine; etcd is for replicas, each of which needs a copy of the first one's directory of
    /// secrets (secrets in the data directory) before its first start
    #[arg(value_name = "ENGINE", default_value = "sled")]
    pub store: Engine,
    /// Connect to the etcd cluster at these client addresses, all http or all https
    #[arg(value_name = "URL", value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
    pub etcd_endpoints: Vec<String>,
    /// Prefix every key in etcd with this text
    #[arg(value_name = "PREFIX", default_value = "/tinwright/")]
    pub etcd_prefix: String,
    /// Trust the authorities in this file (PEM certificates) for https to etcd
    #[arg(value_name = "FILE")]
    pub etcd_ca: Option<PathBuf>,
    /// Present this certificate (PEM) to etcd
    #[arg(value_name = "FILE")]
    pub etcd_certificate: Option<PathBuf>,
    /// Use this private key (PEM) of the certificate for etcd
    #[arg(value_name = "FILE")]
    pub etcd_key: Option<PathBuf>,
    /// Log in to etcd as this user
    #[arg(value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// Read the password of the etcd user from this file
    #[arg(value_name = "FILE")]
    pub etcd_password_file: Option<PathBuf>,
    /// Send the etcd password without TLS to other hosts, where anybody on the network can read it
    pub etcd_insecure: bool,
    /// Serve DHCP, TFTP and boot HTTP on this interface, to which machines are attached
    #[arg(value_name = "INTERFACE")]
    pub netboot_interface: Option<String>,
    /// Use this own address on that interface [default: its first IPv4 address]
    #[arg(value_name = "ADDRESS")]
    pub netboot_address: Option<Ipv4Addr>,
    /// Serve boot HTTP on this port of that address
    #[arg(value_name = "PORT", default_value = "7080")]
    pub netboot_http_port: u16,
    /// Load our build of iPXE before the script if an interface has iPXE as its firmware
    pub netboot_chain_ipxe: bool,
    /// Boot scripts and files.
    #[arg(skip)]
    pub boot: boot_http::BootSection,
    /// DHCP.
    #[arg(skip)]
    pub dhcp: dhcp::DhcpSection,
    /// Images.
    #[arg(skip)]
    pub images: images::ImagesSection,
    /// Several interfaces with machines, in place of `netboot_interface`; in the file only.
    #[arg(skip)]
    pub links: Option<Vec<links::LinkOptions>>,
    /// Networks whose addresses are leased; in the file only.
    #[arg(skip)]
    #[serde(default)]
    pub subnets: Vec<pools::SubnetOptions>,
    /// Serve the builds of iPXE in these directories
    #[arg(value_name = "DIR", value_delimiter = ',', default_value = "/usr/lib/ipxe")]
    pub loaders: Vec<PathBuf>,
    /// Serve the output of `tinwright osie build` in this directory [default: osie in the data directory]
    #[arg(value_name = "DIR")]
    pub osie: Option<PathBuf>,
    /// Serve the files in this directory, such as images, to everybody by boot HTTP below /files
    #[arg(value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Use these consoles in the in-memory environment, such as ttyS1,115200; it writes to the last one
    #[arg(value_name = "CONSOLE")]
    #[serde(default)]
    pub console: Vec<String>,
    /// Receive syslog of machines on UDP port 514 of the interface's address, and announce it to them
    #[arg(default_value = "true")]
    pub syslog: bool,
    /// Store syslog lines of severity debug too
    pub syslog_debug: bool,
    /// Save booting machines the wait for an IPv6 router; needs CAP_NET_RAW
    #[arg(default_value = "true")]
    pub ra_assist: bool,
    /// Serve metadata at these addresses [default: none]
    #[arg(value_name = "ADDRESS:PORT", value_delimiter = ',')]
    #[serde(default)]
    pub metadata_listen: Vec<SocketAddr>,
    /// Add 169.254.169.254 (and fd00:ec2::254 if it has IPv6) to this interface, and serve metadata there on port 80
    #[arg(value_name = "INTERFACE")]
    pub metadata_link_local: Option<String>,
    /// Identify callers of the metadata service like this, if the policy of the machine does not set it
    #[arg(value_name = "CHECK", default_value = "on-link")]
    pub metadata_source_check: Source,
    /// Serve Hegel's gRPC for machines at these addresses without TLS, usually on port 42115 [default: none]
    #[arg(value_name = "ADDRESS:PORT", value_delimiter = ',')]
    #[serde(default)]
    pub metadata_grpc_listen: Vec<SocketAddr>,
    /// Add paths to the metadata service: a JSON object, in the file a section, of paths and jq filters over the hardware,
    /// such as {"/tags": ".metadata.instance.tags[]"}
    #[arg(value_name = "JSON")]
    pub metadata_custom_endpoints: Option<Paths>,
    /// Trust these proxies of the metadata service, as ADDRESS/BITS, to name the caller
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub metadata_trusted_proxies: Vec<String>,
    /// Withhold user data and keys from forwarded requests
    #[arg(default_value = "true")]
    pub metadata_refuse_forwarded: bool,
    /// Accept only these host names in requests for metadata, against DNS rebinding [default: any]
    #[arg(value_name = "HOST", value_delimiter = ',')]
    #[serde(default)]
    pub metadata_allowed_hosts: Vec<String>,
    /// Serve the gateway (REST at /api/v1, and other doors) at these addresses, besides inherited sockets named gateway; none to
    /// serve no gateway
    #[arg(value_name = "ADDRESS:PORT", value_delimiter = ',', default_value = "127.0.0.1:8080")]
    pub gateway_listen: Vec<String>,
    /// Present this certificate (PEM chain) to the gateway's clients [default: one of the site's authority]
    #[arg(value_name = "FILE")]
    pub gateway_certificate: Option<PathBuf>,
    /// Use this private key (PEM) of the gateway's certificate
    #[arg(value_name = "FILE")]
    pub gateway_key: Option<PathBuf>,
    /// Serve the gateway without TLS, which is allowed on loopback only, such as behind a proxy on this host
    pub gateway_plaintext: bool,
    /// Trust these proxies of the gateway, as ADDRESS/BITS, to name the client's address
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub gateway_trusted_proxies: Vec<String>,
    /// Answer the listings of locations and models of IAL to clients with credentials only
    pub gateway_ial_catalogue_private: bool,
    /// Switch off the rate limits of machines and of the gateway, for benchmarks in which ten machines send the requests of ten thousand
    #[arg(hide = true)]
    pub no_rate_limits: bool,
    /// Allow BMCs to be called without TLS
    pub insecure_bmcs: bool,
    /// Let open requests take this many seconds when the server stops; at most 600
    #[arg(value_name = "SECONDS", default_value = "30")]
    pub drain_seconds: u64,
    /// Write log lines in this format
    #[arg(value_name = "FORMAT", default_value = "human")]
    pub log_format: LogFormat,
    /// Write the log lines that pass this filter, such as info,store=debug. The levels debug and trace include a library only if it is named: debug,h2=debug
    #[arg(value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// The storage engine, as the operator names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// In the data directory.
    Sled,
    /// In memory: every record is lost at the end. For trials.
    Memory,
    /// In an etcd cluster, which replicas share.
    Etcd,
}

/// The storage engine and its settings.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In the data directory.
    Sled,
    /// In memory.
    Memory,
    /// In this etcd cluster.
    Etcd(store::etcd::Options),
}

/// The format of log lines, as the operator names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the store and the site's secrets.
    pub data: PathBuf,
    /// Addresses of the API, besides inherited sockets; empty if only these are used.
    pub listen: Vec<SocketAddr>,
    /// The address of metrics and health.
    pub metrics_listen: SocketAddr,
    /// Further names of this server for its certificate.
    pub advertise: Vec<String>,
    /// Further servers of the API for machines, each as `host:port`.
    pub machines_api: Vec<String>,
    /// True if the API is served with TLS.
    pub tls: bool,
    /// The services of this process, and the addresses of the others.
    pub split: Split,
    /// The storage engine.
    pub store: Storage,
    /// Network boot, if it is configured.
    pub netboot: Option<Netboot>,
    /// The networks whose addresses are leased, in the process that serves addresses.
    pub subnets: Vec<netboot::pool::Subnet>,
    /// The time for which the workers of prepared machines are awaited.
    pub worker_timeouts: WorkerTimeouts,
    /// The identification of machines that get their script and their certificate.
    pub boot_source_check: SourceCheck,
    /// Addresses of the metadata service.
    pub metadata_listen: Vec<SocketAddr>,
    /// Further settings of the metadata service.
    pub metadata: Metadata,
    /// Settings of images.
    pub images: Images,
    /// The gateway, if it is served.
    pub gateway: Option<Gateway>,
    /// True if requests of machines, and those of the gateway, are limited.
    pub rate_limits: bool,
    /// True if BMCs may be called without TLS.
    pub insecure_bmcs: bool,
    /// The longest time that open requests may take when the server stops.
    pub drain: Duration,
    /// The format of log lines.
    pub log_format: Format,
    /// The filter of log lines, in the notation of `tracing`.
    pub log: String,
}

/// Checked settings of network boot.
#[derive(Clone, Debug)]
pub struct Netboot {
    /// The interfaces with machines; never empty.
    pub links: Vec<NetbootLink>,
    /// Settings of boot scripts and files.
    pub boot: boot_http::Boot,
    /// Networks whose addresses are leased.
    pub subnets: Vec<netboot::pool::Subnet>,
    /// Directories with builds of iPXE.
    pub loaders: Vec<PathBuf>,
    /// The directory of kernel and initramfs.
    pub osie: PathBuf,
    /// The directory of public files.
    pub files: Option<PathBuf>,
    /// Consoles of the in-memory environment.
    pub consoles: Vec<String>,
    /// Settings of syslog; none if it is not received.
    pub syslog: Option<Syslog>,
}

impl Netboot {
    /// Returns the URLs below which its public files are served.
    pub fn files_urls(&self) -> Vec<String> {
        let url = |link: &NetbootLink| format!("http://{}:{}/files/", link.address, link.http_port);
        let links = self.files.iter().flat_map(|_| &self.links);
        links.map(url).collect()
    }
}

impl Config {
    /// Merges and parses the options of all sources, and checks them.
    pub fn load(command_line: CommandLine) -> anyhow::Result<Self> {
        Self::new(command_line.options()?)
    }

    fn new(options: Options) -> anyhow::Result<Self> {
        let data = options.data.clone().map_or_else(cli::data, Ok)?;
        let split = Split::new(&options)?;
        let netboot = netboot(&options, &data, &split)?;
        let listen = options.listen.clone();
        let config = Self {
            listen: listen.unwrap_or_else(|| default_listen(netboot.as_ref(), &split, &options)),
            netboot,
            subnets: match split.serves(Service::Address) {
                true => pools::subnets(options.subnets.clone())?,
                false => Vec::new(),
            },
            worker_timeouts: options.boot.worker_timeouts()?,
            boot_source_check: options.boot.source_check.into(),
            metadata: Metadata::new(&options, &split)?,
            images: options.images.clone().checked(&data, options.store)?,
            gateway: Gateway::new(&options, &split)?,
            store: match options.store {
                Engine::Sled => Storage::Sled,
                Engine::Memory => Storage::Memory,
                Engine::Etcd => Storage::Etcd(etcd::options(&options, &split)?),
            },
            data,
            metrics_listen: options.metrics_listen,
            advertise: options.advertise,
            machines_api: split::machines_api(options.machines_api)?,
            tls: !options.insecure,
            // One file may configure several processes.
            metadata_listen: match split.serves(Service::Metadata) {
                true => options.metadata_listen,
                false => Vec::new(),
            },
            rate_limits: !options.no_rate_limits,
            insecure_bmcs: options.insecure_bmcs,
            drain: Duration::from_secs(options.drain_seconds),
            log_format: match options.log_format {
                LogFormat::Human => Format::Human,
                LogFormat::Json => Format::Json,
            },
            log: options.log,
            split,
        };
        config.checked()
    }

    fn checked(self) -> anyhow::Result<Self> {
        anyhow::ensure!(self.drain <= Duration::from_secs(600), "drain_seconds is over 600");
        runtime::telemetry::parse_filter(&self.log).context("log")?;
        let exposed = self.listen.iter().find(|address| !address.ip().is_loopback());
        if let (false, Some(exposed)) = (self.tls, exposed) {
            anyhow::bail!("insecure is for loopback only, but listen is {exposed}");
        }
        let Split { only, .. } = &self.split;
        for (service, configured, option) in [
            (Service::Netboot, self.netboot.is_some(), "netboot_interface"),
            (
                Service::Metadata,
                !self.metadata_listen.is_empty() || self.metadata.listens(),
                "metadata_listen",
            ),
            (Service::Gateway, self.gateway.is_some(), "gateway_listen"),
        ] {
            let required = only.as_ref().is_some_and(|only| only.contains(&service));
            anyhow::ensure!(
                configured || !required,
                "only names {service}, but {option} is not given"
            );
        }
        if self.netboot.is_some() {
            self.split.check_reachable_by_machines()?;
        }
        Ok(self)
    }

    /// Returns host and port of the API for machines on the link with our address `own`: there, or at the peer that serves
    /// workflow.
    pub fn machines_api(&self, own: Ipv4Addr) -> String {
        let peer = self.split.peers(Service::Workflow).first().and_then(Uri::authority);
        if let Some(peer) = peer {
            return peer.to_string();
        }
        let on_link = |address: &&SocketAddr| address.ip() == own || address.ip().is_unspecified();
        let port = self.listen.iter().find(on_link).map_or(API_PORT, SocketAddr::port);
        SocketAddr::from((own, port)).to_string()
    }

    /// Returns the further servers of the API for machines on that link.
    pub fn further_servers(&self, own: Ipv4Addr) -> Vec<String> {
        let first = self.machines_api(own);
        let peers = self.split.peers(Service::Workflow).iter().filter_map(Uri::authority);
        let mut further: Vec<_> = peers.map(ToString::to_string).collect();
        further.extend(self.machines_api.iter().cloned());
        let mut seen = BTreeSet::from([first]);
        further.retain(|server| seen.insert(server.clone()));
        further.truncate(split::MAX_MACHINES_API_SERVERS);
        further
    }

    /// The directory of the site's secrets.
    pub fn secrets(&self) -> PathBuf {
        self.data.join("secrets")
    }

    /// Returns the names in the server's certificate.
    pub fn names(&self) -> Vec<String> {
        let loopback = [Ipv4Addr::LOCALHOST.into(), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let links = self.netboot.iter().flat_map(|netboot| &netboot.links);
        let netboot = links.map(|link| link.address.into());
        let listening = self.listen.iter().map(SocketAddr::ip);
        let gateway = self.gateway.iter().flat_map(|gateway| &gateway.listen);
        let own = loopback
            .into_iter()
            .chain(netboot)
            .chain(gateway.map(SocketAddr::ip))
            .chain(listening)
            .filter(|address| !address.is_unspecified());
        let mut names: Vec<_> = own.map(|address| address.to_string()).collect();
        names.push("localhost".into());
        names.extend(self.advertise.iter().cloned());
        names.sort();
        names.dedup();
        names
    }
}

/// Returns the addresses of the API if none are configured: loopback, and those that workers on machines call, unless they call another
/// process.
fn default_listen(netboot: Option<&Netboot>, split: &Split, options: &Options) -> Vec<SocketAddr> {
    let is_called = split.serves(Service::Workflow) && !options.insecure;
    let links = netboot.filter(|_| is_called).into_iter().flat_map(|netboot| &netboot.links);
    let mut addresses = vec![Ipv4Addr::LOCALHOST];
    for link in links {
        if !addresses.contains(&link.address) {
            addresses.push(link.address);
        }
    }
    addresses.into_iter().map(|address| SocketAddr::from((address, API_PORT))).collect()
}

/// True if `uri` is on this host.
fn is_local(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Checks the settings of network boot. Returns none if no link is configured, or another process serves it.
fn netboot(options: &Options, data: &Path, split: &Split) -> anyhow::Result<Option<Netboot>> {
    if !split.serves(Service::Netboot) {
        return Ok(None);
    }
    let links = links::links(options)?;
    if links.is_empty() {
        return Ok(None);
    }
    let Options { osie, loaders, files, console, .. } = options.clone();
    Ok(Some(Netboot {
        links,
        boot: options.boot.clone().checked()?,
        subnets: pools::subnets(options.subnets.clone())?,
        loaders,
        osie: osie.unwrap_or_else(|| data.join("osie")),
        files,
        consoles: console,
        syslog: options.syslog.then_some(Syslog { debug: options.syslog_debug }),
    }))
}

/// True if any address is in both networks.
fn overlap(one: ipnet::Ipv4Net, other: ipnet::Ipv4Net) -> bool {
    one.contains(&other.addr()) || other.contains(&one.addr())
}

#[cfg(test)]
mod tests;
