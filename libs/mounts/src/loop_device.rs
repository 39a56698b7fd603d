//! Loop devices: block devices whose content is a file (loop(4)).
//!
//! Each is given a *mark* in its `lo_file_name`, where losetup(8) has the file's path. By it a device is found again after a
//! crash between attaching and writing that down, although several devices may have the same file.

mod list;

use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

pub use list::{find_by_inode, find_by_mark, list};

use crate::{Deadline, Error, Result, bounded::bounded, deadline::poll, paths::ResolvedPath, sys};

/// Longest mark in bytes.
pub const MAX_MARK_BYTES: usize = sys::LOOP_NAME_BYTES - 1;

/// Time for detaching a device that was ready only after its deadline.
const UNDO_LIMIT: Duration = Duration::from_secs(5);

/// How a file is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopOptions {
    /// Names the device for [`find_by_mark`]; 1 to [`MAX_MARK_BYTES`] bytes, unique among the caller's devices.
    pub mark: String,
    /// Refuses writes although the file could be written.
    pub read_only: bool,
    /// Makes devices of the partitions that the file has, named `/dev/loopNpM`.
    pub partition_scan: bool,
}

/// A loop device with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    /// N of `/dev/loopN`.
    pub number: u32,
    /// What [`LoopOptions::mark`] was; of other programs' devices mostly the path of the file.
    pub mark: String,
    /// True if the device refuses writes.
    pub read_only: bool,
    /// True if partitions are looked for.
    pub partition_scan: bool,
    /// Device number of the file's file system, and the file's inode number.
    pub inode: (u64, u64),
    /// Path of the file as the kernel shows it, which is empty if it cannot be read.
    pub backing_file: String,
}

impl LoopDevice {
    /// Returns the path of the device.
    pub fn device_file(&self) -> PathBuf {
        device_file(self.number)
    }
}

fn device_file(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// Attaches `file`; read-only if it cannot be opened for writing.
///
/// # Errors
/// [`Error::Invalid`] if it is not a regular file or the mark does not fit, [`Error::Missing`] if the kernel has no loop devices,
/// [`Error::Failed`] otherwise. A device that is ready only after the deadline is detached again.
pub fn attach(file: &ResolvedPath, options: LoopOptions, deadline: Deadline) -> Result<LoopDevice> {
    let name = file_name(&options.mark)?;
    if file.file_type() != FileType::RegularFile {
        return Err(Error::Invalid(format!("{} is not a regular file", file.name().display())));
    }
    let (backing, writable) = open_backing(file, options.read_only)?;
    let mut flags = 0;
    if !writable {
        flags |= sys::LOOP_READ_ONLY;
    }
    if options.partition_scan {
        flags |= sys::LOOP_PARTITION_SCAN;
    }
    let step = format!("attach {}", file.name().display());
    let undo = |device: LoopDevice| {
        let limit = Deadline::after(UNDO_LIMIT);
        if let Err(error) = detach(device.number, &device.mark, limit) {
            tracing::error!(device.number, %error, "late loop device not detached");
        }
    };
    let work = {
        let step = step.clone();
        move || configure(&step, backing, flags, name, deadline)
    };
    bounded(&step, deadline, work, undo)
}

fn open_backing(file: &ResolvedPath, read_only: bool) -> Result<(OwnedFd, bool)> {
    if !read_only && let Ok(descriptor) = file.open(OFlags::RDWR) {
        return Ok((descriptor, true));
    }
    let step = || format!("open {}", file.name().display());
    let descriptor = file.open(OFlags::RDONLY).map_err(|e| Error::failed(step(), e))?;
    Ok((descriptor, false))
}

fn file_name(mark: &str) -> Result<[u8; sys::LOOP_NAME_BYTES]> {
    let mut name = [0; sys::LOOP_NAME_BYTES];
    let fits = (1..=MAX_MARK_BYTES).contains(&mark.len()) && !mark.contains('\0');
    match name.get_mut(..mark.len()) {
        Some(start) if fits => start.copy_from_slice(mark.as_bytes()),
        Some(_) | None => {
            let limit = format!("a mark has 1 to {MAX_MARK_BYTES} bytes");
            return Err(Error::Invalid(limit));
        }
    }
    Ok(name)
}

/// Tries free devices until one takes the file: asking for a free number does not reserve it, so that another may be faster.
fn configure(
    step: &str,
    backing: OwnedFd,
    flags: u32,
    name: [u8; sys::LOOP_NAME_BYTES],
    deadline: Deadline,
) -> Result<LoopDevice> {
    let control = open_control()?;
    poll(deadline, step, || {
        let number = sys::free_loop_number(&control).map_err(|e| Error::failed(step, e))?;
        let device = match open(number, OFlags::RDWR) {
            Ok(device) => device,
            Err(errno) => return retry(step, errno),
        };
        match sys::configure_loop(&device, backing.as_fd(), flags, name) {
            Ok(()) => list::describe(number, &device).map(Some).map_err(|errno| {
                let _ = sys::clear_loop(&device);
                Error::failed(step, errno)
            }),
            Err(errno) => retry(step, errno),
        }
    })
}

fn open_control() -> Result<OwnedFd> {
    let path = Path::new("/dev/loop-control");
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            Error::Missing(format!("no {}: is the module loop loaded?", path.display()))
        }
        other => Error::failed(format!("open {}", path.display()), other),
    })
}

