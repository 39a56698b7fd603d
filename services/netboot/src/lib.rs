//! How a bare machine gets its first program: addresses and boot files, and the decision what it boots.
//!
//! - [`dhcp_server`]: the DHCP sockets; the rules are in the crate [`dhcp`](::dhcp).
//! - [`decision`]: what a machine boots now, and which fact decided.
//! - [`script`]: the iPXE text that carries the decision out.
//! - [`boots`]: scripts for the machines they are for, and what they open; [`http`]: these on the wire.
//! - [`timeline`]: what happened in each boot, kept.
//! - [`ra`]: sparing iPXE the wait for an IPv6 router.
//! - [`syslog`]: what machines say.
//! - [`pool`]: addresses that are lent, and their lifecycle; [`leases`]: these kept in the store, and over gRPC.
//! - [`lending`]: which of these a request is answered with; [`unknown`]: machines without a record that asked.
//! - [`metrics`]: what is counted.
//! - [`explain`]: what a machine would be answered now, and why; [`api`]: that and more for people, over gRPC.
//! - [`Netboot`]: sockets, feeds, and the loops over them; [`site`]: its settings.
//! - [`iso`]: images for virtual media.
//! - [`tftp`]: the transfer as a state machine, and the server over it.
//! - [`datagram`]: receiving UDP with the address and interface it came to.
//! - [`machine_view`]: the machines of the fleet as netboot sees them; [`feed_cache`]: the parts of their records that an
//!   edge keeps on disk.

pub mod api;
pub mod bootscripts;
pub mod datagram;
pub mod decision;
pub mod dhcp_server;
pub mod explain;
pub mod feed_cache;
pub mod http;
pub mod ipxe;
pub mod iso;
pub mod leases;
pub mod lending;
pub mod machine_view;
pub mod metrics;
pub mod pool;
pub mod ra;
mod service;
pub mod site;
pub mod syslog;
pub mod tftp;
pub mod timeline;
pub mod unknown;

pub use api::Api;
pub use metrics::Metrics;
pub use service::{Netboot, Peers, Reports};
pub use site::Site;
pub use tinwright::Mac;
