//! Syslog of machines (RFC 5426): received, parsed (crate `syslog`), and stored in memory.
//!
//! - [`lines`]: lines in memory.
//! - [`server`]: the socket, and the rate limit for each address.

pub mod lines;
pub mod server;

pub use lines::Lines;
