//! What a machine may ask about itself: the EC2 metadata tree on 169.254.169.254 and its kin, and the call home.
//!
//! A machine needs no name and no password to ask: it is known by the address it asks from.
//!
//! ```text
//! request ─▶ http ─ caller: which address ─▶ index: which machine ─▶ contents: path → value ─▶ answer
//!              └── token: is this session the machine's own?
//!              └── phone_home: the installed system is up ─▶ control plane
//! ```
//!
//! - [`machine`]: what is known of one machine, and what follows from it; values, no I/O.
//! - [`path`]: request paths in normal form.
//! - [`contents`]: everything there is to read: the tree, NoCloud's, OpenStack's and JSON documents.
//! - [`endpoints`]: paths that the site adds, each a filter over the JSON document.
//! - [`tree`]: the EC2 tree, one table of path → value; listings are derived from it.
//! - [`guard`], [`neighbour`], [`netlink`]: whether who has an address is the machine it was given to.
//! - [`token`]: IMDSv2 session tokens, nothing stored.
//! - [`index`]: which machine an address speaks for, in memory, changed in one step.
//! - [`http`]: the rules of the wire, the listener, and the trait through which a call home leaves.
//! - [`link_local`]: being 169.254.169.254.
//! - [`api`]: what people ask of it.
//! - [`metrics`]: what is counted.
//! - [`records`]: the contract's records as machines; [`control_plane`]: reports to the instance service.
//!
//! Nothing here calls upstream while a machine waits, except to store its call home.

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
pub mod neighbour;
pub mod netlink;
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
