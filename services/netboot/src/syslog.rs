//! Syslog of machines (RFC 5426): received, parsed, and stored for a while.
//!
//! - [`message`]: parses any datagram as a message; [`rfc5424`] and [`rfc3164`]: the two forms.
//! - [`limit`]: rate limit per address.
//! - [`lines`]: lines in memory.
//! - [`server`]: the socket.

pub mod limit;
pub mod lines;
pub mod message;
pub mod rfc3164;
pub mod rfc5424;
pub mod server;

pub use lines::Lines;
