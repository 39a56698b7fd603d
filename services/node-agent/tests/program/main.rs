//! The program `tinwright-node` on this host, as root, each time in a mount namespace of its own, with images that the tests make.
//!
//! The host needs busybox-static, e2fsprogs and squashfs-tools, and Python 3.
#![allow(clippy::unwrap_used, missing_docs, clippy::wildcard_enum_match_arm)]

mod agent;
mod bodies;
mod client;
mod containers;
mod crash;
mod defects;
mod host;
mod hostile;
mod listeners;
mod load;
mod python;
mod requests;
mod stacks;
