//! The virtual rack: machines that behave as bare ones do, in a network of their own.
//!
//! ```text
//! network namespace ── br0 198.51.100.1/24, 169.254.169.254/32
//!    ├─ libvirtd ── machine, machine, …       real firmware (SeaBIOS, OVMF), a serial log, a disk file
//!    ├─ sushy-emulator                        their BMCs, over Redfish
//!    └─ tinwright serve                       the one under test; its API socket is opened outside and handed in
//! ```
//!
//! - [`lab`]: the namespace, and the processes in it; all of it goes when the lab is dropped.
//! - [`machines`]: libvirt's part; [`bmc`]: their BMCs; [`bare`]: machines that have neither.
//! - [`client`]: somebody else on the machines' network.
//! - [`server`]: Tinwright in the lab, and clients for it.
//! - [`provision`]: records of the machines, and what is asked of the server.
//! - [`site`]: all of it, standing.
//!
//! Nothing is ever sent outside the namespace.

pub mod bare;
pub mod bmc;
pub mod client;
pub mod lab;
pub mod machines;
pub mod provision;
pub mod server;
pub mod site;

use std::net::Ipv4Addr;

/// The server's address in the lab; the machines' follow it.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
