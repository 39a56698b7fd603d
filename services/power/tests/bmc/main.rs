//! The service against sushy-emulator, an independent BMC, which `peers.sh` fetches once.

#![allow(clippy::unwrap_used)]

mod crash;
mod emulator;
mod faults;
mod journey;
mod power_state;
mod proxy;
mod replicas;
mod site;
