//! What an operator may say, and what the program acts on.
//!
//! A flag goes before the environment, that before the file, that before the default. A key that the file has and this
//! program does not know is refused: a misspelt one must not pass for a default.
//!
//! `boot_http`, `links`, `dhcp`, `pools`, `metadata` and `etcd` check what is said of scripts and files, of where machines are
//! attached, of DHCP, of what it lends, of the metadata service and of a cluster, `observe` what of looking into network
//! boot, `split` which services are here and where the others are.

mod boot_http;
mod dhcp;
mod etcd;
mod links;
mod metadata;
mod observe;
mod pools;
mod split;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use runtime::telemetry::Format;
use serde::Deserialize;
use tonic::transport::Uri;

pub use self::links::Link;
pub use self::metadata::{Metadata, Paths, Source};
pub use self::observe::Observe;
pub use self::split::{Peer, Service, Split};

/// Where the file is looked for if nobody says: it need not be there.
const FILE: &str = "/etc/tinwright/tinwright.toml";

/// What can be said on the command line, in the environment, and under the same names in the file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// Configuration file (TOML); keys are these flags' names, with underscores
    #[arg(long, env = "TINWRIGHT_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Where the store and the site's secrets are kept
    #[arg(long, env = "TINWRIGHT_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where the gRPC API listens, besides inherited sockets named grpc [default: 127.0.0.1:42113]
    #[arg(long, env = "TINWRIGHT_LISTEN", value_name = "ADDRESS:PORT", value_delimiter = ',')]
    pub listen: Option<Vec<SocketAddr>>,
    /// Where metrics and health are served [default: 127.0.0.1:9464]
    #[arg(long, env = "TINWRIGHT_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Names and addresses, besides those listened on, that clients use for this server
    #[arg(long, env = "TINWRIGHT_ADVERTISE", value_name = "NAME", value_delimiter = ',')]
    pub advertise: Option<Vec<String>>,
    /// Serve gRPC in clear, which is allowed on loopback only; whoever gets there is admin
    #[arg(long, env = "TINWRIGHT_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    pub insecure: Option<bool>,
    /// Serve these only [default: all that is configured]; the others are asked where --peers says
    #[arg(long, env = "TINWRIGHT_ONLY", value_name = "SERVICE", value_delimiter = ',')]
    pub only: Option<Vec<Service>>,
    /// Where services are that are not served here: SERVICE=URL, or a URL for all that are not named (but netboot, which only
    /// metadata asks, for what it lends). Besides its own data directory a process needs a copy of the secrets (site.key,
    /// ca.pem, service.pem, service-key.pem; ca-key.pem unless it serves netboot and metadata only)
    #[arg(long, env = "TINWRIGHT_PEERS", value_name = "[SERVICE=]URL", value_delimiter = ',')]
    pub peers: Option<Vec<Peer>>,
    /// Where records are kept [default: sled]; etcd for replicas, of which each needs a copy of the first one's directory of
    /// secrets (secrets in the data directory) before its first start
    #[arg(long, env = "TINWRIGHT_STORE", value_name = "ENGINE")]
    pub store: Option<Engine>,
    /// Client addresses of the cluster's members, all http or all https [default: http://127.0.0.1:2379]
    #[arg(long, env = "TINWRIGHT_ETCD_ENDPOINTS", value_name = "URL", value_delimiter = ',')]
    pub etcd_endpoints: Option<Vec<String>>,
    /// What every key begins with there [default: /tinwright/]
    #[arg(long, env = "TINWRIGHT_ETCD_PREFIX", value_name = "PREFIX")]
    pub etcd_prefix: Option<String>,
    /// Certificates (PEM) of the authorities that sign the members', for https
    #[arg(long, env = "TINWRIGHT_ETCD_CA", value_name = "FILE")]
    pub etcd_ca: Option<PathBuf>,
    /// Our certificate (PEM), where the cluster asks for one
    #[arg(long, env = "TINWRIGHT_ETCD_CERTIFICATE", value_name = "FILE")]
    pub etcd_certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, env = "TINWRIGHT_ETCD_KEY", value_name = "FILE")]
    pub etcd_key: Option<PathBuf>,
    /// Our user, where the cluster has authentication switched on
    #[arg(long, env = "TINWRIGHT_ETCD_USER", value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// File with the user's password
    #[arg(long, env = "TINWRIGHT_ETCD_PASSWORD_FILE", value_name = "FILE")]
    pub etcd_password_file: Option<PathBuf>,
    /// Tell that password in clear to members off this machine, where anybody on the way reads it
    #[arg(long, env = "TINWRIGHT_ETCD_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    pub etcd_insecure: Option<bool>,
    /// The interface that machines are attached to: DHCP, TFTP and boot HTTP are served there
    #[arg(long, env = "TINWRIGHT_NETBOOT_INTERFACE", value_name = "INTERFACE")]
    pub netboot_interface: Option<String>,
    /// Our address on that interface [default: its first IPv4 address]
    #[arg(long, env = "TINWRIGHT_NETBOOT_ADDRESS", value_name = "ADDRESS")]
    pub netboot_address: Option<Ipv4Addr>,
    /// Where boot HTTP listens on it [default: 7080]
    #[arg(long, env = "TINWRIGHT_NETBOOT_HTTP_PORT", value_name = "PORT")]
    pub netboot_http_port: Option<u16>,
    /// Boot scripts and files, in the file a section of its own
    #[command(flatten)]
    #[serde(default)]
    pub boot: boot_http::Flags,
    /// Let an interface whose firmware is iPXE load a build of ours before it gets its script
    #[arg(long, env = "TINWRIGHT_NETBOOT_CHAIN_IPXE", num_args = 0..=1, default_missing_value = "true")]
    pub netboot_chain_ipxe: Option<bool>,
    /// DHCP, in the file a section of its own
    #[command(flatten)]
    #[serde(default)]
    pub dhcp: dhcp::Flags,
    /// Several interfaces that machines are attached to; in the file only, a section each, in place of the one
    #[arg(skip)]
    pub links: Option<Vec<links::Said>>,
    /// Networks in which addresses are lent; in the file only, a section each
    #[arg(skip)]
    pub subnets: Option<Vec<pools::Said>>,
    /// Directories with builds of iPXE [default: /usr/lib/ipxe]
    #[arg(long, env = "TINWRIGHT_LOADERS", value_name = "DIR", value_delimiter = ',')]
    pub loaders: Option<Vec<PathBuf>>,
    /// Directory with what `tinwright osie build` makes [default: osie in the data directory]
    #[arg(long, env = "TINWRIGHT_OSIE", value_name = "DIR")]
    pub osie: Option<PathBuf>,
    /// Directory of public files such as images, served by boot HTTP below /files
    #[arg(long, env = "TINWRIGHT_FILES", value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Consoles of the in-memory environment, such as ttyS1,115200; the last is where it writes
    #[arg(long, env = "TINWRIGHT_CONSOLE", value_name = "CONSOLE")]
    pub console: Option<Vec<String>>,
    /// Receive machines' syslog on UDP port 514 of the interface's address, and tell them so [default: true]
    #[arg(long, env = "TINWRIGHT_SYSLOG", num_args = 0..=1, default_missing_value = "true")]
    pub syslog: Option<bool>,
    /// Keep lines of severity debug, too
    #[arg(long, env = "TINWRIGHT_SYSLOG_DEBUG", num_args = 0..=1, default_missing_value = "true")]
    pub syslog_debug: Option<bool>,
    /// Spare booting machines the wait for an IPv6 router, which takes CAP_NET_RAW [default: true]
    #[arg(long, env = "TINWRIGHT_RA_ASSIST", num_args = 0..=1, default_missing_value = "true")]
    pub ra_assist: Option<bool>,
    /// Where the metadata service listens; nowhere if it is not said
    #[arg(
        long,
        env = "TINWRIGHT_METADATA_LISTEN",
        value_name = "ADDRESS:PORT",
        value_delimiter = ','
    )]
    pub metadata_listen: Option<Vec<SocketAddr>>,
    /// The interface that is given 169.254.169.254 (and fd00:ec2::254 where it speaks IPv6) while the metadata service
    /// listens there, on port 80
    #[arg(long, env = "TINWRIGHT_METADATA_LINK_LOCAL", value_name = "INTERFACE")]
    pub metadata_link_local: Option<String>,
    /// What a machine is known by at the metadata service, where its own policy does not say [default: on-link]
    #[arg(long, env = "TINWRIGHT_METADATA_SOURCE_CHECK", value_name = "CHECK")]
    pub metadata_source_check: Option<Source>,
    /// Where Hegel's gRPC listens for machines, in clear, usually on port 42115; nowhere if it is not said
    #[arg(
        long,
        env = "TINWRIGHT_METADATA_GRPC_LISTEN",
        value_name = "ADDRESS:PORT",
        value_delimiter = ','
    )]
    pub metadata_grpc_listen: Option<Vec<SocketAddr>>,
    /// Paths of the metadata service's that are this site's own: a JSON object, in the file a section, of paths and jq filters
    /// over the hardware, such as {"/tags": ".metadata.instance.tags[]"}
    #[arg(long, env = "TINWRIGHT_METADATA_CUSTOM_ENDPOINTS", value_name = "JSON")]
    pub metadata_custom_endpoints: Option<Paths>,
    /// Proxies that the metadata service believes when they say for whom they ask, as ADDRESS/BITS
    #[arg(
        long,
        env = "TINWRIGHT_METADATA_TRUSTED_PROXIES",
        value_name = "NETWORK",
        value_delimiter = ','
    )]
    pub metadata_trusted_proxies: Option<Vec<String>>,
    /// Keep user data and keys from requests that somebody else passed on [default: true]
    #[arg(
        long,
        env = "TINWRIGHT_METADATA_REFUSE_FORWARDED",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub metadata_refuse_forwarded: Option<bool>,
    /// Hosts that the metadata service may be asked for, against names that browsers are led to [default: any]
    #[arg(
        long,
        env = "TINWRIGHT_METADATA_ALLOWED_HOSTS",
        value_name = "HOST",
        value_delimiter = ','
    )]
    pub metadata_allowed_hosts: Option<Vec<String>>,
    /// Let machines ask as often as they like: for benches, where ten of them ask as often as ten thousand
    #[arg(long, env = "TINWRIGHT_NO_RATE_LIMITS", hide = true)]
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    pub no_rate_limits: Option<bool>,
    /// Whether BMCs may be spoken to in clear
    #[arg(long, env = "TINWRIGHT_INSECURE_BMCS", num_args = 0..=1, default_missing_value = "true")]
    pub insecure_bmcs: Option<bool>,
    /// How long open requests may take once the server ends, in seconds [default: 30]
    #[arg(long, env = "TINWRIGHT_DRAIN_SECONDS", value_name = "SECONDS")]
    pub drain_seconds: Option<u64>,
    /// How log lines look [default: human]
    #[arg(long, env = "TINWRIGHT_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Which log lines are written, such as info,store=debug [default: info]
    #[arg(long, env = "TINWRIGHT_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

