//! What is done on machines: templates, the workflows rendered from them, and whose turn it is.
//!
//! - [`template`]: a template's text, its rules, and how it is rendered, once.
//! - [`lifecycle`]: a workflow and its actions as values, from created to ended; no I/O, `now` is an argument.
//! - [`queue`]: which workflow may have a machine, and who stands in the way of the others.
//! - [`ids`]: the names of things.

pub mod ids;
pub mod lifecycle;
pub mod queue;
pub mod template;
