//! The rights of every caller, through the API's listener: `docs/reference/access.md`.
//!
//! - `calls`: any call of the contract, made by its descriptor. `content`: all that a server has stored.
//! - `site`: a server with an object of every noun. `requests`: a request for each call that would change something;
//!   `plain`: those of nouns that need only a name.
//! - `table`: every call by every caller. `request_ids`: those of several callers.
//! - `customers`: a site with two tenants. `isolation`: none of them finds anything of the other one. `power_jobs`:
//!   what they may switch. `mirror`: every call by the gateway, too.

pub mod calls;
pub mod content;
mod customers;
mod isolation;
mod mirror;
mod plain;
mod power_jobs;
mod request_ids;
mod requests;
pub mod site;
mod table;
