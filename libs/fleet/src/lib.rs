//! The machines of a site as its edges see them: the records of four services, joined and kept in memory.
//!
//! ```text
//! hardware ─┐
//! instance ─┤
//! workflow ─┼─ runtime::feed ─▶ Fleet ─ MachineChange ─▶ Observer, usually a ViewIndex: lookups by MAC and by address
//! leases   ─┘                     │
//!                             FleetCache: sealed, for the next start
//! ```
//!
//! - [`machine`]: a machine with its instance and its workflows, and the addresses that it claims.
//! - [`claims`]: which machine an address belongs to if several claim it.
//! - [`Fleet`]: takes the events of the feeds and reports what changes to its observers.
//! - [`views`]: an edge's own projection of each machine, found by id, MAC, address or a key of the edge's.
//! - [`leases`]: addresses out of a pool.
//! - [`freshness`]: the age of what is known.
//! - [`cache`]: the records on disk. [`follow`]: the watches.
//!
//! An edge works out what it needs of a machine when a feed reports a change, not when the machine asks: machines ask far
//! more often than they change. Lookups never take the fleet's lock.

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
