//! Block devices: the steps that attach, find and detach them. All functions block.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mounts::iscsi::{Iscsi, IscsiUnit};
use mounts::loop_device::{self, LoopOptions};
use mounts::rbd::Rbd;
use mounts::{Deadline, Error, local, mount_table, paths};
use prost::Message as _;
use tinwright::node::v1::attachment;

use super::device_detail::{Baseline, Detail, IscsiDetail, LocalDetail, LoopDetail, RbdDetail};
use super::rbd_image;
use super::steps::failed;
use crate::kernel::{AttachSource, AttachStep, Device, KernelError, KernelErrorKind};

/// The longest wait for a file system that is mounted in other mount namespaces only: a container that is being started has all mounts of
/// the host for a moment, also those that are unmounted on the host meanwhile.
const OTHER_NAMESPACES_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two attempts to detach a device.
const DETACH_RETRY_DELAY: Duration = Duration::from_millis(10);

type Result<T> = std::result::Result<T, KernelError>;

/// The block devices of the host.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    rbd: Rbd,
    iscsi: Iscsi,
    /// The marks of the iSCSI attachments that [`Iscsi`] counts as users of their sessions.
    counted: Arc<Mutex<BTreeSet<String>>>,
}

impl Devices {
    pub(super) fn new(iscsiadm: &Path) -> Self {
        Self { rbd: Rbd::default(), iscsi: Iscsi::new(iscsiadm), counted: Arc::default() }
    }

    /// Returns what exists before the step, encoded.
    pub(super) fn baseline(&self, source: &AttachSource, limit: Deadline) -> Result<Vec<u8>> {
        let baseline = match source {
            AttachSource::Local { .. } | AttachSource::Loopback { .. } => Baseline::default(),
            AttachSource::Rbd(_) => {
                let rbd_devices = self.rbd.list()?.iter().map(|device| device.id).collect();
                Baseline { rbd_devices, ..Baseline::default() }
            }
            AttachSource::Iscsi(iscsi) => {
                let unit = unit(iscsi)?;
                let key = self.iscsi.session_key(&unit, limit)?;
                let is_attached = self.iscsi.find(&key, unit.lun)?.is_some();
                let session = Some(IscsiDetail::new("", &key, unit.lun));
                Baseline { session, is_attached, ..Baseline::default() }
            }
        };
        Ok(baseline.encode_to_vec())
    }

    /// Attaches a device; `base` is the resolved base of a loopback step.
    pub(super) fn attach(&self, step: &AttachStep, base: &Path, limit: Deadline) -> Result<Device> {
        let mark = &step.mark;
        match &step.source {
            AttachSource::Local { path } => {
                local::check(path)?;
                Ok(device(path, 0, Detail::Local(LocalDetail {})))
            }
            AttachSource::Loopback { base: _, path, read_partitions } => {
                let file = paths::resolve_below(base, Path::new(path), limit)?;
                let partition_scan = *read_partitions;
                let options = LoopOptions { mark: mark.clone(), read_only: false, partition_scan };
                Ok(loop_device(&loop_device::attach(&file, options, limit)?))
            }
            AttachSource::Rbd(rbd) => {
                let (image, force) = rbd_image::image(rbd);
                let mapped = self.rbd.map(&image, limit)?;
                Ok(self.rbd_device(&mapped, force))
            }
            AttachSource::Iscsi(iscsi) => {
                let attached = self.iscsi.attach(&unit(iscsi)?, limit)?;
                self.counted().insert(mark.clone());
                let detail = IscsiDetail::new(mark, &attached.key, attached.lun);
                Ok(device(&attached.device_file, 0, Detail::Iscsi(detail)))
            }
        }
    }

