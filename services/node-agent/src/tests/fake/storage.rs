//! Block devices and file systems of the simulated kernel.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{FakeDevice, FakeKernel, FakeMount, State, Tables, busy, failed};
use crate::kernel::{
    AttachSource, AttachStep, Device, FoundObjects, KernelError, KernelStorage, MountSource,
    MountStep, MountTarget,
};

const fn attach_kind(source: &AttachSource) -> &'static str {
    match source {
        AttachSource::Iscsi(_) => "iscsi",
        AttachSource::Local { .. } => "local",
        AttachSource::Loopback { .. } => "loopback",
        AttachSource::Rbd(_) => "rbd",
    }
}

const fn mount_kind(source: &MountSource) -> &'static str {
    match source {
        MountSource::Device { .. } => "device",
        MountSource::Bind { .. } => "bind",
        MountSource::Nfs { .. } => "nfs",
        MountSource::Overlay { .. } => "overlay",
    }
}

fn device(file: PathBuf, kind: &str) -> Device {
    Device { file, device_id: 0, detail: kind.as_bytes().to_vec() }
}

fn kind_of(device: &Device) -> String {
    String::from_utf8(device.detail.clone()).unwrap()
}

impl State {
    fn attach(&mut self, step: &AttachStep) -> Result<Device, KernelError> {
        let kind = attach_kind(&step.source);
        let (base, image) = match &step.source {
            AttachSource::Local { path } => return Ok(device(path.clone(), kind)),
            AttachSource::Loopback { base, .. } => {
                if base != Path::new("/") && !self.tables.is_mounted(base) {
                    return Err(failed("the base is not mounted"));
                }
                (Some(base.clone()), String::new())
            }
            AttachSource::Rbd(rbd) => {
                if self.tables.devices.values().any(|device| device.image == rbd.image) {
                    return Err(busy(Path::new(&rbd.image)));
                }
                (None, rbd.image.clone())
            }
            AttachSource::Iscsi(_) => (None, String::new()),
        };
        self.next_device += 1;
        let file = PathBuf::from(format!("/dev/{kind}{}", self.next_device));
        let mark = step.mark.clone();
        self.tables.devices.insert(file.clone(), FakeDevice { mark, base, image });
        Ok(device(file, kind))
    }

    fn mount(&mut self, step: &MountStep) -> Result<(), KernelError> {
        let tables = &mut self.tables;
        let uses = match &step.source {
            MountSource::Device { device_file, .. } => {
                let is_local = !device_file.to_string_lossy().ends_with(|c: char| c.is_numeric());
                if !is_local && !tables.devices.contains_key(device_file) {
                    return Err(failed("no such device"));
                }
                vec![device_file.clone()]
            }
            MountSource::Bind { base, .. } => vec![base.clone()],
            MountSource::Nfs { .. } => Vec::new(),
            MountSource::Overlay { lower } => lower.clone(),
        };
        let is_directory = |path: &Path| path.starts_with("/dev") || path == Path::new("/");
        if uses.iter().any(|path| !is_directory(path) && !tables.is_mounted(path)) {
            return Err(failed("a directory is not mounted"));
        }
        let MountTarget { mountpoint, writable, recursive: _ } = step.target.clone();
        let writable = writable.into_iter().flat_map(|writable| [writable.upper, writable.work]);
        tables.directories.extend(writable.chain([mountpoint.clone()]));
        tables.mounts.push(FakeMount { mountpoint, uses });
        Ok(())
    }
}

impl Tables {
    fn unmount(&mut self, target: &MountTarget) -> Result<(), KernelError> {
        if self.is_used(&target.mountpoint) {
            return Err(busy(&target.mountpoint));
        }
        self.mounts.retain(|mount| mount.mountpoint != target.mountpoint);
        self.directories.remove(&target.mountpoint);
        if let Some(writable) = &target.writable {
            self.directories.remove(&writable.upper);
            self.directories.remove(&writable.work);
        }
        Ok(())
    }
}

