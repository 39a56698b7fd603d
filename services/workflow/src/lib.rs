//! What is done on machines: templates, the workflows rendered from them, and whose turn it is.
//!
//! - [`template`]: a template's text, its rules, and how it is rendered, once.
//! - [`lifecycle`]: a workflow and its actions as values, from created to ended; no I/O, `now` is an argument.
//! - [`queue`]: which workflow may have a machine, and who stands in the way of the others.
//! - [`ids`]: the names of things.
//! - [`api`]: gRPC in, gRPC out; no decisions. [`reconcile`]: what happens without being asked for.
//! - [`redeeming`]: certificates for workers.
//! - [`making`]: a workflow made of template, machine and values; [`record`]: what is stored of it.
//! - [`templates`], [`workflows`], [`logs`]: the records in the store; no gRPC.
//! - [`queues`]: the queues in memory; [`assigning`]: what a worker does next; [`progress`]: how far it is.
//! - [`stray`]: machines that do not boot their disk; [`retention`]: how long what has ended is kept.

pub mod api;
pub mod assigning;
pub mod ids;
pub mod lifecycle;
pub mod logs;
pub mod making;
pub mod progress;
pub mod queue;
pub mod queues;
pub mod reconcile;
pub mod record;
pub mod redeeming;
pub mod retention;
pub mod stray;
pub mod template;
pub mod templates;
pub mod workflows;

pub use api::Api;
