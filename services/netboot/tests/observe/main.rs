//! What machines say on the wire, in a network of their own: other people's syslog senders and router solicitations.
#![allow(clippy::unwrap_used)]

mod network;
mod router;
mod syslog;
