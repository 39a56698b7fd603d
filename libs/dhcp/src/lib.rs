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
//! - [`exchange`]: completes a request by what its client said earlier in the exchange.
//! - [`relay`]: option 82. [`SimulatedRelay`]: inserts it. [`architecture`]: loaders by option 93.
//! - [`config`]: a link's settings and a machine's reservation. [`ReplyInputs`]: these and the boot decision.
//! - [`reply`](reply()): the reply to a request; `reply_options` and `boot_file` fill it.
//!   [`BootReply`]: its boot part, with the words for it.
//! - [`chainload`]: the loader for iPXE in a NIC's ROM.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod architecture;
mod boot_file;
mod boot_reply;
pub mod chainload;
pub mod config;
mod drop_reason;
pub mod encode;
pub mod exchange;
pub mod options;
pub mod packet;
pub mod relay;
pub mod reply;
mod reply_options;
pub mod request;
mod simulated_relay;

pub use architecture::NoLoader;
pub use boot_reply::{BootReply, REFUSED_FILE, RefusalReason};
pub use config::{BootOffer, Link, Mode, PoolTerms, ReplyInputs, Reservation, StaticRoute};
pub use drop_reason::DropReason;
pub use exchange::Exchange;
pub use packet::{MacAddress, Malformed, MessageType, Packet};
pub use reply::{Reply, reply};
pub use request::{ClientClass, ListenPort, Received, Request};
pub use simulated_relay::SimulatedRelay;

#[cfg(test)]
mod tests;
