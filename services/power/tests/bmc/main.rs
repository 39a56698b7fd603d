//! The service against independent BMCs: sushy-emulator and virtualbmc, which `peers.sh` fetches once, and Debian's ipmi_sim.

#![allow(clippy::unwrap_used)]

mod crash;
mod directory;
mod emulator;
mod enrolment;
mod faults;
mod identity;
mod ipmi;
mod journey;
mod media;
mod power_state;
mod proxy;
mod quirks;
mod quirky;
mod replicas;
mod sessions;
mod site;
mod suite;
mod tls;
mod unresponsive;
