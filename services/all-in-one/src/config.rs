//! What an operator may say, and what the program acts on.
//!
//! A flag goes before the environment, that before the file, that before the default. A key that the file has and this
//! program does not know is refused: a misspelt one must not pass for a default.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
    /// Where the gRPC API listens [default: 127.0.0.1:42113]
    #[arg(long, env = "TINWRIGHT_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
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
    listen: Option<SocketAddr>,
    metrics_listen: Option<SocketAddr>,
    advertise: Option<Vec<String>>,
    insecure: Option<bool>,
    store: Option<Engine>,
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
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where metrics and health are served.
    pub metrics_listen: SocketAddr,
    /// What else clients call this server.
    pub advertise: Vec<String>,
    /// Whether the API is served in TLS.
    pub tls: bool,
    /// Where records are kept.
    pub engine: Engine,
    /// How long open requests may take once the server ends.
    pub drain: Duration,
    /// How log lines look.
    pub log_format: Format,
    /// Which are written, in `tracing`'s notation.
    pub log: String,
}

impl Config {
    /// Puts together what `flags` and the file they name say, and checks it.
    pub fn load(flags: Flags) -> anyhow::Result<Self> {
        let file = read(flags.config.as_deref())?;
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let drain = flags.drain_seconds.or(file.drain_seconds).unwrap_or(30);
        let json = flags.log_format.or(file.log_format) == Some(LogFormat::Json);
        let config = Self {
            data: flags.data.or(file.data).map_or_else(cli::data, Ok)?,
            listen: flags.listen.or(file.listen).unwrap_or(loopback(42113)),
            metrics_listen: flags.metrics_listen.or(file.metrics_listen).unwrap_or(loopback(9464)),
            advertise: flags.advertise.or(file.advertise).unwrap_or_default(),
            tls: !flags.insecure.or(file.insecure).unwrap_or(false),
            engine: flags.store.or(file.store).unwrap_or_default(),
            drain: Duration::from_secs(drain),
            log_format: if json { Format::Json } else { Format::Human },
            log: flags.log.or(file.log).unwrap_or_else(|| "info".into()),
        };
        config.checked()
    }

    fn checked(self) -> anyhow::Result<Self> {
        anyhow::ensure!(self.drain <= Duration::from_secs(600), "drain_seconds is over 600");
        anyhow::ensure!(
            self.tls || self.listen.ip().is_loopback(),
            "insecure is for loopback only, but listen is {}",
            self.listen
        );
        Ok(self)
    }

    /// Where the site's secrets are kept.
    pub fn secrets(&self) -> PathBuf {
        self.data.join("secrets")
    }

    /// What the server's certificate has to name.
    pub fn names(&self) -> Vec<String> {
        let own = [
            Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            self.listen.ip(),
        ];
        let own = own.into_iter().filter(|address| !address.is_unspecified());
        let mut names: Vec<_> = own.map(|address| address.to_string()).collect();
        names.push("localhost".into());
        names.extend(self.advertise.iter().cloned());
        names.sort();
        names.dedup();
        names
    }
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
        let (_dir, flags) = written("listen = '127.0.0.1:1'\nlog = 'debug'\ndrain_seconds = 5");
        let config = Config::load(Flags { log: Some("warn".into()), ..flags }).unwrap();
        assert_eq!(config.listen.port(), 1);
        assert_eq!((config.log.as_str(), config.drain), ("warn", Duration::from_secs(5)));
        assert_eq!(config.metrics_listen.port(), 9464);
    }

    #[test]
    fn an_unknown_key_and_a_missing_file_are_refused_by_name() {
        let (_dir, flags) = written("lisen = '127.0.0.1:1'");
        let error = format!("{:#}", Config::load(flags).unwrap_err());
        assert!(error.contains("lisen") && error.contains("tinwright.toml"), "{error}");
        let flags = Flags { config: Some("/nowhere/x.toml".into()), ..Flags::default() };
        let error = format!("{:#}", Config::load(flags).unwrap_err());
        assert!(error.starts_with("reading /nowhere/x.toml"), "{error}");
    }

    #[test]
    fn nothing_listens_in_clear_off_loopback() {
        let (_dir, flags) = written("insecure = true\nlisten = '0.0.0.0:1'");
        let error = Config::load(flags).unwrap_err().to_string();
        assert_eq!(error, "insecure is for loopback only, but listen is 0.0.0.0:1");
    }

    #[test]
    fn the_certificate_names_what_is_listened_on_and_advertised() {
        let (_dir, flags) = written("listen = '192.0.2.1:1'\nadvertise = ['rack.lab']");
        let names = Config::load(flags).unwrap().names();
        assert_eq!(names, ["127.0.0.1", "192.0.2.1", "::1", "localhost", "rack.lab"]);
    }
}