/// Where records are kept, as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// In the data directory.
    #[default]
    Sled,
    /// Nowhere: everything is gone at the end. For trying things out.
    Memory,
    /// In a cluster, which replicas share.
    Etcd,
}

/// Where records are kept, checked.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In the data directory.
    Sled,
    /// Nowhere.
    Memory,
    /// In this cluster.
    Etcd(store::etcd::Options),
}

/// How log lines look, as it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the store and the site's secrets are kept.
    pub data: PathBuf,
    /// Where the API listens, besides inherited sockets; empty where only these are wanted.
    pub listen: Vec<SocketAddr>,
    /// Where metrics and health are served.
    pub metrics_listen: SocketAddr,
    /// What else clients call this server.
    pub advertise: Vec<String>,
    /// Whether the API is served in TLS.
    pub tls: bool,
    /// Which services are here, and where the others are.
    pub split: Split,
    /// Where records are kept.
    pub store: Storage,
    /// Network boot; none where it is off.
    pub netboot: Option<Netboot>,
    /// Where the metadata service listens.
    pub metadata_listen: Vec<SocketAddr>,
    /// What else was said of it.
    pub metadata: Metadata,
    /// Whether there is a limit to how often each machine may ask.
    pub rate_limits: bool,
    /// Whether BMCs may be spoken to in clear.
    pub insecure_bmcs: bool,
    /// How long open requests may take once the server ends.
    pub drain: Duration,
    /// How log lines look.
    pub log_format: Format,
    /// Which are written, in `tracing`'s notation.
    pub log: String,
}

