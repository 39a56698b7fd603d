//! Many machines at once, and what their server takes for them.
//!
//! - [`network`]: a server's network and its machines'; [`process`]: a server that is measured.
//! - [`site`]: ours; [`fleet`]: its machines' records; [`api`]: its operator.
//! - [`request`]: DHCP as machines send it; [`draw`]: which machine is next.
//! - [`machine`]: one that is powered on, by way of [`request`], [`tftp`] and [`http`]; [`power_on`]: all of them.
//! - [`beside`]: ours and each [`peer`] in turns, by [`storm`] (DHCP, its rate found by [`mod@highest`]), [`downloads`] and
//!   [`mod@blast`] (HTTP).
//! - [`quiet`]: whether the host left us our cores; [`report`]: what was measured, and whether goals are met.
//!
//! Nothing is ever sent outside the namespaces.

pub mod api;
pub mod beside;
pub mod blast;
pub mod downloads;
pub mod draw;
pub mod fleet;
pub mod highest;
pub mod http;
pub mod machine;
pub mod network;
pub mod peer;
pub mod power_on;
pub mod process;
pub mod quiet;
pub mod report;
pub mod request;
pub mod site;
pub mod storm;
pub mod tftp;
