//! The tenants of a site.
//!
//! - [`api`]: the gRPC services; they decide nothing.
//! - [`tenants`]: the tenants in the store, and the rules for them.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod tenants;

pub use api::Api;
pub use tenants::Tenants;
