//! Measures a server under the load of many simulated machines.
//!
//! - [`network`]: network namespaces for a server and its machines; [`process`]: the measured process.
//! - [`site`]: our server; [`fleet`]: hardware records; [`api`]: the API client.
//! - [`request`]: DHCP requests as machines send them; [`draw`]: pseudo-random choice of the next machine.
//! - [`machine`]: boots one machine with [`request`], [`tftp`] and [`http`]; [`power_on`]: boots all of them at once.
//! - [`beside`]: compares our server with each [`peer`]: [`dhcp_load`] (with the search of [`max_rate`]), [`tftp_load`] and
//!   [`http_load`], [`image_readers`].
//! - [`install`]: compares installations of an image with curl, zstd and dd.
//! - [`former`]: compares our server with a former build of it.
//! - [`steal`]: detects CPU steal by the hypervisor; [`report`]: prints results and goals.
//!
//! All traffic stays inside the namespaces.

pub mod api;
pub mod beside;
pub mod dhcp_load;
pub mod draw;
pub mod fleet;
pub mod former;
pub mod http;
pub mod http_load;
pub mod image_readers;
pub mod install;
pub mod machine;
pub mod max_rate;
pub mod network;
pub mod peer;
pub mod power_on;
pub mod process;
pub mod report;
pub mod request;
pub mod site;
pub mod steal;
pub mod tftp;
pub mod tftp_load;
