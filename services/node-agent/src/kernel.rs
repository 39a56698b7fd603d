//! The kernel as a node uses it: block devices and file systems ([`KernelStorage`]), and processes ([`Containers`]).
//!
//! Steps are resolved: they have paths of device files and directories, never references to objects. Before a step that changes
//! the kernel's state, the node writes it to its journal. After a crash it finds the effect of the step again by the step's
//! *mark*, a text that no other step of any node has.
//!
//! Rules for every implementation:
//! - A step that fails has no effect: what it made before the failure is removed again.
//! - `detach`, `unmount`, `forget`, `remove_log` and `remove_directory` succeed if there is nothing left to remove.
//! - A step ends soon after its deadline, with an error. The node never drops the future of a step while the process lives, but it
//!   no longer waits for it after the deadline; if it succeeds later, the node undoes it.
//! - Steps of different objects run at the same time. Blocking system calls belong on threads that may block.
//! - Causes of errors are shown to callers: they have no secret.

mod process;
mod storage;

use std::sync::Arc;

pub use process::{ContainerStep, Containers, Exit, FoundRun, LogFile, RunId, StopSignal};
pub use storage::{
    AttachSource, AttachStep, Device, FoundObjects, KernelStorage, MountSource, MountStep,
    MountTarget, WritableLayer,
};

/// Both parts of the kernel.
#[derive(Clone)]
pub struct Kernel {
    /// Block devices and file systems.
    pub storage: Arc<dyn KernelStorage>,
    /// Processes.
    pub containers: Arc<dyn Containers>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

/// An error of the kernel or of a remote side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct KernelError {
    /// The kind of the error.
    pub kind: KernelErrorKind,
    /// The step that failed and its cause, in one line without a secret.
    pub cause: String,
}

/// Kinds of errors of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelErrorKind {
    /// The definition does not fit: a wrong file type, a missing loop file, a host that cannot be resolved, an unknown option.
    Invalid,
    /// The device or file system is in use, or already exists.
    Busy,
    /// A module of the kernel, a file of sysfs or a netlink family is missing.
    MissingInterface,
    /// The kernel or the remote side refused.
    Failed,
}

impl KernelError {
    /// Returns an error of the kind `kind`.
    pub fn new(kind: KernelErrorKind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into() }
    }
}
