//! The machines a site owns: what they are made of, how they reach the network, and whether they may be used.
//!
//! - [`api`]: gRPC in, gRPC out; no decisions.
//! - [`state`]: a machine's own life, as values; no I/O.
//! - [`check`]: what a machine's record may say, and the form it is stored in.
//! - [`machines`]: the records in the store; no gRPC.
//! - `hidden`: scripts that a basic view hid stay where it is written back.
//! - [`occupancy`]: the one question asked of somebody else.
//!
//! Who uses a machine is the instance service's to say, and no password of a BMC's is kept here.

pub mod api;
pub mod check;
mod hidden;
pub mod machines;
pub mod occupancy;
pub mod state;

pub use api::Api;
pub use machines::{Error, Machines};
pub use occupancy::Occupancy;
