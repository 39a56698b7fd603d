//! The service over gRPC inside the process, with a store in memory and fakes of the other services.

#![allow(clippy::unwrap_used)]

mod abilities;
mod awaited_workers;
mod bmc;
mod boot_epochs;
mod cancellations;
mod enrollment;
mod held_back;
mod history;
mod journeys;
mod kills;
mod machines;
mod maintenance;
mod occupants;
mod power;
mod queueing;
mod restarts;
mod retention;
mod root_disks;
mod site;
mod templates;
mod tenants;
mod unexpected_boots;
mod waiting;
mod worker;