/// Network boot, checked.
#[derive(Clone, Debug)]
pub struct Netboot {
    /// Where machines are attached; never empty.
    pub links: Vec<Link>,
    /// How scripts and files are given out.
    pub boot: boot_http::Boot,
    /// Where addresses are lent.
    pub subnets: Vec<netboot::pool::Subnet>,
    /// Directories with builds of iPXE.
    pub loaders: Vec<PathBuf>,
    /// Kernel and initramfs.
    pub osie: PathBuf,
    /// Public files.
    pub files: Option<PathBuf>,
    /// Consoles of the in-memory environment.
    pub consoles: Vec<String>,
    /// What shows how machines boot.
    pub observe: Observe,
}

impl Config {
    /// Puts together what `flags` and the file they name say, and checks it.
    pub fn load(flags: Flags) -> anyhow::Result<Self> {
        let file = read(flags.config.as_deref())?;
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let drain = flags.drain_seconds.or(file.drain_seconds).unwrap_or(30);
        let json = flags.log_format.or(file.log_format) == Some(LogFormat::Json);
        let data = flags.data.clone().or(file.data.clone()).map_or_else(cli::data, Ok)?;
        let tls = !flags.insecure.or(file.insecure).unwrap_or(false);
        let split = Split::load(&flags, &file, tls)?;
        let config = Self {
            netboot: netboot(&flags, &file, &data, &split)?,
            metadata: Metadata::load(&flags, &file, &split)?,
            store: storage(&flags, &file)?,
            data,
            listen: flags.listen.or(file.listen).unwrap_or(vec![loopback(42113)]),
            metrics_listen: flags.metrics_listen.or(file.metrics_listen).unwrap_or(loopback(9464)),
            advertise: flags.advertise.or(file.advertise).unwrap_or_default(),
            tls,
            metadata_listen: flags.metadata_listen.or(file.metadata_listen).unwrap_or_default(),
            rate_limits: !flags.no_rate_limits.or(file.no_rate_limits).unwrap_or(false),
            insecure_bmcs: flags.insecure_bmcs.or(file.insecure_bmcs).unwrap_or(false),
            drain: Duration::from_secs(drain),
            log_format: if json { Format::Json } else { Format::Human },
            log: flags.log.or(file.log).unwrap_or_else(|| "info".into()),
            split,
        };
        config.only_here().checked()
    }

