//! What runs on the machine, in memory: the built-in actions of a workflow, and around them the program
//! `tinwright-worker`, which takes them from the control plane (`src/bin/tinwright-worker`).
//!
//! ```text
//! Builtin::named(image reference, command) ── run(environment, context) ──▶ Outcome
//!
//! image2disk   download ─▶ unpack ─▶ disk, then read back            (three stages, overlapping)
//! archive2disk download ─▶ unpack ─▶ tar ─┐
//! writefile                               ├ a thread with a mount namespace of its own: mount, chroot, work, unmount
//! cexec, grub2disk                        │
//! kexec        kernel and initrds out of ─┘ then loaded; the jump itself is described to the caller
//! rootio       metadata ─▶ partition tables, read back; file systems
//! wipe         discard or zero, then read back
//! reboot, poweroff   described to the caller, who reports first and acts then
//! ```
//!
//! - [`builtin`]: which actions there are, and which of them an image reference names.
//! - [`action`]: what an action needs, and how it ends; [`react`]: what is run after one that ended badly.
//! - [`environment`]: an action's variables, checked.
//! - [`progress`]: what a long action says while it runs.
//!
//! An action never decides to run again: it ends in one [`Outcome`], and a failure is one line that says what failed
//! and where. Nothing in this library knows the control plane: that is the program's.

pub mod action;
mod archive2disk;
pub mod builtin;
mod cexec;
mod checksum;
mod command;
mod compression;
mod disk;
mod dispatch;
mod download;
pub mod environment;
mod fetch;
mod grub2disk;
mod image2disk;
mod installed;
mod kexec;
pub mod progress;
mod reaction;
pub mod rootio;
mod unpack;
mod wipe;
mod writefile;

pub use action::{Context, Failure, Outcome, Terminal};
pub use builtin::{Builtin, Policy};
pub use dispatch::run;
pub use download::RetryPolicy;
pub use environment::Environment;
pub use progress::Progress;
pub use reaction::react;
