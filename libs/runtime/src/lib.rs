//! Everything that each process of Tinwright needs once. There is no store in here: workers and nodes import it too.
//!
//! Identity and secrets:
//! - [`secret`]: values that no log shows, and the site's key; [`site_keys`]: several of them, while one replaces another;
//!   [`seal`]: encryption of secrets at rest.
//! - [`authority`]: the site's certificate authority, and the certificates that it issues.
//! - [`boot_token`]: the tokens in boot scripts. [`edge`]: the keys of processes without the site's key.
//! - [`identity`]: the caller, read from a certificate; [`access`]: the roles that may make each call, one table;
//!   [`forwarding`]: the clients of doors.
//!
//! Connections:
//! - [`listen`]: sockets, bound or inherited; [`serve`]: connections over TLS, in clear, or inside the process.
//! - [`connect`]: channels to other processes. [`unread_body`]: bodies of requests that are answered early.
//! - [`network`]: IP networks; [`client_address`]: the client behind a proxy.
//! - [`neighbour`]: the check that the owner of an address on our link is its machine; [`netlink`]: routes and neighbours of the kernel.
//! - [`feed`]: following another service's watch; [`phone_home`]: the phone-home call of an installed system.
//! - [`tenants`]: the tenants of the site, which objects name. [`address_claims`]: the addresses that objects have, each one holder.
//! - [`call_metrics`]: one span and one count for each call; [`process_metrics`]: memory, CPU time and files of the process;
//!   [`overdue_metric`]: objects that stay in a state for too long;
//!   [`admission`]: the most calls of each role at a time.
//! - [`telemetry`]: logs, metrics, health; [`supervise`]: starting together and stopping in order.
//!
//! Toolbox:
//! - [`clock`]: wall and monotonic time, passed in.
//! - [`retry`]: errors that are final, and exponential backoff for the others.
//! - [`rate_limit`]: token buckets, one for each key.
//! - [`bounded_map`]: maps that evict their oldest entries, and entries that expire.
//! - [`work_queue`]: one task at a time for each key, with retries.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod access;
pub mod address_claims;
pub mod admission;
pub mod authority;
pub mod boot_token;
pub mod bounded_map;
pub mod call_metrics;
mod channel;
pub mod client_address;
pub mod clock;
pub mod connect;
mod crypto_error;
pub mod edge;
pub mod feed;
pub mod forwarding;
pub mod identity;
pub mod images;
pub mod listen;
pub mod neighbour;
pub mod netlink;
pub mod network;
pub mod overdue_metric;
pub mod phone_home;
pub mod process_metrics;
pub mod rate_limit;
pub mod retry;
pub mod revocation;
pub mod seal;
pub mod secret;
pub mod serial;
pub mod serve;
pub mod site_keys;
pub mod supervise;
pub mod telemetry;
pub mod tenants;
#[cfg(test)]
mod test_layer;
pub mod unread_body;
pub mod work_queue;

pub use channel::{Channel, LocalServices, RunningServices, call, find, list_all, response};
pub use clock::Clock;
pub use identity::{Caller, MachinePurpose, Role};
pub use secret::{Secret, SiteKey};
pub use telemetry::cause;
