//! The virtual rack: emulated bare machines with real firmware, in a network namespace.
//!
//! ```text
//! network namespace ── br0 198.51.100.1/24, 169.254.169.254/32
//!    ├─ libvirtd ── machine, machine, …       real firmware (SeaBIOS, OVMF), a serial log, a disk file
//!    ├─ sushy-emulator                        their BMCs, over Redfish
//!    └─ tinwright serve                       the server under test; its API socket is created outside the namespace
//! ```
//!
//! - [`lab`]: the namespace and its processes; drop ends and removes them.
//! - [`machines`]: machines run by libvirt; [`bmc`]: their BMCs; [`bare`]: machines without libvirt and BMC.
//! - [`node`]: a machine that boots as a node of the ImageAPI, without firmware; [`shell`]: a shell on a node.
//! - [`client`]: another host on the machines' network; [`terminal`]: a terminal on it; [`switch`]: its switch, by LLDP.
//! - [`server`]: the Tinwright server in the lab, and its clients.
//! - [`platform`]: an outside platform: its client of the infrastructure abstraction layer, and its system, which boots from the network.
//! - [`publisher`]: a publisher of images. [`air_gap`]: another site, which exports an image and the environment.
//! - [`provision`]: the operator's calls: hardware records, templates, instances; [`tenant`]: those of a tenant.
//! - [`site`]: lab, libvirt, BMCs and server together; [`ssh`]: SSH to the installed machines.
//! - [`view`]: the live view of `cargo rack`, and a picture of it.
//!
//! All traffic stays inside the namespace.

pub mod air_gap;
pub mod bare;
pub mod bmc;
pub mod client;
pub mod lab;
pub mod machines;
pub mod node;
pub mod platform;
pub mod provision;
pub mod publisher;
pub mod server;
pub mod shell;
pub mod site;
pub mod ssh;
pub mod switch;
pub mod tenant;
pub mod terminal;
pub mod view;

use std::net::Ipv4Addr;

/// The server's address in the lab; the machines' addresses are in the same /24.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
