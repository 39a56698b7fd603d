//! Runs a job that parses hostile files in a child process without network and without access to
//! the host.
//!
//! ```text
//! program ──starts──> keeper ──starts──> builder ──starts──> job (PID 1 of its own namespace)
//!    │                  │ clock, quota,    │ cgroup, namespaces,   │ rlimits, capabilities,
//!    │ input, result    │ removes cgroup   │ mounts, ids           │ Landlock, seccomp, the function
//! ```
//!
//! All four are the same executable: [`run_if_sandboxed`] at the top of `main` takes over in a
//! process that was started as one of the inner three. A process is single threaded there, so that
//! namespaces can be created without `fork` and without unsafe code.
//!
//! - [`job`]: the values that describe a job; [`run`]: starts it and waits; [`error`]: its errors.
//! - [`context`]: the job's view of its input, its scratch directory and its result.
//! - `keeper`, `builder`, `inside`: the three processes, outermost first.
//! - `root`, `identity`: mounts and ids; `landlock_rules`, `seccomp`, `rlimits`: one layer each.
//! - `groups`: the cgroup; `quota`, `deleted_files`: the scratch quota.
//! - `reason`: explains refused namespaces.
//! - `link`, `frame`, `process`: messages between the processes, and how one starts the next.
//!
//! If the program is killed, the keeper's socket ends: the keeper stops the job and removes the
//! cgroup. If the keeper is killed, `PR_SET_PDEATHSIG` kills the builder, and the program removes the
//! cgroup; if the builder is killed, the job. The job's namespace ends with it, and with the namespace
//! each process in it. If both program and keeper are killed, a later sandbox removes the cgroup.
//!
//! Own code instead of crates such as `birdcage` or `hakoniwa`: their licences differ from ours.

mod builder;
pub mod context;
mod deleted_files;
pub mod error;
mod frame;
mod groups;
mod identity;
mod inside;
pub mod job;
mod keeper;
mod landlock_rules;
mod link;
mod process;
mod quota;
mod reason;
mod rlimits;
mod root;
pub mod run;
mod seccomp;
mod stage;

pub use context::Context;
pub use error::{Ended, Error};
#[doc(hidden)]
pub use job::Layers;
pub use job::{Confinement, Job, LandlockState, Limits, User};
pub use run::Sandbox;
pub use stage::{JobFunction, run_if_sandboxed};
