//! What an operator may say, and what the program acts on.
//!
//! A flag goes before the environment, that before the file, that before the default. A key that the file has and this
//! program does not know is refused: a misspelt one must not pass for a default.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use runtime::telemetry::Format;
use serde::Deserialize;

/// Where the file is looked for if nobody says: it need not be there.
const FILE: &str = "/etc/tinwright/tinwright.toml";

/// What can be said on the command line and in the environment.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Configuration file (TOML); keys are these flags' names, with underscores
    #[arg(long, env = "TINWRIGHT_CONFIG", value_name = "FILE")]
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
    /// Where records are kept [default: sled]
    #[arg(long, env = "TINWRIGHT_STORE", value_name = "ENGINE")]
    pub store: Option<Engine>,
    /// The interface that machines are attached to: DHCP, TFTP and boot HTTP are served there
    #[arg(long, env = "TINWRIGHT_NETBOOT_INTERFACE", value_name = "INTERFACE")]
    pub netboot_interface: Option<String>,
    /// Our address on that interface [default: its first IPv4 address]
    #[arg(long, env = "TINWRIGHT_NETBOOT_ADDRESS", value_name = "ADDRESS")]
    pub netboot_address: Option<Ipv4Addr>,
    /// Where boot HTTP listens on it [default: 7080]
    #[arg(long, env = "TINWRIGHT_NETBOOT_HTTP_PORT", value_name = "PORT")]
    pub netboot_http_port: Option<u16>,
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
    /// Where the metadata service listens; nowhere if it is not said
    #[arg(
        long,
        env = "TINWRIGHT_METADATA_LISTEN",
        value_name = "ADDRESS:PORT",
        value_delimiter = ','
    )]
    pub metadata_listen: Option<Vec<SocketAddr>>,
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

/// The file, exactly as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    data: Option<PathBuf>,
    listen: Option<Vec<SocketAddr>>,
    metrics_listen: Option<SocketAddr>,
    advertise: Option<Vec<String>>,
    insecure: Option<bool>,
    store: Option<Engine>,
    netboot_interface: Option<String>,
    netboot_address: Option<Ipv4Addr>,
    netboot_http_port: Option<u16>,
    loaders: Option<Vec<PathBuf>>,
    osie: Option<PathBuf>,
    files: Option<PathBuf>,
    console: Option<Vec<String>>,
    metadata_listen: Option<Vec<SocketAddr>>,
    insecure_bmcs: Option<bool>,
    drain_seconds: Option<u64>,
    log_format: Option<LogFormat>,
    log: Option<String>,
}

/// Where records are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// In the data directory.
    #[default]
    Sled,
    /// Nowhere: everything is gone at the end. For trying things out.
    Memory,
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
    /// Where records are kept.
    pub engine: Engine,
    /// Network boot; none where it is off.
    pub netboot: Option<Netboot>,
    /// Where the metadata service listens.
    pub metadata_listen: Vec<SocketAddr>,
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
    /// The interface machines are attached to.
    pub interface: String,
    /// Our address on it.
    pub address: Ipv4Addr,
    /// Where boot HTTP listens.
    pub http_port: u16,
    /// Directories with builds of iPXE.
    pub loaders: Vec<PathBuf>,
    /// Kernel and initramfs.
    pub osie: PathBuf,
    /// Public files.
    pub files: Option<PathBuf>,
    /// Consoles of the in-memory environment.
    pub consoles: Vec<String>,
}

impl Config {
    /// Puts together what `flags` and the file they name say, and checks it.
    pub fn load(flags: Flags) -> anyhow::Result<Self> {
        let file = read(flags.config.as_deref())?;
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let drain = flags.drain_seconds.or(file.drain_seconds).unwrap_or(30);
        let json = flags.log_format.or(file.log_format) == Some(LogFormat::Json);
        let data = flags.data.clone().or(file.data.clone()).map_or_else(cli::data, Ok)?;
        let config = Self {
            netboot: netboot(&flags, &file, &data)?,
            data,
            listen: flags.listen.or(file.listen).unwrap_or(vec![loopback(42113)]),
            metrics_listen: flags.metrics_listen.or(file.metrics_listen).unwrap_or(loopback(9464)),
            advertise: flags.advertise.or(file.advertise).unwrap_or_default(),
            tls: !flags.insecure.or(file.insecure).unwrap_or(false),
            engine: flags.store.or(file.store).unwrap_or_default(),
            metadata_listen: flags.metadata_listen.or(file.metadata_listen).unwrap_or_default(),
            insecure_bmcs: flags.insecure_bmcs.or(file.insecure_bmcs).unwrap_or(false),
            drain: Duration::from_secs(drain),
            log_format: if json { Format::Json } else { Format::Human },
            log: flags.log.or(file.log).unwrap_or_else(|| "info".into()),
        };
        config.checked()
    }

