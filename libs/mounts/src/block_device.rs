//! Block devices of any driver.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

use crate::{Deadline, Error, Result, deadline::poll, sysfs};

/// Opens `device` so that nobody else can mount or claim it while the descriptor is open.
///
/// # Errors
/// [`Error::Busy`] if a file system, a mapping above it or another exclusive user has it (`O_EXCL` of open(2) on block devices);
/// [`Error::Failed`] if it cannot be opened.
pub fn claim(device: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(device, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::BUSY => Error::Busy(format!("{} is in use", device.display())),
        other => Error::failed(format!("open {}", device.display()), other),
    })
}

/// Checks below `sys` that no device is built on block device `name`, such as a device mapper table.
///
/// # Errors
/// [`Error::Busy`] if one is, [`Error::Failed`] if that cannot be read.
pub fn check_holders(sys: &Path, name: &str) -> Result<()> {
    let holders = sysfs::entries(&sys.join("block").join(name).join("holders"))?;
    match holders.first() {
        None => Ok(()),
        Some(holder) => Err(Error::Busy(format!("{name} is used by {holder}"))),
    }
}

/// Waits until the device file exists.
///
/// # Errors
/// [`Error::Failed`] if it does not appear before the deadline.
pub(crate) fn wait_for_file(device: &Path, deadline: Deadline) -> Result<()> {
    let step = format!("wait for {}", device.display());
    poll(deadline, &step, || match rustix::fs::stat(device) {
        Ok(_) => Ok(Some(())),
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(None),
        Err(errno) => Err(Error::failed(&step, errno)),
    })
}

/// True if the status is that of a block device.
pub(crate) fn is_block_device(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
}
