//! The standard calls of a noun: create, get, list, update, delete and watch.
//!
//! ```text
//! request ─▶ viewer (tenant, view) ─▶ records or mirror ─▶ visible ─▶ shown ─▶ filtered ─▶ response
//! ```
//!
//! - [`Noun`], [`Edit`], [`Delete`]: how objects are created, changed and deleted, with hooks for what
//!   differs.
//! - [`Served`]: which objects a caller sees, and what of each.
//! - [`create`], [`get`], [`list`], [`update`], [`delete`], [`watch`]: the calls, by the traits that
//!   all requests of a call have in common ([`tinwright::requests`]).
//!
//! A filter is applied to what the caller sees of an object: so nobody learns from a filter what is
//! not shown.

mod noun;
mod read;
mod viewer;

pub use self::noun::{Delete, Edit, Noun, create, delete, update};
pub use self::read::{Served, check_filter, filter, get, list, list_where, passes, watch};
pub use self::viewer::Viewer;

#[cfg(test)]
mod tests;
