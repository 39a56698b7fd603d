//! The built-in actions: which images and commands the worker of a machine carries out, and with which variables.
//!
//! The worker finds its code by this table, the workflow service checks templates against it, and `tinwright template actions` and
//! `docs/reference/actions.md` show it. A registry, tag or digest in an image reference is ignored, because images are never pulled.
//!
//! - `table`: the actions. `check`: the mistakes in an action of a template. [`suggest()`]: the name that may be meant.

mod check;
mod suggest;
mod table;

pub use check::{Environment, UnknownAction, VariableError, check_variables, find, short_name};
pub use suggest::suggest;
pub use table::{ACTIONS, Action, Need, STANDARD_VARIABLES, Variable};

#[cfg(test)]
mod tests;
