//! What the BMCs of a site are told to do to its machines, and the proof that it was done.
//!
//! ```text
//! CreatePowerJob ─▶ job, at the end of its machine's queue      answered here; what follows is the reconciler's
//!   the queue's first job ─▶ read the BMC ─▶ decide ─▶ store the intent ─▶ ask ─▶ read the BMC ─▶ … ─▶ verified
//! ```
//!
//! - [`api`]: gRPC in, gRPC out; no decisions.
//! - [`bmcs`]: where BMCs are and how to get in. [`jobs`]: what they are to do, and the queues.
//! - [`check`]: what those records may say. [`state`]: a job's life, as values; no I/O.
//! - [`plan`]: what to ask of a BMC that reads so; pure. [`redfish`]: how to read and ask.
//! - [`reconcile`]: carries jobs out, one at a time per BMC. [`stored`]: what is kept besides the contract's messages.
//! - [`claim`]: by which of several processes.
//!
//! A password is sealed before it is stored, and leaves this crate only towards the BMC it was given for.

pub mod api;
pub mod bmcs;
pub mod check;
pub mod claim;
mod error;
pub mod jobs;
pub mod plan;
pub mod reconcile;
pub mod redfish;
pub mod state;
pub mod stored;

pub use api::Api;
pub use bmcs::{Bmcs, Clear};
pub use error::Error;
pub use jobs::Jobs;
pub use plan::Pace;
