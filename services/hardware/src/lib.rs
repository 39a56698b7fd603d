//! The machines of a site: their parts, their networks, and their own states.
//!
//! - [`api`]: the gRPC service; it decides nothing.
//! - [`state`]: the lifecycle of a machine as values; no I/O.
//! - [`check`]: the rules for records, and the form in which they are stored.
//! - [`records`]: the records in the store; no gRPC.
//! - `scripts`: the scripts that an update leaves unchanged.
//! - [`peers`]: what the other services have for a machine.
//! - `tenant`: the part of a machine that the tenant of the instance on it sees.
//! - `interrupted`: deletes that were interrupted, continued.
//!
//! The use of a machine is recorded by the instance service, its BMC by the power service.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod check;
#[cfg(test)]
mod fake_peers;
mod interrupted;
mod inventory;
pub mod peers;
pub mod records;
mod scripts;
pub mod state;
mod tenant;

pub use api::Api;
pub use peers::Peers;
pub use records::{Error, HardwareRecords};