    /// Without what belongs to services that are not here: one file may tell several processes everything.
    fn only_here(mut self) -> Self {
        if !self.split.serves(Service::Metadata) {
            self.metadata_listen.clear();
        }
        self
    }

    fn checked(self) -> anyhow::Result<Self> {
        anyhow::ensure!(self.drain <= Duration::from_secs(600), "drain_seconds is over 600");
        let exposed = self.listen.iter().find(|address| !address.ip().is_loopback());
        if let (false, Some(exposed)) = (self.tls, exposed) {
            anyhow::bail!("insecure is for loopback only, but listen is {exposed}");
        }
        let Split { only, .. } = &self.split;
        for (service, asked_for, how) in [
            (Service::Netboot, self.netboot.is_some(), "netboot_interface"),
            (
                Service::Metadata,
                !self.metadata_listen.is_empty() || self.metadata.listens(),
                "metadata_listen",
            ),
        ] {
            let named = only.as_ref().is_some_and(|only| only.contains(&service));
            anyhow::ensure!(asked_for || !named, "only names {service}, but {how} is not given");
        }
        if self.netboot.is_some() {
            self.split.reached_by_machines()?;
        }
        Ok(self)
    }

    /// Where machines find the API that are on the link with our address `own`: there, or at the peer with the workflow
    /// service.
    pub fn machines_api(&self, own: Ipv4Addr) -> String {
        let peer = self.split.peer(Service::Workflow).and_then(Uri::authority);
        if let Some(peer) = peer {
            return peer.to_string();
        }
        let on_link = |address: &&SocketAddr| address.ip() == own || address.ip().is_unspecified();
        let port = self.listen.iter().find(on_link).map_or(42113, SocketAddr::port);
        SocketAddr::from((own, port)).to_string()
    }

