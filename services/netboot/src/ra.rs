//! Router advertisements for machines that boot (netboot specification, section 3.13; RFC 4861).
//!
//! After DHCP has given it an address iPXE still waits for an IPv6 router, 16 s at every boot, and in vain where there is
//! none. An advertisement that advertises nothing ends the wait: it gives nobody an address or a route (section 6.3.4). So
//! one is sent to whoever solicits it and is booting by our DHCP; to nobody else, and to nobody where a router is heard.
//!
//! - [`booting`]: who boots; [`packet`]: the two messages; [`server`]: the socket.

pub mod booting;
pub mod packet;
pub mod server;

pub use booting::Booting;
