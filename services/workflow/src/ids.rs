//! The names of things: each kind a type of its own, so that a lease is never taken for a workflow.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }
    };
}

id! {
    /// Names a workflow for as long as it is stored.
    WorkflowId
}
id! {
    /// Names a machine, as the hardware service does.
    HardwareId
}
id! {
    /// Names one permission to run one action: the fence that keeps an older attempt from being heard.
    LeaseId
}
id! {
    /// Names one boot of a machine's kernel (`/proc/sys/kernel/random/boot_id`).
    BootId
}
id! {
    /// Names one process of a worker, random for each.
    ProcessId
}
