//! The gateway: other protocols, translated into the calls of the contract.
//!
//! - [`routes`]: the routes of the REST mirror, from the descriptors.
//! - [`openapi`]: the document that describes them. [`pages`]: documents and pages over HTTP.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod openapi;
pub mod pages;
pub mod routes;
