//! Addresses that are lent, not reserved: which one a client gets, and what becomes of it (netboot specification, section
//! 3.11).
//!
//! ```text
//!          ┌──────────── 60 s ────────────┐
//!          │                              ▼
//! Free ─offer─▶ Offered ─bind─▶ Bound ─time─▶ Expired ─a day─▶ Free
//!                  │         ▲    │ └──release─▶ Released ─a day─▶ Free
//!                  │         └bind┘ (renewal)
//!                  └──decline──────▶ Declined ─10 min─▶ Free
//! ```
//!
//! - [`subnet`]: a network we lend in, as an operator wrote it.
//! - [`lease`]: the states above, and what leads from one to another.
//! - [`table`]: the state of every address, and the choice of one.
//!
//! Nothing here waits, reads a clock or keeps anything: `now` is an argument, and [`leases`](crate::leases) makes durable
//! what has to be.

pub mod lease;
pub mod subnet;
pub mod table;

pub use lease::{Event, Illegal, Lease};
pub use subnet::{Range, Subnet, Unknown};
pub use table::Table;

#[cfg(test)]
mod tests;
