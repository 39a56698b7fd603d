//! What machines are occupied by: from the wish for a system on one until it is given back, wiped.
//!
//! - [`api`]: gRPC in, gRPC out; no decisions.
//! - [`state`]: an instance's life, as values; no I/O.
//! - [`check`]: what an instance's record may say, and the form it is stored in.
//! - [`instances`]: the records in the store, and with them the claims on machines; no gRPC.
//! - [`peers`]: what is asked of the hardware, workflow and power services.
//! - [`reconcile`]: brings machines to their instances and back.
//!
//! **Claim first, verify after.** The claim is an index entry committed with the record, so a machine has one occupant
//! whatever else happens; whether the machine may be used is found out afterwards, and an instance that got one that may
//! not fails and lets go of it. A machine that something was done to is let go of wiped, or into maintenance.

pub mod api;
pub mod check;
pub mod instances;
pub mod peers;
pub mod reconcile;
#[cfg(test)]
mod site;
pub mod state;

pub use api::Api;
pub use instances::{Error, Instances};
