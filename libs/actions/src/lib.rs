//! The built-in actions: which images and commands the worker of a machine carries out, and with which variables.
//!
//! The worker finds its code by this table, the workflow service checks templates against it, and `tinwright template actions` and
//! `docs/reference/actions.md` show it. A registry, tag or digest in an image reference is ignored, because images are never pulled.
//!
//! - `table`: the actions. `check`: the mistakes in an action of a template. [`suggest()`]: the name that may be meant.
//! - `waitdaemon`: the action in place of Tinkerbell's container around it.

mod check;
mod suggest;
mod table;
mod waitdaemon;

pub use check::{Environment, UnknownAction, VariableError, check_variables, find, short_name};
pub use suggest::suggest;
pub use table::{ACTIONS, Action, Need, STANDARD_VARIABLES, Variable};
pub use waitdaemon::{
    in_place_of_waitdaemon, is_waitdaemon, is_waitdaemon_variable, waitdaemon_image,
};

#[cfg(test)]
mod tests;
