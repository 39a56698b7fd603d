//! The workflow service: templates, the workflows made from them, and the workers that run them.
//!
//! - [`template`]: parses, checks and renders a template. [`create`]: makes a workflow from a template, hardware and values.
//!   [`render_pool`]: limits the number of templates that are rendered at a time.
//! - [`lifecycle`]: a workflow and its actions as values, from created to ended; no I/O, `now` is an argument.
//! - [`turn`]: the order of a machine's workflows; pure. [`retention`]: which ended workflows are deleted; pure.
//! - [`templates`], [`workflows`], [`logs`]: the records in the store; no gRPC. [`record`]: a workflow's record and its
//!   lifecycle value, converted into each other.
//! - [`abilities`]: what workers can do, and what actions need; pure.
//! - [`queue`]: the queues of all machines, in memory. [`dispatch`]: the next action for a worker. [`progress`]: the latest
//!   progress, in memory. [`machine_enrolments`]: machines without a record that have an identity. [`machine_gate`]: machines on which no step is taken. [`unexpected_boots`]: machines that do not boot
//!   their disk. [`log_reader`]: reads a growing log.
//! - [`occupancy`]: the instances that occupy machines. [`worker_enrollment`]: certificates for workers and nodes. `node_agents`: the agents of nodes that are connected. [`boot_epochs`]: after a
//!   machine was switched off, what its tenant got hold of is good for nothing.
//! - [`reconcile`]: turns, preparation, post, deadlines and garbage collection. [`api`]: gRPC.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod abilities;
pub mod api;
pub mod boot_epochs;
pub mod create;
pub mod dispatch;
pub mod lifecycle;
pub mod log_reader;
pub mod logs;
pub mod machine_enrolments;
pub mod machine_gate;
mod node_agents;
pub mod occupancy;
mod power_off;
pub mod progress;
pub mod queue;
pub mod reconcile;
pub mod record;
pub mod render_pool;
pub mod retention;
pub mod template;
pub mod templates;
pub mod turn;
pub mod unexpected_boots;
pub mod worker_enrollment;
pub mod workflows;

pub use api::{Api, CalledServices};