#[async_trait]
impl KernelStorage for FakeKernel {
    async fn prepare(&self, source: &AttachSource) -> Result<Vec<u8>, KernelError> {
        self.begin(&format!("prepare {}", attach_kind(source))).await?;
        Ok(b"baseline".to_vec())
    }

    async fn attach(&self, step: &AttachStep, _deadline: Instant) -> Result<Device, KernelError> {
        let name = format!("attach {}", attach_kind(&step.source));
        self.begin(&name).await?;
        let attached = self.change(|state| state.attach(step));
        self.end(&name).await;
        attached
    }

    async fn find(&self, step: &AttachStep) -> Result<Option<Device>, KernelError> {
        let kind = attach_kind(&step.source);
        self.begin(&format!("find {kind}")).await?;
        assert_eq!(step.baseline, b"baseline");
        let tables = self.tables();
        let found = tables.devices.iter().find(|(_, device)| match &step.source {
            AttachSource::Rbd(rbd) => device.image == rbd.image,
            AttachSource::Iscsi(_) | AttachSource::Local { .. } | AttachSource::Loopback { .. } => {
                device.mark == step.mark
            }
        });
        Ok(found.map(|(file, _)| device(file.clone(), kind)))
    }

    async fn detach(&self, device: &Device, _deadline: Instant) -> Result<(), KernelError> {
        let name = format!("detach {}", kind_of(device));
        self.begin(&name).await?;
        let detached = self.change(|state| {
            if kind_of(device) != "local" && state.tables.is_used(&device.file) {
                return Err(busy(&device.file));
            }
            state.tables.devices.remove(&device.file);
            Ok(())
        });
        self.end(&name).await;
        detached
    }

    async fn is_attached(&self, device: &Device) -> Result<bool, KernelError> {
        self.begin("is attached").await?;
        let state = self.state();
        let is_local = kind_of(device) == "local";
        let exists = is_local || state.tables.devices.contains_key(&device.file);
        Ok(exists && !state.no_device_file)
    }

    async fn mount(&self, step: &MountStep, _deadline: Instant) -> Result<(), KernelError> {
        let name = format!("mount {}", mount_kind(&step.source));
        self.begin(&name).await?;
        let mounted = self.change(|state| state.mount(step));
        self.end(&name).await;
        mounted
    }

    async fn unmount(&self, target: &MountTarget, _deadline: Instant) -> Result<(), KernelError> {
        let tables = self.tables();
        let mount = tables.mounts.iter().find(|mount| mount.mountpoint == target.mountpoint);
        let kind = match (&target.writable, mount) {
            (_, None) => "nothing",
            (Some(_), _) => "overlay",
            (None, Some(mount)) if mount.uses.is_empty() => "nfs",
            (None, Some(mount)) if mount.uses[0].starts_with("/dev") => "device",
            (None, Some(_)) => "bind",
        };
        let name = format!("unmount {kind}");
        self.begin(&name).await?;
        let unmounted = self.change(|state| state.tables.unmount(target));
        self.end(&name).await;
        unmounted
    }

    async fn sync(&self, _mountpoint: &Path) -> Result<(), KernelError> {
        self.begin("sync").await
    }

    async fn found(&self) -> Result<FoundObjects, KernelError> {
        let tables = self.tables();
        let devices = tables.devices.into_iter();
        Ok(FoundObjects {
            mounts: tables.mounts.into_iter().map(|mount| mount.mountpoint).collect(),
            directories: tables.directories.into_iter().collect(),
            devices: devices.map(|(file, d)| (d.mark, device(file, "loopback"))).collect(),
        })
    }

    async fn remove_directory(&self, path: &Path) -> Result<(), KernelError> {
        self.begin("remove directory").await?;
        self.change(|state| {
            assert!(!state.tables.is_mounted(path), "{} is mounted", path.display());
            state.tables.directories.remove(path)
        });
        self.end("remove directory").await;
        Ok(())
    }
}
