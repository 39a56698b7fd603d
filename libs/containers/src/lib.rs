//! Light containers: a process tree whose root directory is a mounted image, with a supervisor process for each of them.
//!
//! ```text
//! daemon ──starts──> launcher ──starts──> supervisor ──starts──> init (PID 1 of the container) ──execve──> image's program
//!    │                (exits)                 │  own session, lock file, control socket, log, cgroup
//!    └───────── run directory: spec.json, state.json, lock, control ─────────┘
//! ```
//!
//! The supervisor outlives the daemon: it holds the lock of its run directory, records each transition there, and
//! takes stop requests on a Unix socket. A daemon that starts again adopts the run by its directory. No process id is
//! trusted: a supervisor lives while its lock is held, and a recorded process is signalled through a pidfd, after its start
//! time and the boot id were compared.
//!
//! - [`command`]: splits the command of a container; [`program`]: checks its first word inside the image.
//! - [`spec`]: what to run; [`run`]: starts, adopts, stops and waits for runs; [`record`]: the run directory.
//! - [`supervisor`]: the entry point of the processes above; `init`: the steps inside the new namespaces.
//! - [`cgroup`]: control groups of version 1 and 2 as one type; [`log`]: the log file; `process`: process identities.
//!
//! Own code instead of `libcontainer`: that crate prescribes OCI's mounts, devices and environment, which differ from this
//! contract's, has no supervisor, and brings old copies of nix and rustix.
//!
//! Linux only, and nothing here looks up users or host names, so that a program with it can be linked statically. A service
//! manager must stop the daemon's main process alone (systemd: `KillMode=process`), or the supervisors end with it.

pub mod cgroup;
pub mod command;
mod descriptors;
mod init;
pub mod log;
mod process;
pub mod program;
pub mod record;
pub mod run;
pub mod spec;
pub mod supervisor;

pub use command::{InvalidCommand, Quotes, split_command};
pub use log::{Log, LogSettings};
pub use record::{End, Fault, Phase, Record, RunOutcome};
pub use run::{Error, Launcher, Run};
pub use spec::{Limits, Namespaces, Spec};
