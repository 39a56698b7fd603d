//! Flags and environment. Those of the original have its names and defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::control::ControlArguments;
use crate::units::{duration, size};

/// Serve the ImageAPI of this node
#[derive(Debug, Parser)]
#[command(version, max_term_width = 120)]
pub(crate) struct Arguments {
    /// Listen for this scheme; may be repeated
    #[arg(long = "scheme", value_enum, value_name = "SCHEME", default_values_t = [Scheme::Http, Scheme::Https])]
    pub(crate) schemes: Vec<Scheme>,
    #[command(flatten)]
    pub(crate) http: HttpArguments,
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
    #[command(flatten)]
    pub(crate) storage: StorageArguments,
    #[command(flatten)]
    pub(crate) containers: ContainerArguments,
    #[command(flatten)]
    pub(crate) api: ApiArguments,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// The ways to reach the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheme {
    /// Plaintext.
    Http,
    /// TLS.
    Https,
    /// A Unix socket.
    Unix,
}

/// The plaintext listener and the Unix socket, and limits of all listeners.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Listeners")]
pub(crate) struct HttpArguments {
    /// Close connections without a request after this time; 0 after 24 hours
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub(crate) cleanup_timeout: Duration,
    /// Cut requests that are open this long after SIGINT or SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    pub(crate) graceful_timeout: Duration,
    /// Refuse larger heads of requests
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1MiB")]
    pub(crate) max_header_size: u64,
    /// Create the Unix socket here, with mode 0600
    #[arg(long, value_name = "FILE", default_value = "/var/run/imageapi.sock")]
    pub(crate) socket_path: PathBuf,
    /// Listen for http on this address or name
    #[arg(long, env = "HOST", value_name = "HOST", default_value = "localhost")]
    pub(crate) host: String,
    /// Listen for http on this port; 0 for a free one
    #[arg(long, env = "PORT", value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Serve at most this many connections of http at a time; 0 without limit
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) listen_limit: usize,
    /// Probe silent connections of http after this time; 0 never
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3m")]
    pub(crate) keep_alive: Duration,
    /// Read the body of a request of http within this time; 0 without limit
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub(crate) read_timeout: Duration,
    /// Answer a request of http within this time; 0 without limit
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) write_timeout: Duration,
    /// Serve http on addresses that are not loopback: whoever reaches them is root on this node
    #[arg(long)]
    pub(crate) allow_insecure_http: bool,
}

/// The TLS listener.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArguments {
    /// Listen for https on this address or name [default: that of --host]
    #[arg(long, env = "TLS_HOST", value_name = "HOST")]
    pub(crate) tls_host: Option<String>,
    /// Listen for https on this port; 0 for a free one
    #[arg(long, env = "TLS_PORT", value_name = "PORT", default_value_t = 0)]
    pub(crate) tls_port: u16,
    /// Use this certificate chain (PEM)
    #[arg(long, env = "TLS_CERTIFICATE", value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Use this private key (PEM)
    #[arg(long, env = "TLS_PRIVATE_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require client certificates of these authorities (PEM)
    #[arg(long, env = "TLS_CA_CERTIFICATE", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Accept only client certificates with this common or DNS name; may be repeated
    #[arg(long = "tls-client-name", value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_client_names: Vec<String>,
    /// Serve at most this many connections of https at a time [default: as --listen-limit]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) tls_listen_limit: Option<usize>,
    /// Probe silent connections of https after this time [default: as --keep-alive]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) tls_keep_alive: Option<Duration>,
    /// Read the body of a request of https within this time [default: as --read-timeout]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) tls_read_timeout: Option<Duration>,
    /// Answer a request of https within this time [default: as --write-timeout]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) tls_write_timeout: Option<Duration>,
}