    fn checked(self) -> anyhow::Result<Self> {
        anyhow::ensure!(self.drain <= Duration::from_secs(600), "drain_seconds is over 600");
        let exposed = self.listen.iter().find(|address| !address.ip().is_loopback());
        if let (false, Some(exposed)) = (self.tls, exposed) {
            anyhow::bail!("insecure is for loopback only, but listen is {exposed}");
        }
        Ok(self)
    }

    /// Where machines find the API: on the interface that they are attached to.
    pub fn machines_api(&self) -> Option<SocketAddr> {
        let netboot = self.netboot.as_ref()?;
        let on_link = |address: &&SocketAddr| {
            address.ip() == netboot.address || address.ip().is_unspecified()
        };
        let port = self.listen.iter().find(on_link).map_or(42113, SocketAddr::port);
        Some((netboot.address, port).into())
    }

    /// Where the site's secrets are kept.
    pub fn secrets(&self) -> PathBuf {
        self.data.join("secrets")
    }

    /// What the server's certificate has to name.
    pub fn names(&self) -> Vec<String> {
        let loopback = [Ipv4Addr::LOCALHOST.into(), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let netboot = self.netboot.iter().map(|netboot| netboot.address.into());
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

/// What was said of network boot; nothing where no interface was.
fn netboot(flags: &Flags, file: &File, data: &Path) -> anyhow::Result<Option<Netboot>> {
    let interface = flags.netboot_interface.clone().or(file.netboot_interface.clone());
    let Some(interface) = interface else { return Ok(None) };
    let address = match flags.netboot_address.or(file.netboot_address) {
        Some(address) => address,
        None => netboot::site::address_of(&interface)
            .with_context(|| format!("netboot_interface {interface}"))?,
    };
    let osie = flags.osie.clone().or(file.osie.clone());
    let loaders = flags.loaders.clone().or(file.loaders.clone());
    Ok(Some(Netboot {
        interface,
        address,
        http_port: flags.netboot_http_port.or(file.netboot_http_port).unwrap_or(7080),
        loaders: loaders.unwrap_or(vec!["/usr/lib/ipxe".into()]),
        osie: osie.unwrap_or_else(|| data.join("osie")),
        files: flags.files.clone().or(file.files.clone()),
        consoles: flags.console.clone().or(file.console.clone()).unwrap_or_default(),
    }))
}

fn read(said: Option<&Path>) -> anyhow::Result<File> {
    let path = said.unwrap_or(Path::new(FILE));
    if said.is_none() && !path.exists() {
        return Ok(File::default());
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, Flags) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tinwright.toml");
        std::fs::write(&path, text).unwrap();
        (dir, Flags { config: Some(path), data: Some("/nowhere".into()), ..Flags::default() })
    }

    #[test]
    fn a_flag_goes_before_the_file_and_that_before_the_default() {
        let (_dir, flags) = written("listen = ['127.0.0.1:1']\nlog = 'debug'\ndrain_seconds = 5");
        let config = Config::load(Flags { log: Some("warn".into()), ..flags }).unwrap();
        assert_eq!(config.listen[0].port(), 1);
        assert_eq!((config.log.as_str(), config.drain), ("warn", Duration::from_secs(5)));
        assert_eq!(config.metrics_listen.port(), 9464);
    }

    #[test]
    fn an_unknown_key_and_a_missing_file_are_refused_by_name() {
        let (_dir, flags) = written("lisen = ['127.0.0.1:1']");
        let error = format!("{:#}", Config::load(flags).unwrap_err());
        assert!(error.contains("lisen") && error.contains("tinwright.toml"), "{error}");
        let flags = Flags { config: Some("/nowhere/x.toml".into()), ..Flags::default() };
        let error = format!("{:#}", Config::load(flags).unwrap_err());
        assert!(error.starts_with("reading /nowhere/x.toml"), "{error}");
    }

    #[test]
    fn nothing_listens_in_clear_off_loopback() {
        let (_dir, flags) = written("insecure = true\nlisten = ['0.0.0.0:1']");
        let error = Config::load(flags).unwrap_err().to_string();
        assert_eq!(error, "insecure is for loopback only, but listen is 0.0.0.0:1");
    }

    #[test]
    fn the_certificate_names_what_is_listened_on_and_advertised() {
        let (_dir, flags) = written("listen = ['192.0.2.1:1']\nadvertise = ['rack.lab']");
        let names = Config::load(flags).unwrap().names();
        assert_eq!(names, ["127.0.0.1", "192.0.2.1", "::1", "localhost", "rack.lab"]);
    }
}
