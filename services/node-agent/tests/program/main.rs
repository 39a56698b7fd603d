//! The program `tinwright-node` on this host, as root, each time in a mount namespace of its own, with images that the tests make.
//!
//! The host needs busybox-static, e2fsprogs and squashfs-tools, and Python 3. Some tests trace the program (ptrace(2)).
#![allow(clippy::unwrap_used, missing_docs, clippy::wildcard_enum_match_arm)]

mod agent;
#[cfg(target_arch = "x86_64")]
mod agent_steps;
mod bodies;
mod client;
mod containers;
mod crash;
#[cfg(target_arch = "x86_64")]
mod crash_steps;
mod defects;
mod host;
mod hostile;
mod listeners;
mod load;
mod python;
mod requests;
mod stacks;
/// It reads the registers of this architecture.
#[cfg(target_arch = "x86_64")]
mod tracer;
