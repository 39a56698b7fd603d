//! Instances: the use of a machine by an operating system, from the request until the machine is wiped and free again.
//!
//! - [`api`]: the gRPC service; it decides nothing.
//! - [`state`]: the lifecycle of an instance as values; no I/O.
//! - [`check`]: the rules for records, and their stored form.
//! - [`instances`]: the records in the store, and with them the claims on machines; no gRPC.
//! - `create`: new instances. `placement`: the choice of their machines. `plan`: what a creation or a reinstallation would do.
//!   `machine_check`: whether a machine can be used. `order_check`: whether an order can be carried out, as far as that can be known.
//!   `image_check`: whether the images of a plan are at their servers.
//! - [`peers`]: the calls to the other services.
//! - [`reconcile`]: provisions and deprovisions machines.
//!
//! **Claim first, verify after.** The claim is an index entry that is committed with the record, so a machine has one
//! occupant. Only then is the machine's own state read: an instance whose machine may not be used fails and releases it. A
//! machine that was changed is released only after it was wiped, or into maintenance. What can be known before the claim is checked
//! before it, too, so that an order that cannot succeed is refused; what cannot be asked then is left to the check after it.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod check;
mod create;
mod image_check;
pub mod instances;
mod machine_check;
mod order_check;
pub mod peers;
mod placement;
mod plan;
pub mod reconcile;
mod restart;
pub mod state;

pub use api::Api;
pub use instances::{Error, Instances};
pub use peers::CalledServices;

#[cfg(test)]
mod tests {
    pub(crate) mod site;
}
