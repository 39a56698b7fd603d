//! Loop devices and mounts with the host's kernel, as root, each test in a mount namespace of its own.
//!
//! Tests of peers (NFS servers, iSCSI targets, Ceph) need kernel modules and run in virtual machines, not here.
#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod binds;
mod loops;
mod overlays;
mod scene;
mod stacks;