    /// Returns the device that `step` attached before a crash, if it did.
    pub(super) fn find(&self, step: &AttachStep) -> Result<Option<Device>> {
        let unreadable = |_| failed("the baseline of a step is not of this version");
        let baseline = Baseline::decode(step.baseline.as_slice()).map_err(unreadable)?;
        match &step.source {
            AttachSource::Local { .. } => Ok(None),
            AttachSource::Loopback { .. } => {
                Ok(loop_device::find_by_mark(&step.mark)?.as_ref().map(loop_device))
            }
            AttachSource::Rbd(rbd) => {
                let force = rbd.options.as_ref().is_some_and(|options| options.force);
                let is_new = |id: &u32| !baseline.rbd_devices.contains(id);
                let mut mapped = self.rbd.list()?.into_iter();
                let found = mapped.find(|it| is_new(&it.id) && rbd_image::is_device_of(it, rbd));
                Ok(found.map(|found| self.rbd_device(&found, force)))
            }
            AttachSource::Iscsi(_) => self.find_unit(&step.mark, &baseline),
        }
    }

    /// Finds the logical unit of a step. A unit that was attached before the step belongs to others.
    fn find_unit(&self, mark: &str, baseline: &Baseline) -> Result<Option<Device>> {
        let Some(session) = baseline.session.as_ref().filter(|_| !baseline.is_attached) else {
            return Ok(None);
        };
        let key = session.key()?;
        let found = self.iscsi.find(&key, session.lun)?;
        let detail = || Detail::Iscsi(IscsiDetail::new(mark, &key, session.lun));
        Ok(found.map(|found| device(&found.device_file, 0, detail())))
    }

    pub(super) fn detach(&self, device: &Device, limit: Deadline) -> Result<()> {
        match Detail::of(device)? {
            Detail::Local(_) => Ok(()),
            Detail::Loop(LoopDetail { number, mark }) => {
                let detach = || loop_device::detach(number, &mark, limit);
                Ok(until_unmounted_elsewhere(&device.file, limit, detach)?)
            }
            Detail::Rbd(rbd) => {
                let unmap = || self.rbd.unmap(&rbd.device(), rbd.force, limit);
                Ok(until_unmounted_elsewhere(&device.file, limit, unmap)?)
            }
            Detail::Iscsi(iscsi) => {
                // Counted first: else the session would end under its other users.
                if self.count(&iscsi, &device.file, limit)? {
                    let unit = iscsi.device(&device.file)?;
                    let detach = || self.iscsi.detach(&unit, limit);
                    until_unmounted_elsewhere(&device.file, limit, detach)?;
                    self.counted().remove(&iscsi.mark);
                }
                Ok(())
            }
        }
    }

    /// True if the device exists. A logical unit of an earlier process is counted as used from now on.
    pub(super) fn is_attached(&self, device: &Device, limit: Deadline) -> Result<bool> {
        match Detail::of(device)? {
            Detail::Local(_) => match local::check(&device.file) {
                Ok(()) => Ok(true),
                Err(Error::Invalid(_) | Error::Failed { .. }) => Ok(false),
                Err(error @ (Error::Busy(_) | Error::Missing(_))) => Err(error.into()),
            },
            Detail::Loop(LoopDetail { number, mark }) => {
                Ok(loop_device::has_mark(number, &mark)? && device.file.exists())
            }
            Detail::Rbd(rbd) => {
                Ok(self.rbd.list()?.contains(&rbd.device()) && device.file.exists())
            }
            Detail::Iscsi(iscsi) => {
                if !self.count(&iscsi, &device.file, limit)? {
                    return Ok(false);
                }
                let found = self.iscsi.find(&iscsi.key()?, iscsi.lun)?;
                Ok(found.is_some_and(|found| found.device_file == device.file))
            }
        }
    }

    /// Counts an attachment as a user of its session, unless it is counted. False if its logical unit is gone.
    fn count(&self, iscsi: &IscsiDetail, file: &Path, limit: Deadline) -> Result<bool> {
        if self.counted().contains(&iscsi.mark) {
            return Ok(true);
        }
        let found = self.iscsi.adopt(&iscsi.device(file)?, limit)?;
        if found.is_some() {
            self.counted().insert(iscsi.mark.clone());
        }
        Ok(found.is_some())
    }

