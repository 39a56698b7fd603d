//! Built-in actions of a workflow. They run in the in-memory environment of the machine that is provisioned. The program
//! `tinwright-worker` (`src/bin/tinwright-worker`) gets its actions from the control plane and calls this library.
//!
//! ```text
//! Builtin::find(image reference, command) ── run(environment, context) ──▶ ActionOutcome
//!
//! image2disk   download ─▶ decompress ─▶ disk, then read back        (three stages, overlapping)
//!   with a map compare the disk ─▶ download the blocks that it lacks ─▶ disk, read back behind
//! archive2disk download ─▶ decompress ─▶ tar ─┐
//! writefile                                   ├ a thread with its own mount namespace: mount, chroot, work, unmount
//! cexec, grub2disk                            │
//! kexec        copies kernel and initrds ─────┘ then loads them; the caller jumps to the kernel
//! rootio       metadata ─▶ partition tables, read back; file systems
//! wipe         discard or zero, then read back
//! reboot, poweroff   returned to the caller, which reports them before it ends the boot
//! ```
//!
//! - [`builtin`]: the table of built-in actions, and finding one by image reference.
//! - [`context`]: inputs and outcomes of actions; [`action`]: running one; [`reaction`]: the command after a failed one.
//! - [`environment`]: the variables of an action, validated. [`image_keys`]: signatures of images.
//! - [`progress`]: progress reports.
//! - [`inventory`]: the parts of this machine; [`lldp`]: its neighbours on the network.
//!
//! This library never retries an action: each run has one [`ActionOutcome`]. A failure is one line with the operation that
//! failed and its cause. Only the program communicates with the control plane.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod action;
mod archive2disk;
pub mod builtin;
mod cexec;
mod checksum;
mod command;
mod compression;
mod contents;
pub mod context;
mod disk;
mod download;
pub mod environment;
mod error;
mod fetch;
mod grub2disk;
mod image2disk;
pub mod image_keys;
pub mod inventory;
mod kexec;
pub mod lldp;
mod mounted_root;
mod partition_table;
pub mod progress;
pub mod reaction;
pub mod rootio;
mod unpack;
mod wipe;
mod writefile;

pub use action::run;
pub use builtin::Builtin;
pub use context::{ActionOutcome, Context, Terminal};
pub use download::RetryPolicy;
pub use environment::Environment;
pub use progress::Progress;
pub use reaction::react;
