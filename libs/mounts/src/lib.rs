//! Block devices and file systems of the Linux host on which this runs.
//!
//! Each function does one step and says how it ended; which steps belong together, who uses what, and what is written down
//! before a step is the caller's. Functions block: call them from a thread that may. Those that can be held up by a device or
//! a server take a [`Deadline`], return at it, and undo what completes later.
//!
//! - [`paths`]: names below a base directory, which cannot leave it.
//! - Devices: [`local`], [`loop_device`], [`rbd`], [`iscsi`]; [`block_device`]: the check that nothing uses one.
//! - Mounts: [`device_mount`] with [`mount_options`], [`bind`], [`nfs`], [`overlay`]; [`mount_point`]: directories to mount on,
//!   and unmounting; [`mount_table`]: the kernel's list.
//! - [`inventory`]: all of them that exist now, for a caller that was restarted.
//!
//! Linux 5.12 or newer, with `/proc`, `/sys` and `/dev` mounted, and root's capabilities. The functions use the mount namespace
//! of the calling thread.

pub mod bind;
pub mod block_device;
mod bounded;
pub mod deadline;
pub mod device_mount;
pub mod error;
mod host_name;
pub mod inventory;
pub mod iscsi;
pub mod local;
pub mod loop_device;
pub mod mount_options;
pub mod mount_point;
pub mod mount_table;
pub mod nfs;
pub mod overlay;
pub mod paths;
mod process;
pub mod rbd;
mod sys;
mod sysfs;

pub use deadline::Deadline;
pub use error::{Error, Result};
