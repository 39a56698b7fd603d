//! Containers on this host, as root, with a static busybox as image, each in a mount namespace of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod host;
mod inside;
mod limits;
mod start;
mod stop;
mod survival;
