//! Real DHCP clients, relays and servers: udhcpc, dhclient, dhcping, perfdhcp, dhcrelay, dnsmasq, and the
//! firmware of a machine (QEMU's BIOS with the packaged iPXE).
#![allow(clippy::unwrap_used)]

mod addressing;
mod beside;
mod capture;
mod exchanges;
mod firmware;
mod lab;
mod network;
mod pool;
mod relays;
