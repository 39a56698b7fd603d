//! The metadata service: documents for the machine that requests them, such as the EC2 tree on 169.254.169.254, and the
//! phone-home call.
//!
//! A machine needs no name and no password: it is identified by the address of its request.
//!
//! ```text
//! request ─▶ http ─ client: address ─▶ index: machine ─▶ contents: path → document ─▶ response
//!              ├── token: is this session the machine's own?
//!              └── phone_home: the installed system is up ─▶ control plane
//! ```
//!
//! - [`machine`]: the facts about one machine; values, no I/O.
//! - [`path`]: request paths in normal form.
//! - [`contents`]: all documents: the tree, NoCloud's, OpenStack's and JSON.
//! - [`endpoints`]: custom paths of the site, each a filter over the JSON document.
//! - [`tree`]: the EC2 tree, one table of path → value; listings are derived from it.
//! - [`guard`]: the restrictions of a machine's policy.
//! - [`token`]: IMDSv2 session tokens, nothing stored.
//! - [`index`]: the machines by address, in memory, changed in one step.
//! - [`http`]: requests, responses and listeners.
//! - [`link_local`]: the address 169.254.169.254.
//! - [`api`]: the gRPC API for operators; [`metrics`]: the metrics.
//! - [`records`]: the contract's records as machines; [`control_plane`]: reports to the instance service.
//!
//! No request waits for another service, except for a phone-home call to be stored.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod contents;
pub mod control_plane;
pub mod endpoints;
pub mod guard;
pub mod http;
pub mod index;
pub mod link_local;
pub mod machine;
pub mod metrics;
pub mod path;
pub mod records;
pub mod token;
pub mod tree;

// The machines of the tests are the same inside the crate and outside it.
#[cfg(test)]
extern crate self as metadata;
#[cfg(test)]
#[path = "../tests/fixture/machines.rs"]
mod fixture;

pub use api::Api;
pub use contents::Contents;
pub use endpoints::Endpoints;
pub use http::{Config, Hegel, PhoneHome, Service, is_reserved_path, serve, serve_calls};
pub use index::Index;
pub use machine::Machine;
