//! Makes the image the root directory, and detaches the host's tree.

use std::fs::File;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind_recursive, mount_change, mount_move, unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root};

use super::step;
use crate::record::{Fault, InStep};

/// Makes `image` the root and the working directory of this process, which is in a mount namespace of its own.
///
/// A host that runs from its initial RAM file system cannot be pivoted (pivot_root(2)): the image is then moved over that
/// root instead, which stays below it. Such a host should move to a tmpfs before it runs containers that are not trusted.
///
/// # Errors
/// The image is no directory, or the kernel refuses a step.
pub(super) fn enter(image: &Path) -> Result<(), Fault> {
    // Nothing that is mounted here may appear on the host.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .in_step("private mounts")?;
    // The new root has to be a mount point.
    mount_bind_recursive(image, image).in_step("binding the image")?;
    let opened = File::open(image).in_step("opening the image")?;
    fchdir(&opened).in_step("entering the image")?;
    match pivot_root(".", ".") {
        // The old root is now mounted over the new one.
        Ok(()) => unmount(".", UnmountFlags::DETACH).in_step("detaching the old root")?,
        Err(Errno::INVAL) => {
            step("the old root cannot be detached: moving the image over it");
            mount_move(".", "/").in_step("moving the image")?;
            chroot(".").in_step("entering the image")?;
        }
        Err(error) => return Err(error).in_step("pivot_root"),
    }
    chdir("/").in_step("entering the image")
}
