//! Settings of a builder.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Url;

/// Settings of a builder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory for the files of builds. It belongs to one builder.
    pub scratch: PathBuf,
    /// Number of builds at a time. The default is 1.
    pub slots: NonZeroUsize,
    /// Name of this process in leases. It is the same after a restart, so that the builder takes
    /// its own builds up again. At most 100 bytes.
    pub holder: String,
    /// Settings of downloads.
    pub downloads: Downloads,
    /// Limits of the sandbox.
    pub sandbox: SandboxLimits,
    /// Intervals and timeouts.
    pub timing: Timing,
}

/// Settings of downloads.
#[derive(Clone, Debug, Default)]
pub struct Downloads {
    /// Mirrors of publishers: the base URL of the publisher, such as
    /// `https://cloud.debian.org/images/cloud`, and the base URL to use in its place. The address
    /// of a mirror need not be public.
    pub mirrors: BTreeMap<String, Url>,
    /// File with further certificate authorities (PEM) to trust.
    pub ca: Option<PathBuf>,
    /// Private networks that downloads may come from.
    pub allow_networks: Vec<IpNet>,
    /// Public networks that no download may come from, such as the site's own.
    pub refuse_networks: Vec<IpNet>,
    /// Proxy for all downloads, such as `http://proxy.example:3128`. It resolves the names of hosts,
    /// so it must refuse private addresses itself.
    pub proxy: Option<Url>,
}

/// Limits of the sandbox that converts images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Maximum memory in bytes. The default is 4 GiB.
    pub memory_bytes: u64,
    /// Maximum number of processes. The default is 256.
    pub processes: u32,
    /// Timeout of a conversion. The default is an hour.
    pub timeout: Duration,
}

/// Intervals and timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval of renewals of a lease.
    pub renewal: Duration,
    /// Time without contact to the server after which a build is given up.
    pub contact: Duration,
    /// Delay after the first failure of a call, and the maximum delay.
    pub retry_delays: (Duration, Duration),
    /// Timeout of a connection for a download.
    pub connect: Duration,
    /// Timeout for the next bytes of a download or an upload.
    pub stall: Duration,
    /// Timeout of a download.
    pub download: Duration,
}

impl Settings {
    /// Returns the default settings for a builder with the name `holder` that works in `scratch`.
    pub fn new(holder: impl Into<String>, scratch: impl Into<PathBuf>) -> Self {
        Self {
            scratch: scratch.into(),
            slots: NonZeroUsize::MIN,
            holder: holder.into(),
            downloads: Downloads::default(),
            sandbox: SandboxLimits::default(),
            timing: Timing::default(),
        }
    }
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, processes: 256, timeout: Duration::from_secs(60 * 60) }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            renewal: Duration::from_secs(20),
            contact: Duration::from_secs(10 * 60),
            retry_delays: (Duration::from_secs(1), Duration::from_secs(30)),
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            download: Duration::from_secs(2 * 60 * 60),
        }
    }
}
