//! Settings and limits of a node.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The journal's file. Its directory must exist; files with the suffixes `.lock` and `.new` stand beside it.
    pub journal: PathBuf,
    /// The directory of mount points. The kernel's implementation creates it.
    pub mount_directory: PathBuf,
    /// The directory of the overlays' writable directories, which may be the same. The kernel's implementation creates it.
    pub upper_directory: PathBuf,
    /// The directory of the containers' logs. The kernel's implementation creates it.
    pub log_directory: PathBuf,
    /// The longest time of a call. At its end the call fails, and its work is undone.
    pub call_timeout: Duration,
    /// The time between the request to stop and the kill, of a container without systemd. 0: killed at once.
    pub stop_grace: Duration,
    /// The same, of a container with systemd.
    pub systemd_stop_grace: Duration,
    /// The longest wait for the end of the processes in a forced deletion of a container.
    pub kill_timeout: Duration,
    /// The period of the sweep that looks for objects with count 0.
    pub sweep_period: Duration,
    /// The most objects.
    pub max_objects: usize,
    /// The most results that are kept for repeated calls.
    pub max_results: usize,
    /// The longest time for which a result is kept for repeated calls.
    pub result_lifetime: Duration,
    /// A deletion without force succeeds if no other object uses the object. Off, it fails for every object that was posted
    /// directly, as in the original.
    pub delete_releases_owner: bool,
    /// Stores the keys of RBD users and shows them in responses. Off, they are dropped after the attachment.
    pub show_secrets: bool,
    /// Stops the node at one journal write or kernel step.
    #[cfg(test)]
    pub(crate) crash: Option<crate::tests::CrashPoint>,
    /// Refuses all journal writes.
    #[cfg(test)]
    pub(crate) refuse_writes: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl NodeOptions {
    /// The defaults, with the journal in the file `journal`.
    pub fn new(journal: impl Into<PathBuf>) -> Self {
        Self {
            journal: journal.into(),
            mount_directory: "/var/run/imageapi/mounts".into(),
            upper_directory: "/var/run/imageapi/mounts".into(),
            log_directory: "/var/run/imageapi/logs".into(),
            call_timeout: Duration::from_secs(25),
            stop_grace: Duration::from_secs(10),
            systemd_stop_grace: Duration::from_secs(90),
            kill_timeout: Duration::from_secs(10),
            sweep_period: Duration::from_secs(1),
            max_objects: 4096,
            max_results: 1024,
            result_lifetime: Duration::from_secs(3600),
            delete_releases_owner: false,
            show_secrets: false,
            #[cfg(test)]
            crash: None,
            #[cfg(test)]
            refuse_writes: std::sync::Arc::default(),
        }
    }
}
