//! What exists on the host now, for a caller that compares it with what it has written down: after a restart, an object that is
//! written down as planned may exist or not, and one that exists may be of nobody any more.

use std::path::Path;

use crate::{
    Result,
    iscsi::{Iscsi, IscsiSession},
    loop_device::{self, LoopDevice},
    mount_table::{self, MountEntry},
    rbd::{Rbd, RbdDevice},
};

/// Mounts and devices. Those of other programs are left out where they can be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// Mounts below the given directory, in the order in which they were made.
    pub mounts: Vec<MountEntry>,
    /// Loop devices whose mark begins with the given prefix, by number.
    pub loop_devices: Vec<LoopDevice>,
    /// All mapped RBD images, by number.
    pub rbd_devices: Vec<RbdDevice>,
    /// All iSCSI sessions, by number.
    pub iscsi_sessions: Vec<IscsiSession>,
}

/// Returns the mounts below `mounts` and the devices. Kinds of devices whose kernel module is not loaded have none.
///
/// # Errors
/// [`crate::Error::Failed`] if the kernel's lists cannot be read.
pub fn read(mounts: &Path, mark_prefix: &str, rbd: &Rbd, iscsi: &Iscsi) -> Result<Inventory> {
    let mut loop_devices = loop_device::list()?;
    loop_devices.retain(|device| device.mark.starts_with(mark_prefix));
    Ok(Inventory {
        mounts: mount_table::below(mounts)?,
        loop_devices,
        rbd_devices: rbd.list()?,
        iscsi_sessions: iscsi.list()?,
    })
}
