//! DHCP for booting machines (RFC 2131, 2132; PXE 2.1): bytes in, values out.
//!
//! ```text
//! bytes -> packet::Packet -> client::Client ─┐
//!                      site::Link, Reservation ┼─> answer() -> Reply -> bytes, destination
//!                      the boot decision ──────┘      └─> Silence: why nothing is sent
//! ```
//!
//! - [`packet`]: the packet, and what is wrong with one that is not.
//! - [`options`]: options by number; [`encode`]: the size rule.
//! - [`client`]: what kind of program asks; [`architecture`]: which loader it can run.
//! - [`chain`]: which iPXE is firmware, and gets a loader of ours first; [`heard`]: that, and addresses found in use.
//! - [`relay`]: option 82, and whether to believe it.
//! - [`limits`]: how often an interface is answered; [`recent`]: what it is answered again.
//! - [`site`]: what the answer is made from; [`server`]: the sockets.
//! - [`answer`](answer()): who is answered, with which message; `content` and `boot`: what is in it.

mod answer;
pub mod architecture;
mod boot;
pub mod chain;
pub mod client;
mod content;
pub mod encode;
pub mod heard;
mod judge;
pub mod limits;
pub mod options;
pub mod packet;
pub mod recent;
pub mod relay;
pub mod server;
pub mod site;

pub use answer::{Destination, Port, Received, Reply, Silence, answer};
pub use boot::REFUSED_FILE;
pub use packet::{Malformed, MessageType, Packet};
pub use site::{BootOffer, FromPool, Link, Reservation};

#[cfg(test)]
pub(crate) mod tests;
