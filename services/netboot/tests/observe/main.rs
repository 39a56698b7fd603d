//! Syslog senders and router solicitations of other programs, in network namespaces.
#![allow(clippy::unwrap_used)]

mod network;
mod router;
mod syslog;
