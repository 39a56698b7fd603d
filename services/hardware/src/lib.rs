//! The machines of a site: their parts, their networks, and their own states.
//!
//! - [`api`]: the gRPC service; it decides nothing.
//! - [`state`]: the lifecycle of a machine as values; no I/O.
//! - [`check`]: the rules for records, and the form in which they are stored.
//! - [`records`]: the records in the store; no gRPC.
//! - [`locations`], [`models`]: where machines stand, and which are alike; their records and rules. [`place`]: the location of a machine.
//! - [`matching`]: the machines of a model; no I/O. `filter`: those of a list.
//! - [`enrolment`]: the rules by which a machine without a record gets one; no I/O. [`enrolments`]: the records of that.
//! - [`acceptance`]: the policy by which enrolled machines become provisionable without an operator.
//! - `bmc_identity`: whether a BMC lists the machine of its record or another one; no I/O.
//! - `network_identity`: the changes of a record that cut off a system in use; no I/O.
//! - [`unknown_machines`]: machines without a record that asked for a boot.
//! - `scripts`: the scripts that an update leaves unchanged.
//! - [`peers`]: what the other services have for a machine.
//! - `tenant`: the parts of machines, locations and models that tenants see.
//! - `interrupted`: deletes that were interrupted, continued.
//!
//! The use of a machine is recorded by the instance service, its BMC by the power service.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod acceptance;
pub mod api;
mod bmc_identity;
pub mod check;
pub mod enrolment;
pub mod enrolments;
mod error;
#[cfg(test)]
mod fake_peers;
mod filter;
mod interrupted;
mod inventory;
pub mod locations;
pub mod matching;
pub mod models;
mod network_identity;
pub mod peers;
pub mod place;
pub mod records;
mod scripts;
pub mod state;
mod tenant;
pub mod unknown_machines;

pub use api::Api;
pub use error::Error;
pub use peers::Peers;
pub use records::HardwareRecords;