    /// Where the site's secrets are kept.
    pub fn secrets(&self) -> PathBuf {
        self.data.join("secrets")
    }

    /// What the server's certificate has to name.
    pub fn names(&self) -> Vec<String> {
        let loopback = [Ipv4Addr::LOCALHOST.into(), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let links = self.netboot.iter().flat_map(|netboot| &netboot.links);
        let netboot = links.map(|link| link.address.into());
        let listened = self.listen.iter().map(SocketAddr::ip);
        let own = loopback
            .into_iter()
            .chain(netboot)
            .chain(listened)
            .filter(|address| !address.is_unspecified());
        let mut names: Vec<_> = own.map(|address| address.to_string()).collect();
        names.push("localhost".into());
        names.extend(self.advertise.iter().cloned());
        names.sort();
        names.dedup();
        names
    }
}

/// Whether what goes to `uri` stays on this machine.
fn is_local(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Which engine was said, with what belongs to it and nothing that belongs to another.
fn storage(flags: &Flags, file: &Flags) -> anyhow::Result<Storage> {
    let engine = flags.store.or(file.store).unwrap_or_default();
    let said = etcd::Said::of(flags, file);
    Ok(match engine {
        Engine::Sled => said.nothing("sled").map(|()| Storage::Sled)?,
        Engine::Memory => said.nothing("memory").map(|()| Storage::Memory)?,
        Engine::Etcd => Storage::Etcd(said.options()?),
    })
}

/// What was said of network boot; nothing where no link was, or it is not served here.
fn netboot(
    flags: &Flags,
    file: &Flags,
    data: &Path,
    split: &Split,
) -> anyhow::Result<Option<Netboot>> {
    if !split.serves(Service::Netboot) {
        return Ok(None);
    }
    let links = links::load(flags, file)?;
    if links.is_empty() {
        return Ok(None);
    }
    let osie = flags.osie.clone().or(file.osie.clone());
    let loaders = flags.loaders.clone().or(file.loaders.clone());
    Ok(Some(Netboot {
        links,
        boot: flags.boot.clone().or(file.boot.clone()).checked()?,
        subnets: pools::checked(
            flags.subnets.clone().or(file.subnets.clone()).unwrap_or_default(),
        )?,
        loaders: loaders.unwrap_or(vec!["/usr/lib/ipxe".into()]),
        osie: osie.unwrap_or_else(|| data.join("osie")),
        files: flags.files.clone().or(file.files.clone()),
        consoles: flags.console.clone().or(file.console.clone()).unwrap_or_default(),
        observe: Observe::load(flags, file),
    }))
}

fn read(said: Option<&Path>) -> anyhow::Result<Flags> {
    let path = said.unwrap_or(Path::new(FILE));
    if said.is_none() && !path.exists() {
        return Ok(Flags::default());
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

/// True if any address is in both networks.
fn overlap(one: ipnet::Ipv4Net, other: ipnet::Ipv4Net) -> bool {
    one.contains(&other.addr()) || other.contains(&one.addr())
}

#[cfg(test)]
mod tests;
