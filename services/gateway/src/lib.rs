//! The gateway: other protocols, translated into the calls of the contract.
//!
//! - [`routes`]: the routes of the REST mirror, from the descriptors.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod routes;
