//! Network boot of bare machines: addresses, boot files, scripts, and the decision what a machine boots.
//!
//! - [`decision`]: decides what a machine boots, and names the fact that decided, whose texts are `ipxe_script`'s.
//! - [`bootscripts`]: scripts and files for each machine; [`http`] and [`tftp`] serve them; [`iso`]: images for virtual media;
//!   [`environments`]: kernels and initramfs.
//! - [`dhcp_server`]: the DHCP sockets; the rules are in the crate [`dhcp`]. [`ra`]: router advertisements for iPXE.
//! - [`pool`], [`leases`], [`allocation`]: pools, leases in the store, and the address for a request; [`unknown_clients`]:
//!   clients without a record.
//!   [`granted`]: addresses that are granted, and not leased.
//! - [`timeline`]: the steps of each boot, stored; [`syslog`]: the lines that machines send; [`metrics`].
//! - [`machine_view`]: the machines in memory; [`feed_cache`]: the feeds on disk, for the next start.
//! - [`explain`]: simulates requests; [`api`]: that and more over gRPC.
//! - [`Netboot`]: the links and the tasks of all; [`site`]: settings; [`datagram`]: UDP with addresses and interfaces.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod allocation;
pub mod api;
pub mod bootscripts;
pub mod datagram;
pub mod decision;
pub mod dhcp_server;
pub mod environments;
pub mod explain;
pub mod feed_cache;
pub mod granted;
pub mod http;
pub(crate) use ipxe_script as ipxe;
pub mod iso;
pub mod leases;
pub mod machine_view;
pub mod metrics;
pub mod pool;
pub mod ra;
mod service;
pub mod site;
pub mod syslog;
pub mod tftp;
pub mod timeline;
pub mod unknown_clients;

pub use api::Api;
pub use http::images::ImageContent;
pub use metrics::Metrics;
pub use service::{ImageCache, Netboot, Peers, Reports};
pub use site::Site;
pub use tinwright::Mac;
