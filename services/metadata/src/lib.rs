//! What a machine may ask about itself: the EC2 metadata tree on 169.254.169.254, and the call home.
//!
//! A machine needs no name and no password to ask: it is known by the address it asks from.
//!
//! ```text
//! request ─▶ http ─ caller: which address ─▶ index: which machine ─▶ tree: path → value ─▶ answer
//!              └── token: is this session the machine's own?
//!              └── phone_home: the installed system is up ─▶ control plane
//! ```
//!
//! - [`machine`]: what is known of one machine, and what follows from it; values, no I/O.
//! - [`prefix`], [`path`]: networks and request paths in normal form.
//! - [`tree`]: the EC2 tree, one table of path → value; listings are derived from it.
//! - [`token`]: IMDSv2 session tokens, nothing stored.
//! - [`index`]: which machine an address speaks for, in memory, changed in one step.
//! - [`http`]: the rules of the wire, the listener, and the trait through which a call home leaves.
//! - [`records`], [`source`], [`control_plane`]: where machines come from, and where calls home go; [`copies`]: what of
//!   that is kept for the next start.
//!
//! Nothing here calls upstream while a machine waits, except to store its call home.

pub mod control_plane;
pub mod copies;
pub mod http;
pub mod index;
pub mod machine;
pub mod path;
pub mod prefix;
pub mod records;
pub mod source;
pub mod token;
pub mod tree;

// The machines of the tests are the same inside the crate and outside it.
#[cfg(test)]
extern crate self as metadata;
#[cfg(test)]
#[path = "../tests/fixture/machines.rs"]
mod fixture;

pub use copies::Copies;
pub use http::{Config, PhoneHome, Service, serve};
pub use index::Index;
pub use machine::Machine;
