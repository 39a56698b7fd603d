//! Parts of programs that a machine runs in a boot of the site: what they get from the boot, and their access to the control plane.
//!
//! ```text
//! boot_parameters: the kernel's command line
//!   ─▶ clock ─▶ trust: the site's certificate authority ─▶ identity: a certificate for the boot token
//!      ─▶ control_plane: calls with it, which are repeated while no server is reachable
//! ```
//!
//! - [`journal`]: state that survives a crash of the program. [`retry_policy`]: delays between attempts.

pub mod boot_parameters;
pub mod clock;
pub mod control_plane;
pub mod identity;
pub mod journal;
pub mod retry_policy;
pub mod trust;