    /// Returns the loop devices with their marks. Those of other programs have other marks.
    pub(super) fn marked(&self) -> Result<Vec<(String, Device)>> {
        let all = loop_device::list()?;
        Ok(all.iter().map(|it| (it.mark.clone(), loop_device(it))).collect())
    }

    fn rbd_device(&self, mapped: &mounts::rbd::RbdDevice, force: bool) -> Device {
        let detail = Detail::Rbd(RbdDetail::new(mapped, force));
        device(&self.rbd.device_file(mapped), mapped.id.into(), detail)
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        // Each change is one call, so a panic leaves it whole.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Repeats `detach` while the device `file` is busy although this mount namespace does not have its file system.
fn until_unmounted_elsewhere(
    file: &Path,
    limit: Deadline,
    detach: impl Fn() -> mounts::Result<()>,
) -> mounts::Result<()> {
    let wait = limit.min(Deadline::after(OTHER_NAMESPACES_TIMEOUT));
    loop {
        match detach() {
            Err(Error::Busy(_)) if !wait.has_passed() && !is_mounted(file)? => {
                thread::sleep(DETACH_RETRY_DELAY);
            }
            result => return result,
        }
    }
}

/// True if this mount namespace has the file system of the device `file`.
fn is_mounted(file: &Path) -> mounts::Result<bool> {
    Ok(mount_table::read()?.iter().any(|mount| mount.source == file.as_os_str()))
}

fn device(file: &Path, device_id: i64, detail: Detail) -> Device {
    Device { file: file.to_owned(), device_id, detail: detail.into_bytes() }
}

fn loop_device(found: &loop_device::LoopDevice) -> Device {
    let detail = LoopDetail { number: found.number, mark: found.mark.clone() };
    device(&found.device_file(), 0, Detail::Loop(detail))
}

/// Returns the logical unit of a definition with defaults. Numbers that do not fit are invalid.
fn unit(iscsi: &attachment::Iscsi) -> Result<IscsiUnit> {
    let invalid = |name: &str, value: i64| {
        KernelError::new(KernelErrorKind::Invalid, format!("{name} {value} is out of range"))
    };
    let small = |name: &str, value: i64| u16::try_from(value).map_err(|_| invalid(name, value));
    Ok(IscsiUnit {
        initiator: iscsi.initiator.clone(),
        target: iscsi.target.clone(),
        host: iscsi.host.clone(),
        port: small("port", iscsi.port())?,
        lun: u64::try_from(iscsi.lun).map_err(|_| invalid("lun", iscsi.lun))?,
        max_commands: small("max_comands", iscsi.max_commands())?,
        queue_depth: small("queue_depth", iscsi.queue_depth())?,
        scheduler: iscsi.scheduler().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_the_kernel_cannot_take_are_invalid() {
        let iscsi = attachment::Iscsi {
            port: Some(3260),
            max_commands: Some(128),
            queue_depth: Some(16),
            ..attachment::Iscsi::default()
        };
        assert_eq!(unit(&iscsi).unwrap().max_commands, 128);
        for wrong in [
            attachment::Iscsi { port: Some(65536), ..iscsi.clone() },
            attachment::Iscsi { max_commands: Some(-1), ..iscsi.clone() },
            attachment::Iscsi { lun: -1, ..iscsi.clone() },
        ] {
            assert_eq!(unit(&wrong).unwrap_err().kind, KernelErrorKind::Invalid);
        }
    }

    #[test]
    fn the_detail_of_a_device_is_read_as_it_was_written() {
        let detail = Detail::Loop(LoopDetail { number: 7, mark: "abc-1".into() });
        let found = device(Path::new("/dev/loop7"), 0, detail.clone());
        assert_eq!(Detail::of(&found).unwrap(), detail);
        let unreadable = Device { detail: b"\xff".to_vec(), ..found };
        assert_eq!(Detail::of(&unreadable).unwrap_err().kind, KernelErrorKind::Failed);
    }
}
