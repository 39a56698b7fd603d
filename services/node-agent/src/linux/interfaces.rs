//! Interfaces of the kernel that the kinds of attachments and mounts need.

use std::path::Path;

/// An interface that the host's kernel does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingInterface {
    /// The kernel module that brings it.
    pub module: &'static str,
    /// The objects that cannot be created without it.
    pub used_for: &'static str,
}

/// Returns what the kernel lacks now. A module that is loaded later needs no restart of the program.
pub fn missing_interfaces() -> Vec<MissingInterface> {
    let file_systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_file_system =
        |name: &str| file_systems.lines().any(|line| line.split('\t').next_back() == Some(name));
    let exists = |path: &str| Path::new(path).exists();
    let all = [
        ("rbd", "attachments of kind rbd", exists("/sys/bus/rbd")),
        ("overlay", "mounts of kind overlay", has_file_system("overlay")),
        ("loop", "attachments of kind loopback", exists("/dev/loop-control")),
        ("nfs", "mounts of kind nfs", has_file_system("nfs") || has_file_system("nfs4")),
        ("iscsi_tcp", "attachments of kind iscsi", exists("/sys/class/iscsi_transport/tcp")),
    ];
    let missing = all.into_iter().filter(|(_, _, exists)| !exists);
    missing.map(|(module, used_for, _)| MissingInterface { module, used_for }).collect()
}
