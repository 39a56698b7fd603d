//! Mounts of file systems on block devices.

use std::path::Path;

use rustix::io::Errno;

use crate::{Deadline, Error, Result, bounded::bounded, mount_options::MountOptions, mount_point};

/// Mounts the file system of type `fs_type` on `device` at the directory `target`.
///
/// # Errors
/// [`Error::Invalid`] for a type that cannot be one, [`Error::Missing`] if the kernel does not know it, [`Error::Busy`] if something
/// else uses the device, [`Error::Failed`] otherwise. A mount that is complete only after the deadline is undone.
pub fn mount(
    device: &Path,
    fs_type: &str,
    options: &MountOptions,
    target: &Path,
    deadline: Deadline,
) -> Result<()> {
    if fs_type.is_empty() || fs_type.contains(['\0', '/', ',', ' ']) {
        return Err(Error::Invalid(format!("{fs_type:?} is not a type of file system")));
    }
    let step = format!("mount {} as {fs_type}", device.display());
    let (device, fs_type) = (device.to_owned(), fs_type.to_owned());
    let (options, target) = (options.clone(), target.to_owned());
    let work = {
        let step = step.clone();
        move || {
            let MountOptions { flags, data } = &options;
            rustix::mount::mount(&device, &target, &fs_type, *flags, data.as_c_str())
                .map_err(|errno| refused(step, &fs_type, options.is_read_only(), errno))?;
            Ok(target)
        }
    };
    bounded(&step, deadline, work, mount_point::undo).map(drop)
}

fn refused(step: String, fs_type: &str, read_only: bool, errno: Errno) -> Error {
    match errno {
        Errno::NODEV => Error::Missing(format!("the kernel has no file system {fs_type}")),
        Errno::BUSY => Error::Busy(format!("{step}: the device or directory is in use")),
        // The kernel opens the device for writing unless the mount is read-only.
        Errno::ACCESS if !read_only => {
            let cause = "Permission denied: a device that is read-only needs the option ro";
            Error::Failed { step, cause: cause.into(), errno: Some(errno.raw_os_error()) }
        }
        other => Error::failed(step, other),
    }
}
