//! Executes the calls of the ImageAPI on a node: attachments, mounts and containers, with references, collection and recovery.
//!
//! ```text
//! ImageCall ─▶ Node ─▶ create | delete | containers ─▶ objects (memory) ─▶ ImageResult
//!                         │ before and after each step: journal (file)
//!                         │ steps: kernel (traits)
//!                      collect: objects with count 0, again and again until their teardown succeeds
//! start:  journal + kernel ─▶ reconcile ─▶ objects
//! ```
//!
//! - [`Node`]: the handle: calls, snapshots, change notifications.
//! - [`kernel`]: the traits of the kernel: block devices, file systems, and processes of containers.
//! - [`linux`]: the kernel of a Linux host, over the crates `mounts` and `containers`.
//! - [`options`]: settings and limits.
//! - `definition`: the objects in a request: their dependencies, and the rules that need no kernel.
//! - `objects`: all objects in memory: states, references, names, ids, views. Pure.
//! - `journal`: the records that survive the process.
//! - `calls`: one call: its deadline, its id and its journalled result.
//! - `create`, `delete`, `containers`: the calls that change something. `collect`: removal of what nobody uses.
//! - [`desired_stack`]: brings a stack to the node, and keeps its containers running. [`streams`]: the streams to the control plane, which
//!   names that stack.
//! - `reconcile`: after a start, compares the journal with the kernel; `leftovers`: removes what no record names.
//!
//! **Locks.** The objects are behind one mutex that is never held across a wait; it makes every change of a count atomic. Kernel
//! steps of an object happen under the object's own lock. No task waits for the lock of an object while it holds that of
//! another, except a creation that is undone: it goes from an object to its dependencies, whose ids are lower, and has given up
//! the lock of the object before. So there is no deadlock, and a slow step delays its own object only.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod calls;
mod collect;
mod containers;
mod core;
mod create;
mod definition;
mod delete;
pub mod desired_stack;
mod error;
mod journal;
pub mod kernel;
mod leftovers;
pub mod linux;
mod node;
mod objects;
pub mod options;
mod reconcile;
mod resolve;
mod results;
pub mod streams;
mod teardown;
#[cfg(test)]
mod tests;

pub use journal::OpenError;
pub use node::Node;
pub use objects::Snapshot;
pub use options::NodeOptions;
