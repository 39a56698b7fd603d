//! The tenants of a site, and the identities of its callers.
//!
//! - [`api`]: the gRPC services; they decide nothing.
//! - [`tenants`]: the customers of the site, which are deleted without objects only. [`roles`]: the roles of the contract and of the runtime.
//! - [`credentials`]: fields by which the clients of doors identify themselves; [`digest`]: their stored form.
//! - [`certificates`]: the client certificates that were issued here.
//! - [`revocations`]: identities that are refused before they expire.
//! - [`rotation`]: replaces the site's key and its authority.
//! - [`events`]: the events of all services, merged by time.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod certificates;
pub mod credentials;
pub mod digest;
mod error;
pub mod events;
pub mod revocations;
pub mod roles;
pub mod rotation;
pub mod tenants;

pub use api::Api;
pub use certificates::Certificates;
pub use credentials::Credentials;
pub use error::Error;
pub use events::EventApi;
pub use revocations::Revocations;
pub use tenants::Tenants;
pub use tenants::objects::TenantObjects;
