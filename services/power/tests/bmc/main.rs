//! Against a BMC that is not ours: sushy-emulator, which `peers.sh` fetches once.

#![allow(clippy::unwrap_used)]

mod crash;
mod emulator;
mod faults;
mod journey;
mod proxy;
mod replicas;
mod site;
