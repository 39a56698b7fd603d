//! The BMCs of a site, and jobs that they carry out on its machines and that are verified by reading back.
//!
//! ```text
//! CreatePowerJob ─▶ job at the end of its machine's queue       the call returns here; the reconciler does the rest
//!   first job of the queue ─▶ read the BMC ─▶ decide ─▶ store the request ─▶ send it ─▶ read the BMC ─▶ … ─▶ verified
//! ```
//!
//! - [`api`]: the gRPC service; it decides nothing.
//! - [`bmcs`]: the BMCs and their credentials. [`jobs`]: the jobs and the queue of each machine.
//! - [`check`]: the rules for these records. [`state`]: the lifecycle of a job as values; no I/O.
//! - [`plan`]: the next request for a BMC in a given state; pure. [`bmc_client`]: a client of a BMC, by [`redfish`] or [`ipmi`].
//! - [`reconcile`]: carries out jobs, one at a time per BMC. [`stored`]: the messages in the store.
//! - `shared_readings`: one reading of a BMC at a time for all callers of GetPowerState.
//! - [`enrolment`]: machines that are known by their BMC only, and the inventories that BMCs list. [`hardware_directory`]: the records of
//!   machines.
//! - [`tenant_machines`]: the instances on machines, and what tenants may switch. [`tenant_view`]: what tenants see of jobs.
//! - [`claim`]: decides which of several processes carries out a machine's jobs.
//!
//! Passwords are encrypted before they are stored, and leave this crate only towards their BMC.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod address;
pub mod api;
pub mod bmc_client;
mod bmc_text;
pub mod bmcs;
pub mod check;
pub mod claim;
mod conflicts;
pub mod enrolment;
mod error;
pub mod forms;
pub mod hardware_directory;
pub mod ipmi;
pub mod jobs;
pub mod migration;
pub mod plan;
pub mod reconcile;
pub mod redfish;
mod shared_readings;
pub mod state;
pub mod stored;
pub mod tenant_machines;
pub mod tenant_view;
#[cfg(test)]
mod test_store;

pub use api::Api;
pub use bmcs::{Bmcs, Login, PlaintextHttp};
pub use enrolment::Enrolment;
pub use error::Error;
pub use hardware_directory::HardwareDirectory;
pub use jobs::Jobs;
pub use plan::Timing;
pub use tenant_machines::TenantMachines;
