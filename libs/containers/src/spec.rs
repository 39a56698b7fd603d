//! The description of a run, written to its run directory by the daemon and read by the supervisor.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::Quotes;
use crate::log::LogSettings;

/// Time between a stop request and SIGKILL.
pub const STOP_GRACE: Duration = Duration::from_secs(10);
/// The same for an image whose init is systemd, which stops its units first.
pub const SYSTEMD_STOP_GRACE: Duration = Duration::from_secs(90);

/// A run of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The container's number, for the lines of its log.
    pub container: u64,
    /// The directory with the image, normally a mount point.
    pub image: PathBuf,
    /// The program and its arguments, not yet split.
    pub command: String,
    /// Treatment of quotation marks in `command`.
    pub quotes: Quotes,
    /// True if the program is systemd: more tmpfs, `container=` in the environment, SIGRTMIN+3 to stop it.
    pub systemd: bool,
    /// Namespaces beyond mount, PID, IPC and UTS.
    pub namespaces: Namespaces,
    /// Resource limits.
    pub limits: Limits,
    /// The name of the control group, relative to each hierarchy's root, such as `tinwright/45-1`.
    pub cgroup: String,
    /// The log file.
    pub log: LogSettings,
}

/// Namespaces that a container has only if they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespaces {
    /// A network of its own, without any interface but `lo`, which is down.
    pub net: bool,
    /// Its control group looks like the root group.
    pub cgroup: bool,
    /// Monotonic and boot time of its own; a process inside can set the offsets of later ones.
    pub time: bool,
    /// A user namespace with all ids mapped to themselves. Capabilities then hold over the container's mounts only, not
    /// over the other namespaces: no device nodes, no network configuration, no host name.
    pub user: bool,
}

/// Limits of the control group. A limit that no hierarchy of the host offers makes the start fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The greatest number of processes and threads.
    pub max_processes: Option<u64>,
    /// The greatest amount of memory, tmpfs contents included, in bytes.
    pub max_memory_bytes: Option<u64>,
}

impl Spec {
    /// The usual time between a stop request and SIGKILL.
    pub fn stop_grace(&self) -> Duration {
        if self.systemd { SYSTEMD_STOP_GRACE } else { STOP_GRACE }
    }
}
