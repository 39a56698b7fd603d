//! What runs on the machine, in memory: the built-in actions of a workflow, and around them the program
//! `tinwright-worker`, which takes them from the control plane (`src/bin/tinwright-worker`).
//!
//! ```text
//! Builtin::named(image reference) ── run(environment, context) ──▶ Outcome
//!
//! image2disk download ─▶ unpack ─▶ disk, then read back            (three stages, overlapping)
//! writefile ┬ mount on a thread with a mount namespace of its own, chroot, work, unmount
//! cexec     ┘
//! wipe      discard or zero, then read back
//! reboot, poweroff   described to the caller, who reports first and acts then
//! ```
//!
//! - [`action`]: which action an image reference names, and how it ends.
//! - [`environment`]: an action's variables, checked.
//! - [`progress`]: what a long action says while it runs.
//!
//! An action never decides to run again: it ends in one [`Outcome`], and a failure is one line that says what failed
//! and where. Nothing in this library knows the control plane: that is the program's.

pub mod action;
mod cexec;
mod checksum;
mod compression;
mod disk;
mod download;
pub mod environment;
mod image2disk;
mod installed;
pub mod progress;
mod wipe;
mod writefile;

pub use action::{Builtin, Context, Failure, Outcome, Policy, Terminal, run};
pub use download::Patience;
pub use environment::Environment;
pub use progress::Progress;
