//! What every process of Tinwright needs once. There is no store in here: workers and nodes import it too.
//!
//! - [`secret`]: values that no log shows, and the site's key.
//! - [`boot_token`]: what a boot script shows for its machine; [`seal`]: secrets at rest.
//! - [`feed`]: following another service's watch.
//! - [`authority`]: the site's certificate authority, and what it issues.
//! - [`identity`]: who calls, read from a certificate; [`access`]: who may call what, one table.
//! - [`listen`]: sockets, bound or inherited; [`serve`]: connections on them, in TLS, in clear, or inside the process.
//! - [`prefix`]: networks; [`forwarded`]: for whom a proxy asks; [`limit`]: how often one may ask.
//! - [`phone_home`]: the call home of an installed system.
//! - [`observe`]: one span and one count a request.
//! - [`telemetry`]: logs, metrics, health; [`supervise`]: starting together, ending in order.

pub mod access;
pub mod authority;
pub mod boot_token;
pub mod feed;
pub mod forwarded;
pub mod identity;
pub mod limit;
pub mod listen;
pub mod observe;
pub mod phone_home;
pub mod prefix;
pub mod seal;
pub mod secret;
pub mod serve;
pub mod supervise;
pub mod telemetry;

pub use identity::{Caller, Role};
pub use secret::{Secret, SiteKey};
