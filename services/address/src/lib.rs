//! The addresses of a site: subnets, their ranges, and the grants of addresses and blocks.
//!
//! - [`api`]: the gRPC services; they decide nothing.
//! - [`block`]: a block of addresses, and a span of them, as values. [`chunk`]: 256 blocks of one size as bits. Both without I/O.
//! - [`claims`]: one holder per block, in the store.
//! - [`subnets`], [`ranges`], [`grants`]: the records.
//! - [`import`]: the subnets of the configuration file, created where they are missing.
//! - [`bindings`]: the subnets and ranges of locations.
//! - [`objects`]: claims of the objects of other services, which are machines and instances.
//! - [`leases`]: the leases of netboot, which exclude claims.
//! - [`search`]: a free block of a range. [`machines`]: the interfaces that grants are attached to.
//!
//! # No address has two holders
//!
//! The addresses of a family are a tree with 256 branches at each byte. A node of it, a *chunk*, is one key with two bits for each of
//! its 256 slots: `held`, if the slot is part of a granted block, and `split`, if there is something in the chunk below it. A block
//! of /25 to /32 is 128 to 1 slots of the chunk of its /24, one of /17 to /24 is slots of the chunk of its /16, and so on.
//!
//! ```text
//! address/chunk/<4|6><bits>/<prefix in hex>     held (32 bytes) ‖ split (32 bytes); absent if both are empty
//! address/claim/<4|6><base in hex>-<length>     the holder of one block
//! ```
//!
//! A claim is one commit. It expects the chunk as it was read, in which all slots of the block have neither bit, sets `held`, and
//! writes the claim's own key. So two blocks that overlap and lie in one chunk are never both committed. If the chunk was absent, the
//! commit creates it, sets `split` in the chunk above, and expects that one as read, too, and so on up to a chunk that is there.
//! A slot is never both held and split: a block over a granted address finds it split, and an address inside a granted block finds
//! the slot above it held. A chunk that exists proves that the slot above it is split, so most commits read and expect one chunk.
//! The commit that frees the last slot of a chunk deletes it, and clears `split` above.
//!
//! Writers of different chunks do not disturb each other. An attempt that loses to another writer is repeated, one at a time in a
//! process ([`grants`]).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
mod attempts;
pub mod bindings;
pub mod block;
pub mod chunk;
pub mod claims;
mod error;
pub mod grants;
pub mod import;
pub mod leases;
pub mod machines;
pub mod objects;
pub mod ranges;
pub mod search;
pub mod subnets;

pub use api::Api;
pub use error::Error;
