//! The engines beside each other, and etcd as it really is.
#![allow(clippy::unwrap_used, missing_docs)]

mod agreement;
mod authority;
mod conformance;
mod etcd;
mod gate;
mod login;
mod peer;
mod tls;
