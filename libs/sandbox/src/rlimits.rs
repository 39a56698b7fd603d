//! Resource limits of the job's processes.

use nix::sys::resource::{Resource, setrlimit};

use crate::job::Limits;
use crate::link::{Fault, InStep};

/// Sets the limits. Without a cgroup, they also replace its limits of memory and processes.
pub(crate) fn apply(limits: &Limits, has_cgroup: bool) -> Result<(), Fault> {
    let always = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, limits.file_bytes),
        (Resource::RLIMIT_NOFILE, limits.open_files),
        (Resource::RLIMIT_MEMLOCK, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ];
    let instead_of_cgroup =
        [(Resource::RLIMIT_AS, limits.memory_bytes), (Resource::RLIMIT_NPROC, limits.processes)];
    let also: &[_] = if has_cgroup { &[] } else { &instead_of_cgroup };
    always.iter().chain(also).try_for_each(|(resource, value)| {
        let value = clamp(*resource, *value);
        setrlimit(*resource, value, value).in_step(&format!("{resource:?}"))
    })
}

/// Lowers `value` to the hard limit that this process has already.
fn clamp(resource: Resource, value: u64) -> u64 {
    nix::sys::resource::getrlimit(resource).map_or(value, |(_, hard)| value.min(hard))
}
