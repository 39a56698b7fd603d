//! Block devices and file systems of a Linux host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use mounts::Deadline;
use tokio::time::{Instant, timeout};

use super::devices::Devices;
use super::directories::Directories;
use super::file_systems::{self, FileSystems};
use super::steps::{blocking, failed, limit};
use crate::kernel::{
    AttachSource, AttachStep, Device, FoundObjects, KernelError, KernelStorage, MountStep,
    MountTarget,
};

/// The longest time of a step without a deadline of its own.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of [`LinuxStorage`].
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// The directory of mount points; the same as [`crate::NodeOptions::mount_directory`]. It is created if it is missing.
    pub mount_directory: PathBuf,
    /// The directory of the overlays' writable directories; the same as [`crate::NodeOptions::upper_directory`].
    pub upper_directory: PathBuf,
    /// The size of a file system in memory that is mounted on the upper directory, in bytes: all overlays share it. None: nothing is
    /// mounted there.
    pub upper_max_bytes: Option<u64>,
    /// The program `iscsiadm`: a name on the search path, or a path.
    pub iscsiadm: PathBuf,
    /// Detaches file systems that are in use lazily, instead of reporting that they are in use.
    pub lazy_unmount: bool,
}

/// Block devices and file systems of a Linux host.
#[derive(Clone, Debug)]
pub struct LinuxStorage {
    devices: Devices,
    file_systems: FileSystems,
}

impl LinuxStorage {
    /// Creates the directories if they are missing, and takes them for this process.
    ///
    /// # Errors
    /// They cannot be created, or another process has them.
    pub async fn open(settings: StorageSettings) -> Result<Self, KernelError> {
        let StorageSettings {
            mount_directory,
            upper_directory,
            upper_max_bytes,
            iscsiadm,
            lazy_unmount,
        } = settings;
        let open = move || Directories::open(&mount_directory, &upper_directory, upper_max_bytes);
        let file_systems = FileSystems { directories: blocking(open).await?, lazy_unmount };
        Ok(Self { devices: Devices::new(&iscsiadm), file_systems })
    }

    /// Runs `work` over the devices on a thread that may block.
    async fn on_devices<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Devices) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, KernelError> {
        let devices = self.devices.clone();
        blocking(move || Ok(work(&devices))).await.flatten()
    }

    /// Runs `work` over the file systems on a thread that may block.
    async fn on_file_systems<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileSystems) -> mounts::Result<T> + Send + 'static,
    ) -> Result<T, KernelError> {
        let file_systems = self.file_systems.clone();
        blocking(move || work(&file_systems)).await
    }
}

#[async_trait]
impl KernelStorage for LinuxStorage {
    async fn prepare(&self, source: &AttachSource) -> Result<Vec<u8>, KernelError> {
        let source = source.clone();
        self.on_devices(move |devices| devices.baseline(&source, Deadline::after(STEP_TIMEOUT)))
            .await
    }

    async fn attach(&self, step: &AttachStep, deadline: Instant) -> Result<Device, KernelError> {
        let base = match &step.source {
            AttachSource::Loopback { base, .. } => self.file_systems.directories.resolve(base),
            AttachSource::Iscsi(_) | AttachSource::Local { .. } | AttachSource::Rbd(_) => {
                PathBuf::new()
            }
        };
        let (step, limit) = (step.clone(), limit(deadline));
        self.on_devices(move |devices| devices.attach(&step, &base, limit)).await
    }

    async fn find(&self, step: &AttachStep) -> Result<Option<Device>, KernelError> {
        let step = step.clone();
        self.on_devices(move |devices| devices.find(&step)).await
    }

    async fn detach(&self, device: &Device, deadline: Instant) -> Result<(), KernelError> {
        let (device, limit) = (device.clone(), limit(deadline));
        self.on_devices(move |devices| devices.detach(&device, limit)).await
    }

    async fn is_attached(&self, device: &Device) -> Result<bool, KernelError> {
        let (device, limit) = (device.clone(), Deadline::after(STEP_TIMEOUT));
        self.on_devices(move |devices| devices.is_attached(&device, limit)).await
    }

    async fn mount(&self, step: &MountStep, deadline: Instant) -> Result<(), KernelError> {
        let (step, limit) = (step.clone(), limit(deadline));
        self.on_file_systems(move |file_systems| file_systems.mount(&step, limit)).await
    }

    async fn unmount(&self, target: &MountTarget, deadline: Instant) -> Result<(), KernelError> {
        let (target, limit) = (target.clone(), limit(deadline));
        self.on_file_systems(move |file_systems| file_systems.unmount(&target, limit)).await
    }

    async fn sync(&self, mountpoint: &Path) -> Result<(), KernelError> {
        let mountpoint = mountpoint.to_owned();
        // A server that does not answer must not delay the record of an end.
        let synced = timeout(STEP_TIMEOUT, blocking(move || file_systems::sync(&mountpoint)));
        synced.await.unwrap_or_else(|_| Err(failed("synchronize: no answer in time")))
    }

    async fn found(&self) -> Result<FoundObjects, KernelError> {
        let devices = self.on_devices(Devices::marked).await?;
        let (mounts, directories) = self.on_file_systems(FileSystems::found).await?;
        Ok(FoundObjects { mounts, directories, devices })
    }

    async fn remove_directory(&self, path: &Path) -> Result<(), KernelError> {
        let path = path.to_owned();
        self.on_file_systems(move |file_systems| file_systems.remove_directory(&path)).await
    }
}