/// Directories, devices and file systems.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Storage")]
pub(crate) struct StorageArguments {
    /// Keep the journal and the run directories of containers here
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tinwright/node")]
    pub(crate) state_directory: PathBuf,
    /// Mount here
    #[arg(long, value_name = "DIR", default_value = "/var/run/imageapi/mounts")]
    pub(crate) mount_directory: PathBuf,
    /// Make the writable directories of overlays here [default: the mount directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) upper_directory: Option<PathBuf>,
    /// Mount a file system in memory of this size on the upper directory; all overlays share it
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "upper_directory")]
    pub(crate) upper_size: Option<u64>,
    /// Write the containers' logs here
    #[arg(long, value_name = "DIR", default_value = "/var/run/imageapi/logs")]
    pub(crate) log_directory: PathBuf,
    /// Look for objects that nobody uses in this interval
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    pub(crate) collection_interval: Duration,
    /// Call this program for iSCSI
    #[arg(long, value_name = "PROGRAM", default_value = "iscsiadm")]
    pub(crate) iscsiadm: PathBuf,
    /// Detach file systems in use from the tree, instead of refusing to unmount them
    #[arg(long)]
    pub(crate) lazy_unmount: bool,
}

/// Containers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Containers")]
pub(crate) struct ContainerArguments {
    /// Kill a container that does not end within this time after SIGTERM; 0 kills at once
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub(crate) stop_grace: Duration,
    /// Kill a container with systemd that does not end within this time after SIGRTMIN+3; 0 kills at once
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "90s")]
    pub(crate) systemd_stop_grace: Duration,
    /// Keep or strip the quotation marks around a word of a command
    #[arg(long, value_enum, value_name = "TREATMENT", default_value_t = CommandQuotes::Keep)]
    pub(crate) command_quotes: CommandQuotes,
    /// Give containers the namespaces cgroup, net, time and user that they list
    #[arg(long)]
    pub(crate) honour_namespaces: bool,
    /// Limit the processes of each container
    #[arg(long, value_name = "NUMBER")]
    pub(crate) container_processes: Option<u64>,
    /// Limit the memory of each container
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) container_memory: Option<u64>,
    /// Limit the log file of each container; one older file of this size is kept beside it
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "8MiB")]
    pub(crate) log_size: u64,
    /// Remove logs of deleted containers this time after their last line
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "720h")]
    pub(crate) log_retention: Duration,
}

/// The treatment of quotation marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommandQuotes {
    /// They stay, as in the original.
    Keep,
    /// One matching pair is removed.
    Strip,
}

/// Rules of the API that differ from the original if they are asked for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "API")]
pub(crate) struct ApiArguments {
    /// Delete posted objects that nobody uses without force
    #[arg(long)]
    pub(crate) delete_releases_owner: bool,
    /// Store the keys of RBD users, and show them in responses
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// Accept monitors of RBD images with a port, and IPv6 addresses in brackets
    #[arg(long)]
    pub(crate) rbd_monitor_ports: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_flags_everything_is_as_in_the_original() {
        let arguments = Arguments::try_parse_from(["tinwright-node"]).unwrap();
        assert_eq!(arguments.schemes, [Scheme::Http, Scheme::Https]);
        assert_eq!(arguments.http.max_header_size, 1 << 20);
        assert_eq!(arguments.http.graceful_timeout, Duration::from_secs(15));
        assert_eq!(arguments.http.socket_path, PathBuf::from("/var/run/imageapi.sock"));
        assert_eq!(arguments.storage.mount_directory, PathBuf::from("/var/run/imageapi/mounts"));
    }

    #[test]
    fn schemes_replace_the_default_and_names_need_an_authority() {
        let parse =
            |flags: &[&str]| Arguments::try_parse_from(["tinwright-node"].iter().chain(flags));
        let unix = parse(&["--scheme", "unix", "--scheme=http"]).unwrap();
        assert_eq!(unix.schemes, [Scheme::Unix, Scheme::Http]);
        assert!(parse(&["--tls-client-name", "a"]).is_err());
        assert!(parse(&["--tls-client-name", "a", "--tls-ca", "/ca"]).is_ok());
    }
}
