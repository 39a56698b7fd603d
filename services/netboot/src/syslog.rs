//! Syslog of machines (RFC 5426): received, parsed, and stored in memory.
//!
//! - [`message`]: parses any datagram as a message; [`rfc5424`] and [`rfc3164`]: the two forms.
//! - [`lines`]: lines in memory.
//! - [`server`]: the socket, and the rate limit for each address.

pub mod lines;
pub mod message;
pub mod rfc3164;
pub mod rfc5424;
pub mod server;

pub use lines::Lines;
