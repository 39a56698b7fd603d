//! The kernel of a Linux host, over the crates `mounts` and `containers`.
//!
//! - [`LinuxStorage`]: block devices and file systems. [`LinuxContainers`]: runs of containers with supervisors.
//! - [`missing_interfaces`]: what the host's kernel lacks.
//! - `devices`, `file_systems`: the steps; `device_detail`: what the journal keeps of a device; `directories`: the directories of
//!   mounts in both of their spellings; `steps`: blocking calls and deadlines.
//!
//! The steps use the mount namespace of the process.

mod containers;
mod device_detail;
mod devices;
mod directories;
mod file_systems;
mod interfaces;
mod rbd_image;
mod steps;
mod storage;

pub use containers::{ContainerSettings, LinuxContainers};
pub use interfaces::{MissingInterface, missing_interfaces};
pub use storage::{LinuxStorage, StorageSettings};
