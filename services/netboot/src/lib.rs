//! How a bare machine gets its first program: addresses and boot files, and the decision what it boots.
//!
//! - [`dhcp`]: packets in, answers out; no socket, no clock.
//! - [`decision`]: what a machine boots now, and which fact decided.
//! - [`script`]: the iPXE text that carries the decision out.
//! - [`tftp`]: the transfer as a state machine, and the server over it.
//! - [`datagram`]: receiving UDP with the address and interface it came to.
//! - [`mac`]: Ethernet addresses in every notation firmware uses.

pub mod datagram;
pub mod decision;
pub mod dhcp;
pub mod mac;
pub mod script;
pub mod tftp;

pub use mac::Mac;
