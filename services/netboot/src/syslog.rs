//! What machines say by syslog (netboot specification, section 11; RFC 5426): received, read, kept for a while.
//!
//! - [`message`]: a datagram as a message, whatever is wrong with it; [`rfc5424`] and [`rfc3164`]: the two forms.
//! - [`limit`]: how much one address may say.
//! - [`lines`]: the lines that are kept in memory, for people.
//! - [`server`]: the socket.

pub mod limit;
pub mod lines;
pub mod message;
pub mod rfc3164;
pub mod rfc5424;
pub mod server;

pub use lines::Lines;
