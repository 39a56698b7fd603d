//! The machines of a site for its edges (netboot and metadata): the records of four services, joined in memory.
//!
//! ```text
//! hardware ─┐
//! instance ─┤
//! workflow ─┼─ runtime::feed ─▶ Fleet ─ MachineChange ─▶ Observer, usually a ViewIndex: lookups by MAC and by address
//! leases   ─┘                     │
//!                             FleetCache: encrypted on disk, for the next start
//! ```
//!
//! - [`machine`]: a machine with its instance and its workflows, and the addresses that it claims.
//! - [`claims`]: conflicts between machines that claim the same address.
//! - [`Fleet`]: takes the events of the feeds and reports changes to its observers.
//! - [`views`]: an edge's own projection of each machine, found by id, MAC, address or a key of the edge.
//! - [`leases`]: leases of pool addresses.
//! - [`freshness`]: the freshness of each feed.
//! - [`cache`]: an encrypted copy of the records on disk. [`follow`]: watches the services.
//!
//! An edge projects a machine when a feed reports a change, not when the machine sends a request: requests are far more
//! frequent than changes. Lookups never take the fleet's lock.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cache;
pub mod claims;
mod fleet;
pub mod follow;
pub mod freshness;
pub mod leases;
pub mod machine;
pub mod views;

pub use self::cache::{CacheContents, FleetCache};
pub use self::fleet::{Fleet, Observer};
pub use self::follow::FleetFeeds;
pub use self::freshness::{FeedKind, FeedStates, Freshness};
pub use self::leases::BoundLease;
pub use self::machine::{FleetMachine, FleetWorkflow, MachineChange};
pub use self::views::{MachineProjection, Snapshot, ViewIndex};