fn open(number: u32, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(device_file(number), flags | OFlags::CLOEXEC, Mode::empty())
}

/// `None`, to try again, if another took the device, or its file is not there yet.
fn retry<T>(step: &str, errno: Errno) -> Result<Option<T>> {
    match errno {
        Errno::BUSY | Errno::NOENT | Errno::NXIO | Errno::NODEV => Ok(None),
        other => Err(Error::failed(step, other)),
    }
}

/// Detaches device `number` if it still has the mark `mark`, and returns when it is free; it already is if it has not.
///
/// # Errors
/// [`Error::Busy`] if a file system or another exclusive user has it, in which case it stays as it is. Also if another program
/// has it open until the deadline: then the kernel frees it when that program closes it, and a repeated call reports when.
pub fn detach(number: u32, mark: &str, deadline: Deadline) -> Result<()> {
    let step = format!("detach /dev/loop{number}");
    if !has_mark(number, mark)? {
        return Ok(());
    }
    let device = match open(number, OFlags::RDONLY | OFlags::EXCL) {
        Ok(device) => device,
        Err(Errno::BUSY) => return Err(Error::Busy(format!("/dev/loop{number} is in use"))),
        Err(errno) => return Err(Error::failed(step, errno)),
    };
    // The kernel would clear a device with a file system on it later, when it is unmounted. The exclusive descriptor makes sure
    // that there is none. The mark is read again through it, because the number may have changed hands since.
    match sys::loop_info(&device) {
        Ok(info) if list::mark(&info) == mark => {}
        Ok(_) | Err(Errno::NXIO) => return Ok(()),
        Err(errno) => return Err(Error::failed(step, errno)),
    }
    match sys::clear_loop(&device) {
        Ok(()) | Err(Errno::NXIO) => {}
        Err(Errno::BUSY) => return Err(Error::Busy(format!("/dev/loop{number} is in use"))),
        Err(errno) => return Err(Error::failed(step, errno)),
    }
    drop(device);
    poll(deadline, &step, || Ok((!has_mark(number, mark)?).then_some(()))).map_err(|error| {
        let open = Error::Busy(format!("/dev/loop{number} is open; it is freed when it is closed"));
        if error == Error::expired(&step) { open } else { error }
    })
}

/// True if device `number` has a file and the mark `mark`. The device is opened only if sysfs shows a file, since that can delay
/// its end.
///
/// # Errors
/// [`Error::Failed`] if the device cannot be read.
pub fn has_mark(number: u32, mark: &str) -> Result<bool> {
    let found = list::attached(number).map_err(|e| Error::failed("read loop device", e))?;
    Ok(found.is_some_and(|device| device.mark == mark))
}
