//! DHCP for booting machines (RFC 2131, RFC 2132, PXE 2.1): parses requests, applies the rules, builds replies.
//!
//! ```text
//! datagram ─▶ Request ─┐
//! Link, Reservation ───┼─▶ reply() ─▶ Reply: packet and destination
//! BootOffer ───────────┘        └───▶ DropReason
//! ```
//!
//! No sockets, no clock, no storage: every function maps values to values. `docs/reference/dhcp.md` has the normative tables.
//!
//! - [`packet`], [`options`], [`encode`]: the codec. [`request`]: a parsed request and the class of its client.
//! - [`relay`]: option 82. [`architecture`]: loaders by option 93.
//! - [`config`]: a link's settings and a machine's reservation. [`ReplyInputs`]: these and the boot decision.
//! - [`reply`](reply()): the reply to a request; `reply_options` and `boot_file` fill it.
//! - [`chainload`]: the loader for iPXE in a NIC's ROM.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod architecture;
mod boot_file;
pub mod chainload;
pub mod config;
mod drop_reason;
pub mod encode;
pub mod options;
pub mod packet;
pub mod relay;
pub mod reply;
mod reply_options;
pub mod request;

pub use boot_file::REFUSED_FILE;
pub use config::{BootOffer, Link, Mode, PoolTerms, ReplyInputs, Reservation, StaticRoute};
pub use drop_reason::DropReason;
pub use packet::{MacAddress, Malformed, MessageType, Packet};
pub use reply::{Reply, reply};
pub use request::{ClientClass, ListenPort, Received, Request};

#[cfg(test)]
mod tests;
