//! Router advertisements for booting machines (RFC 4861).
//!
//! After DHCP has given it an address, iPXE waits 16 s for an IPv6 router at every boot, in vain where there is none. An
//! advertisement without a router lifetime, prefixes or routes ends the wait: it gives no host an address or a route (section
//! 6.3.4). So one is sent to each host that solicits routers and is booting by our DHCP; to no other host, and to none on a link
//! that has a router.
//!
//! [`packet`]: the two messages; [`server`]: the socket.

pub mod packet;
pub mod server;
