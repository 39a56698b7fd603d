//! Block devices and file systems.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tinwright::node::v1::attachment::{Iscsi, Rbd};
use tokio::time::Instant;

use super::KernelError;

/// Block devices and file systems of the kernel.
#[async_trait]
pub trait KernelStorage: Send + Sync + 'static {
    /// Checks `source` without changing anything. The result is stored in the journal and is the `baseline` of the step: what
    /// [`find`](Self::find) needs to tell the new device from others, such as the devices of the same image that exist already.
    async fn prepare(&self, source: &AttachSource) -> Result<Vec<u8>, KernelError>;

    /// Attaches a block device. Its device file exists when this returns.
    async fn attach(&self, step: &AttachStep, deadline: Instant) -> Result<Device, KernelError>;

    /// Returns the device that `step` attached before a crash, if it did. The secret of an RBD step is empty here, and the base of
    /// a loopback step may be.
    async fn find(&self, step: &AttachStep) -> Result<Option<Device>, KernelError>;

    /// Detaches a block device, and returns after it is detached. A device with a mounted file system is busy.
    async fn detach(&self, device: &Device, deadline: Instant) -> Result<(), KernelError>;

    /// True if `device` is still attached; false also if its device file is another device by now. The future may be dropped.
    async fn is_attached(&self, device: &Device) -> Result<bool, KernelError>;

    /// Creates the mount point and the writable directories, and mounts a file system.
    async fn mount(&self, step: &MountStep, deadline: Instant) -> Result<(), KernelError>;

    /// Unmounts a file system, and removes its mount point and writable directories after that.
    async fn unmount(&self, target: &MountTarget, deadline: Instant) -> Result<(), KernelError>;

    /// Writes what is cached of the file system at `mountpoint` to its device (`syncfs`).
    async fn sync(&self, mountpoint: &Path) -> Result<(), KernelError>;

    /// Returns what exists and may be of an earlier process of a node.
    async fn found(&self) -> Result<FoundObjects, KernelError>;

    /// Removes one of the directories of [`FoundObjects`] with its content, except mounted file systems.
    async fn remove_directory(&self, path: &Path) -> Result<(), KernelError>;
}

/// The definition of a block device.
#[derive(Clone, Debug, PartialEq)]
pub enum AttachSource {
    /// A logical unit of an iSCSI target, with the defaults filled in.
    Iscsi(Iscsi),
    /// A block device that the node has.
    Local {
        /// Its device file.
        path: PathBuf,
    },
    /// A file as a block device.
    Loopback {
        /// The directory below which `path` is resolved, symbolic links too.
        base: PathBuf,
        /// The file. It has no component `..`.
        path: String,
        /// Looks for a partition table.
        read_partitions: bool,
    },
    /// An image of a Ceph cluster, with the secret.
    Rbd(Rbd),
}

/// A step that attaches a block device.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachStep {
    /// A text that no other step has, of at most 63 bytes: letters, digits and hyphens.
    pub mark: String,
    /// The definition.
    pub source: AttachSource,
    /// The result of [`KernelStorage::prepare`].
    pub baseline: Vec<u8>,
}

/// An attached block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its device file.
    pub file: PathBuf,
    /// The number N of `/dev/rbdN`; 0 for other devices.
    pub device_id: i64,
    /// Further data that is needed to recognize and detach it. The node stores it and does not look into it.
    pub detail: Vec<u8>,
}

/// The source of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A block device.
    Device {
        /// Its device file.
        device_file: PathBuf,
        /// The type of the file system.
        fs_type: String,
        /// Options as those of mount(8).
        options: Vec<String>,
    },
    /// A directory.
    Bind {
        /// The directory below which `path` is resolved, symbolic links too.
        base: PathBuf,
        /// The directory to be mounted. It has no component `..`.
        path: String,
        /// With what is mounted below it.
        recursive: bool,
        /// Read-only.
        ro: bool,
    },
    /// A directory of an NFS server.
    Nfs {
        /// Address or name of the server.
        host: String,
        /// The directory on the server.
        path: String,
        /// Read-only.
        ro: bool,
        /// The protocol's version, such as 4.2.
        version: String,
        /// Options of nfs(5).
        options: Vec<String>,
    },
    /// Directories over each other.
    Overlay {
        /// Mount points, the topmost first.
        lower: Vec<PathBuf>,
    },
}

/// The directories that belong to a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountTarget {
    /// The mount point, a directory of its own below the mount directory.
    pub mountpoint: PathBuf,
    /// The writable directories of an overlay.
    pub writable: Option<WritableLayer>,
    /// The mounts below it came with it, and are unmounted with it.
    pub recursive: bool,
}

/// The writable directories of an overlay, in the upper directory. They are removed with their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritableLayer {
    /// The directory of changed files.
    pub upper: PathBuf,
    /// The directory that the kernel works in.
    pub work: PathBuf,
}

/// A step that mounts a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountStep {
    /// The directories. They do not exist yet.
    pub target: MountTarget,
    /// The file system.
    pub source: MountSource,
}

/// Mounts, directories and devices that may be of an earlier process of a node. Paths are spelt as in the steps, whatever symbolic links lead to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundObjects {
    /// Mount points directly in the mount directory, in the order in which they were mounted. Bind mounts of the same file system
    /// count. What is mounted below them belongs to them.
    pub mounts: Vec<PathBuf>,
    /// Directories of nodes directly in the mount directory and in the upper directory, mount points or not.
    pub directories: Vec<PathBuf>,
    /// Devices that carry marks, with their marks.
    pub devices: Vec<(String, Device)>,
}
