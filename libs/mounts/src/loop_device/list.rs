//! The loop devices that have a file.

use std::{fs, os::fd::AsFd, path::Path};

use rustix::{fs::OFlags, io::Errno};

use super::LoopDevice;
use crate::{Error, Result, sys, sysfs};

const BLOCK_DEVICES: &str = "/sys/block";

/// Returns all loop devices with a file, those of other programs too, by number.
///
/// # Errors
/// [`Error::Failed`] if they cannot be read.
pub fn list() -> Result<Vec<LoopDevice>> {
    let names = sysfs::entries(Path::new(BLOCK_DEVICES))?;
    let mut devices = Vec::new();
    for number in names.iter().filter_map(|name| name.strip_prefix("loop")?.parse().ok()) {
        devices.extend(attached(number).map_err(|e| Error::failed("read loop device", e))?);
    }
    devices.sort_unstable_by_key(|device| device.number);
    Ok(devices)
}

/// Returns the device with the mark `mark`.
///
/// # Errors
/// [`Error::Failed`] if the devices cannot be read.
pub fn find_by_mark(mark: &str) -> Result<Option<LoopDevice>> {
    Ok(list()?.into_iter().find(|device| device.mark == mark))
}

/// Returns the devices of one file, given by its file system's device number and its inode number.
///
/// # Errors
/// [`Error::Failed`] if the devices cannot be read.
pub fn find_by_inode(inode: (u64, u64)) -> Result<Vec<LoopDevice>> {
    Ok(list()?.into_iter().filter(|device| device.inode == inode).collect())
}

/// Returns device `number`, or `None` if it has no file.
pub(super) fn attached(number: u32) -> rustix::io::Result<Option<LoopDevice>> {
    // The directory exists exactly while the device has a file.
    if !Path::new(BLOCK_DEVICES).join(format!("loop{number}/loop")).exists() {
        return Ok(None);
    }
    let described =
        super::open(number, OFlags::RDONLY).and_then(|device| describe(number, &device));
    match described {
        Ok(device) => Ok(Some(device)),
        Err(Errno::NXIO | Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns the state of the open device `number`.
pub(super) fn describe(number: u32, device: impl AsFd) -> rustix::io::Result<LoopDevice> {
    let info = sys::loop_info(device)?;
    let attribute = Path::new(BLOCK_DEVICES).join(format!("loop{number}/loop/backing_file"));
    let backing_file = fs::read(attribute).unwrap_or_default();
    Ok(LoopDevice {
        number,
        mark: mark(&info),
        read_only: info.flags & sys::LOOP_READ_ONLY != 0,
        partition_scan: info.flags & sys::LOOP_PARTITION_SCAN != 0,
        inode: (device_number(info.device), info.inode),
        backing_file: String::from_utf8_lossy(&backing_file).trim_end_matches('\n').to_owned(),
    })
}

/// Returns the text of `lo_file_name` up to its zero.
pub(super) fn mark(info: &sys::LoopInfo) -> String {
    let text = info.file_name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Returns a device number as stat(2) gives it. The kernel's own has 20 bits of minor number around 12 bits of major number.
fn device_number(kernel: u64) -> u64 {
    rustix::fs::makedev(rustix::fs::major(kernel), rustix::fs::minor(kernel))
}
