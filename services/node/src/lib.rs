//! Nodes: machines whose agents attach, mount and run system images; their stacks, and calls of the ImageAPI for them.
//!
//! ```text
//! agent ─Connect─▶ connect ─▶ streams          in the memory of this process
//! CallNode ─▶ calls ─┬▶ streams ─▶ agent       if this process has a stream of the node
//!                    └▶ mailbox ─▶ the process that has one ─▶ agent
//! instances, machines ─▶ directory ─▶ reconcile ─┬▶ the desired version of each node ─▶ streams ─▶ agent
//!                                                └▶ "the stack runs" ─▶ the instance that waits for it
//! ```
//!
//! - [`api`]: the gRPC services; they decide nothing.
//! - [`nodes`]: the records of nodes. [`node_state`]: their changes as values; no I/O.
//! - [`stacks`]: the records of stacks. [`definitions`]: the rules for their containers. [`versions`]: their versions and rollouts as values.
//! - [`rollout`]: the next step of a rollout; pure.
//! - [`streams`]: the streams of agents. [`connect`]: one of them, from its hello to its end.
//! - [`calls`]: a call for a node, by a stream of this process ([`delivery`]) or of another one ([`forward`], [`mailbox`]). [`take`]: those that
//!   others pass on.
//! - [`servers`]: the processes that have streams.
//! - [`directory`]: machines and their instances, as other services have them. `peers`: other calls of these services.
//! - [`reconcile`]: assigns stacks to nodes, carries out rollouts, sends desired stacks, and reports those that run.
//!
//! # A stack is sent to the boot that it is for
//!
//! A stack has secrets. Whoever has access to a machine as one instance can keep its node's identity, and wait for the next instance. So
//! an agent is refused unless its identity is of the machine's present boot epoch; each boot needs an epoch of its own; and the stack of an
//! instance is sent only to a boot that began after the machine was booted for that instance.
//!
//! # A call is carried out once
//!
//! Each call has an id, and agents store results by it. So a call may be sent again when a stream ends, and by several processes: the node
//! gets it at least once, and carries it out once. A call that no stream took is not carried out later: who waits for it takes it back by
//! the revision of its record, or learns that a process took it.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod calls;
pub mod connect;
pub mod definitions;
pub mod delivery;
mod desired;
pub mod directory;
mod error;
pub mod forward;
pub mod mailbox;
pub mod node_state;
pub mod nodes;
mod peers;
pub mod reconcile;
pub mod rollout;
pub mod servers;
pub mod stacks;
pub mod streams;
pub mod take;
pub mod versions;

pub use api::{Api, CalledServices};
pub use error::Error;
