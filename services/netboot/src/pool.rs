//! Pools: addresses that are leased and not reserved, the selection of one for a client, and their states.
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
//! - [`subnet`]: a network with pools, as configured.
//! - [`lease`]: the states above, and their transitions.
//! - [`table`]: the states of all addresses, and the selection of one.
//!
//! Everything here is pure: `now` is an argument, and the module `leases` stores what has to be durable.

pub mod lease;
pub mod subnet;
pub mod table;

pub use lease::{Event, Illegal, Lease, State};
pub use subnet::{Range, Subnet, Unknown};
pub use table::Table;

#[cfg(test)]
mod tests;
