//! The service through its front door: gRPC inside the process, a store in memory, and others' services played by
//! fakes.

#![allow(clippy::unwrap_used)]

mod bmc;
mod journeys;
mod kills;
mod machines;
mod power;
mod queueing;
mod restarts;
mod retention;
mod site;
mod stray;
mod waiting;
mod worker;
